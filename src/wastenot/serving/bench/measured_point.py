"""What was measured of a server under one load."""

from __future__ import annotations

from dataclasses import dataclass, field

from wastenot.core.arrays import FloatArray
from wastenot.serving.bench.server import Server
from wastenot.serving.tables.records import Percentiles


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """What was measured under one load. Latencies are of the steady state, in seconds.

    Attributes:
        server: that was measured.
        wanted: requests that were to run at once; 0 where they arrived at a rate.
        most_in_flight: requests at once.
        begin_s: of the steady state, by the clock of ``time.perf_counter``.
        end_s: of the steady state; the same as ``begin_s`` if it was not reached.
        sent: requests, altogether.
        sent_per_s: in the steady state.
        ended: of these, answered to the end.
        failed: of these, not answered to the end, by what happened.
        tokens: of answers that came in the steady state.
        tokens_per_s: in the steady state.
        mean_running: requests on average, by the server's own metrics, or else as far as that is seen from outside.
        running_by_server: whether the server said so.
        prompt_tokens: mean of a prompt as the server counts; ``None`` where it does not.
        output_tokens: mean of an answer; ``None`` where that is not known.
        ttft: time to the first token, of requests sent in the steady state.
        itl: time between tokens that came in the steady state.
        end_to_end: time from sending to the end; percentiles that too few requests reached are not known.
        gaps_s: all times between tokens in the steady state, as they came.
        ttfts_s: of each request sent in the steady state.
        metrics: means over the steady state of what the server says of itself, by the names it uses.
        client_late_s: 99th percentile of how late the client itself was.
        why_unstable: why this is no steady state to rely on; empty where it is one.
        fault: why the load ended before its time; empty where it did not.
        notes: what a reader should know, one line each.
    """

    server: Server
    wanted: int
    most_in_flight: int
    begin_s: float
    end_s: float
    sent: int
    sent_per_s: float
    ended: int
    failed: dict[str, int]
    tokens: int
    tokens_per_s: float
    mean_running: float | None
    running_by_server: bool
    prompt_tokens: float | None
    output_tokens: float | None
    ttft: Percentiles
    itl: Percentiles
    end_to_end: Percentiles
    gaps_s: FloatArray = field(repr=False)
    ttfts_s: FloatArray = field(repr=False)
    metrics: tuple[tuple[str, float], ...]
    client_late_s: float
    why_unstable: str
    fault: str
    notes: tuple[str, ...]

    @property
    def steady_s(self) -> float:
        """Length of the steady state; 0 if it was not reached."""
        return self.end_s - self.begin_s

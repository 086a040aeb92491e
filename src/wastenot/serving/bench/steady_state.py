"""What a run under load tells of a server's steady state, and what speaks against relying on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import ServerError
from wastenot.core.wording import counted
from wastenot.serving.bench.lifetimes import lifetimes, percentiles
from wastenot.serving.bench.loops import LARGEST_IMBALANCE, LEAST_FIRST_TOKENS, Run
from wastenot.serving.bench.scraping import Scraped
from wastenot.serving.bench.server import Server
from wastenot.serving.bench.server_metrics import Quantity
from wastenot.serving.bench.streams import Stream
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
        first_tokens: that came in the steady state.
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
        cached_share: of the prompts' tokens, those from the server's prefix cache; ``None`` where it does not say.
        others_tokens: that the server made meanwhile and that were not ours, beyond what may have been on its way.
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
    first_tokens: int
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
    cached_share: float | None
    others_tokens: float
    client_late_s: float
    why_unstable: str
    fault: str
    notes: tuple[str, ...]

    @property
    def balance(self) -> float | None:
        """Prompts in the steady state for each that goes with the tokens of its answers; ``None`` where that is unknown."""
        return (
            None if not self.tokens or self.output_tokens is None else self.first_tokens * self.output_tokens / self.tokens
        )

    @property
    def steady_s(self) -> float:
        """Length of the steady state; 0 if it was not reached."""
        return self.end_s - self.begin_s


def mean_answered(streams: Sequence[Stream], begin_s: float, end_s: float) -> float:
    """Requests that the server was at work on, on average over a time, as far as that is seen from outside.

    A request waits in the server's queue before its prompt is read, which nobody sees; reading it is taken to last as long
    as the shortest time to a first token of all.
    """
    begun = [stream for stream in streams if stream.arrival_s]
    if not begun:
        return 0.0
    reading_s = min(stream.arrival_s[0] - stream.sent_s for stream in begun)
    return _overlap([s.arrival_s[0] - reading_s for s in begun], [s.ended_s or end_s for s in begun], begin_s, end_s)


def most_in_flight(streams: Sequence[Stream], over_s: float) -> int:
    """Most requests in flight at once."""
    begins = np.asarray([stream.sent_s for stream in streams])
    ends = np.asarray([stream.ended_s if stream.ended_s is not None else over_s for stream in streams])
    order = np.argsort(np.concatenate([ends, begins]), kind="stable")
    return int(np.cumsum(np.repeat([-1, 1], len(streams))[order]).max())


def _overlap(begins: Sequence[float], ends: Sequence[float], begin_s: float, end_s: float) -> float:
    inside = np.minimum(np.asarray(ends), end_s) - np.maximum(np.asarray(begins), begin_s)
    return float(np.clip(inside, 0.0, None).sum() / (end_s - begin_s))


TOO_SHORT = "too short: "
"""How the reasons begin why a point is unstable that would be stable if it had been watched for longer."""
LEAST_STEADY_S = 20.0
"""A shorter steady state is unstable, as ML.ENERGY has it."""
LEAST_FILL = 0.85
"""Of the requests that were to run; fewer are unstable, as ML.ENERGY has it."""

_SHORT_ANSWERS = 0.98
_MOST_CACHED = 0.01  # of prompts' tokens
_OTHERS_SHARE = 0.01  # of ours, made beside them
_ON_THEIR_WAY = 4.0  # tokens of each running request that may be counted at one end of a window and come after it
_FULL = 0.95  # of the key-value cache
_LATE_SHARE = 0.05
_SIGMAS = 4.0
_LATE_S = 3e-3  # an idle machine's timer is up to 1 ms late


def notes_on(point: MeasuredPoint, run: Run, *, counts: bool, busy_before: float = 0.0) -> tuple[str, ...]:
    """What a reader should know, one line each.

    Args:
        point: measured.
        run: it comes from.
        counts: whether it counts the tokens of prompts.
        busy_before: requests that it ran before the first was sent.
    """
    done = [stream for stream in run.streams if stream.outcome == "done"]
    notes = []
    if busy_before:
        notes.append(f"the server was busy before the first request: {counted(round(busy_before), 'other request')} ran")
    if not counts or any(not stream.counts_tokens for stream in done):
        notes.append(
            "the server's streams report no usage: each chunk is counted as a token, and so is each word of a prompt"
        )
    asked = [stream for stream in done if stream.ask.exact and stream.ask.output_tokens is not None]
    wished = sum(stream.ask.output_tokens or 0 for stream in asked)
    came = sum(stream.answer_tokens for stream in asked)
    if came < _SHORT_ANSWERS * wished:
        mean, goal = came / len(asked), wished / len(asked)
        notes.append(f"answers ended early: {mean:.0f} tokens on average instead of the {goal:.0f} asked for")
    for outcome, number in sorted(point.failed.items()):
        why = next(stream.reason for stream in run.streams if stream.outcome == outcome)
        words = {
            "limited": "were rejected by the server's rate limit", "refused": "were refused",
            "cut off": "broke off", "unreachable": "did not reach the server",
        }[outcome]  # fmt: skip
        notes.append(f"{number:,} of {counted(point.sent, 'request')} {words} ({why})")
    if point.itl.p50_s is not None and point.client_late_s > max(_LATE_SHARE * point.itl.p50_s, _LATE_S):
        notes.append(
            f"this client was up to {1e3 * point.client_late_s:.1f} ms late (99th percentile): its machine is busy, "
            "and latencies are overestimated by as much"
        )
    if point.ttft.p50_s is None and point.tokens > 0:
        notes.append("TTFT is unknown: no request that was sent in the steady state had its first token in it")
    if point.itl.p50_s is None and point.tokens > 0:
        notes.append("each answer came in one piece, so the time between tokens is unknown")
    return tuple(notes)


def why_unstable(point: MeasuredPoint, run: Run, scraped: Scraped) -> str:  # noqa: PLR0911
    """Why a steady state cannot be relied on; empty where it can."""
    if run.begin_s is None:
        reached = f"only {run.started:,} of {run.wanted:,} requests had a first token" if run.wanted else "too few ended"
        return f"no steady state: {reached}" + (f"; {run.fault}" if run.fault else "")
    if run.fault:
        return run.fault
    if point.steady_s < LEAST_STEADY_S:
        lasted = f"the steady state lasted {point.steady_s:.1f} s of at least {LEAST_STEADY_S:g}"
        return f"{lasted}: measure for longer, or give more requests"
    if point.first_tokens < LEAST_FIRST_TOKENS:
        least_s = point.steady_s * LEAST_FIRST_TOKENS / max(point.first_tokens, 1)
        came = (
            f"{TOO_SHORT}{counted(point.first_tokens, 'first token')} came in the {point.steady_s:.0f} s of the steady state"
        )
        return f"{came}, and {LEAST_FIRST_TOKENS} take about {least_s:,.0f} s (--steady)"
    if point.balance is not None and abs(point.balance - 1.0) > LARGEST_IMBALANCE:
        held = f"{TOO_SHORT}the {point.steady_s:.0f} s of the steady state held {100 * point.balance:.0f} % of the prompts"
        return f"{held} that go with its answers: measure for longer (--steady)"
    if run.wanted and point.mean_running is not None and point.mean_running < LEAST_FILL * run.wanted:
        share = point.mean_running / run.wanted
        who = "ran" if point.running_by_server else "were being answered"
        seen = _why_few_ran(point, scraped)
        return f"{point.mean_running:.1f} requests {who} on average, {100 * share:.0f} % of the {run.wanted:,} wanted{seen}"
    if point.others_tokens:
        return (
            f"the server has other users: {point.others_tokens:,.0f} tokens were theirs while {point.tokens:,} were ours, "
            "and their energy cannot be told from ours"
        )
    if point.cached_share is not None and point.cached_share > _MOST_CACHED:
        return (
            f"{100 * point.cached_share:.1f} % of the prompts' tokens came from the server's prefix cache, and cost less "
            "than new ones: restart it without (vLLM: --no-enable-prefix-caching, SGLang: --disable-radix-cache), or send "
            "prompts that begin differently"
        )
    if not run.wanted and _falls_behind(run, point.begin_s, point.end_s):
        return "requests arrive faster than they are answered: the queue keeps growing"
    return ""


def _why_few_ran(point: MeasuredPoint, scraped: Scraped) -> str:
    """What the server's metrics say of why fewer requests ran than were sent; empty where they say nothing."""
    window = point.begin_s, point.end_s
    waiting, used = scraped.mean("waiting", *window), scraped.mean("cache_used", *window)
    preempted = scraped.rise("preemptions", *window)
    if not point.running_by_server or waiting is None:
        return ""
    if preempted is not None and preempted.by:
        return f": its key-value cache was full, and it preempted {counted(round(preempted.by), 'request')}"
    if waiting < 0.5:
        return (
            "; none waited in its queue: new ones were late, as the server or this machine was busy: shorter prompts "
            "(--prompt-tokens), or a free CPU"
        )
    full = "" if used is None else f" with its key-value cache {100 * used:.0f} % full"
    why = "" if used is None or used >= _FULL else ": it runs no more at once (vLLM: --max-num-seqs)"
    return f"; {waiting:.1f} waited in its queue{full}{why}"


def _made_for_others(run: Run, scraped: Scraped, begin_s: float, end_s: float) -> float:
    """Tokens beyond ours and those that were on their way at either end, between two samples of the server's counter."""
    made = scraped.rise("output_tokens", begin_s, end_s)
    if made is None or made.end_s <= made.begin_s:
        return 0.0
    ours = sum(stream.tokens().within(made.begin_s, made.end_s)[0] for stream in run.streams)
    running = mean_answered(run.streams, made.begin_s, made.end_s)
    excess = made.by - ours
    return excess if excess > _OTHERS_SHARE * ours + _ON_THEIR_WAY * max(running, 1.0) else 0.0


def _falls_behind(run: Run, begin_s: float, end_s: float) -> bool:
    """Whether more requests came in the steady state than ended, by a tenth and beyond chance.

    Both come at random, so that their difference varies by the root of their sum at most.
    """
    came = sum(begin_s < stream.sent_s <= end_s for stream in run.streams)
    ended = sum(stream.ended_s is not None and begin_s < stream.ended_s <= end_s for stream in run.streams)
    return came > 1.1 * ended and came - ended > _SIGMAS * (came + ended) ** 0.5


_KEPT_METRICS: tuple[Quantity, ...] = ("running", "waiting", "cache_used")


def point_of(run: Run, server: Server, scraped: Scraped, *, counts: bool, busy_before: float = 0.0) -> MeasuredPoint:
    """What a run tells.

    Args:
        run: under a load.
        server: it was on.
        scraped: of the server's metrics.
        counts: whether the server counts the tokens of prompts.
        busy_before: requests that it ran before the first was sent.

    Raises:
        ServerError: no request had an answer.
    """
    outcomes: Counter[str] = Counter(stream.outcome for stream in run.streams)
    if not any(stream.arrival_s for stream in run.streams):
        why = run.last_failure or "it was stopped early"
        raise ServerError(f"{server.url}: answered none of {counted(len(run.streams), 'request')}: {why}")
    begin_s = run.begin_s if run.begin_s is not None else run.over_s
    end_s = run.end_s if run.end_s is not None else begin_s
    steady_s = end_s - begin_s
    inside = [stream.tokens().within(begin_s, end_s) for stream in run.streams]
    tokens = sum(number for number, _ in inside)
    sent = [stream for stream in run.streams if begin_s <= stream.sent_s <= end_s]
    ttfts = np.asarray([stream.arrival_s[0] - stream.sent_s for stream in sent if stream.arrival_s])
    running, by_server = scraped.mean("running", begin_s, end_s), True
    if running is None and steady_s > 0.0:
        running, by_server = mean_answered(run.streams, begin_s, end_s), False
    late_s = float(np.percentile(run.late_s, 99.0)) if len(run.late_s) else 0.0
    gaps_s = np.concatenate([gaps for _, gaps in inside])
    counted_prompts = [stream.prompt_tokens for stream in run.streams if stream.prompt_tokens is not None]
    failed: dict[str, int] = {name: number for name, number in outcomes.items() if name not in {"done", "stopped"}}
    kept = [(scraped.names.get(name), scraped.mean(name, begin_s, end_s)) for name in _KEPT_METRICS]
    kept.append(("prefix_cache_hit_rate", scraped.cached_share()))
    point = MeasuredPoint(
        server=server, wanted=run.wanted, begin_s=begin_s, end_s=end_s,
        most_in_flight=most_in_flight(run.streams, run.over_s),
        sent=len(run.streams),
        sent_per_s=len(sent) / steady_s if steady_s > 0.0 else 0.0, ended=outcomes["done"], failed=failed,
        first_tokens=sum(bool(stream.arrival_s) and begin_s < stream.arrival_s[0] <= end_s for stream in run.streams),
        tokens=tokens,
        tokens_per_s=tokens / steady_s if steady_s > 0.0 else 0.0, mean_running=running, running_by_server=by_server,
        prompt_tokens=float(np.mean(counted_prompts)) if counted_prompts else None,
        output_tokens=_output_tokens(run.streams), ttft=percentiles(ttfts), itl=percentiles(gaps_s),
        end_to_end=_end_to_end(run, begin_s, end_s), gaps_s=gaps_s, ttfts_s=ttfts,
        metrics=tuple((name, value) for name, value in kept if name is not None and value is not None),
        cached_share=scraped.cached_share(),
        others_tokens=_made_for_others(run, scraped, begin_s, end_s), client_late_s=late_s, why_unstable="", fault=run.fault,
        notes=(),
    )  # fmt: skip
    return replace(
        point,
        notes=notes_on(point, run, counts=counts, busy_before=busy_before),
        why_unstable=why_unstable(point, run, scraped),
    )


def _end_to_end(run: Run, begin_s: float, end_s: float) -> Percentiles:
    """Lifetimes within the steady state; of requests that were waited for, to their ends."""
    streams = [stream for stream in run.streams if stream.outcome in {"done", "stopped"} and stream.sent_s <= end_s]
    sent = np.asarray([stream.sent_s for stream in streams])
    left = np.asarray([stream.ended_s if stream.ended_s is not None else run.over_s for stream in streams])
    done = np.asarray([stream.outcome == "done" for stream in streams], dtype=bool)
    if not run.drained:  # what ends after the window ends in a batch that is not refilled
        done &= left <= end_s
        left = np.minimum(left, end_s)
    return lifetimes(np.maximum(begin_s - sent, 0.0), left - sent, done)


def _output_tokens(streams: list[Stream]) -> float | None:
    """Mean length of answers; those stopped at the end were at least as long as they had become."""
    kept = [stream for stream in streams if stream.outcome in {"done", "stopped"} and stream.arrival_s]
    if not kept:
        return None
    done = np.asarray([stream.outcome == "done" for stream in kept], dtype=bool)
    lengths = np.asarray([float(stream.answer_tokens) for stream in kept])
    if all(
        stream.ask.exact and stream.answer_tokens == stream.ask.output_tokens for stream in kept if stream.outcome == "done"
    ):
        asked = [stream.ask.output_tokens for stream in kept if stream.ask.output_tokens is not None]
        if len(asked) == len(kept):
            return float(np.mean(asked))
    if not done.any():
        return None
    return lifetimes(np.zeros(len(kept)), lengths, done).mean_s or float(lengths[done].mean())

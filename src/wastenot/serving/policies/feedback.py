"""What measured latencies add to the clock that a profile says: up quickly where deadlines are missed, down slowly."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.serving.bench.server_reading import ServerReading
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.policies.recent_readings import quantile_since

JUDGED_OVER_S = 5.0
"""Over which latencies are judged, or since the last change where that is later."""
_LEAST_TOKENS, _LEAST_FIRST = 100.0, 20.0  # latencies that make a window worth judging
_SLACK = 0.9  # of a deadline, below which there is slack
_SLACK_S = 30.0  # that it has to last


@dataclass(slots=True)
class Feedback:
    """Settings above the one that the profile asks for.

    Attributes:
        steps: how many.
    """

    steps: int = 0
    _since: tuple[float, ServerReading] | None = None

    def see(
        self,
        at_s: float,
        now: ServerReading,
        lately: tuple[float, ServerReading],
        deadlines: Deadlines,
        ttft_s: float,
        most: int,
    ) -> None:
        """Judge the latest latencies.

        Args:
            at_s: when they were read.
            now: the latest reading.
            lately: the reading from which on they are judged.
            deadlines: to be kept.
            ttft_s: bound on the first token that the prompts have.
            most: steps there are.
        """
        if self._since is None:
            self._since = at_s, now
            return
        since_s, changed = self._since
        if _late(now, lately[1] if lately[0] > since_s else changed, deadlines, ttft_s):
            self.steps = min(2 * self.steps + 1, most)
            self._since = at_s, now
        elif at_s - since_s >= _SLACK_S:
            if _slack(now, changed, deadlines, ttft_s):
                self.steps = max(self.steps - 1, 0)
            self._since = at_s, now

    def restart(self) -> None:
        """Forget what was measured: of another server, or at the default clocks."""
        self.steps, self._since = 0, None


def _late(now: ServerReading, then: ServerReading, deadlines: Deadlines, ttft_s: float) -> bool:
    """Whether enough latencies have been counted to say that they miss a deadline."""
    tokens, tbt_s = quantile_since(now.tbt, then.tbt, deadlines.share)
    first, first_s = quantile_since(now.ttft, then.ttft, deadlines.share)
    return (tokens >= _LEAST_TOKENS and tbt_s is not None and tbt_s > deadlines.tbt_s) or (
        first >= _LEAST_FIRST and first_s is not None and first_s > ttft_s
    )


def _slack(now: ServerReading, then: ServerReading, deadlines: Deadlines, ttft_s: float) -> bool:
    """Whether all that has been counted is well within the deadlines."""
    _, tbt_s = quantile_since(now.tbt, then.tbt, deadlines.share)
    _, first_s = quantile_since(now.ttft, then.ttft, deadlines.share)
    return (tbt_s is None or tbt_s <= _SLACK * deadlines.tbt_s) and (first_s is None or first_s <= _SLACK * ttft_s)

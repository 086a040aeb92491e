"""Recommends how many instances of which degree there should be: more once needed, fewer when they no longer are."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wastenot.core.wording import counted
from wastenot.serving.cluster.recommended import Recommended, recommended
from wastenot.serving.cluster.seen_load import SeenLoad
from wastenot.serving.control.events import Event, Tell
from wastenot.serving.control.instance import Instance, Rules, words
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.recent_readings import LENGTHS_OVER_S, RATE_OVER_S

EVERY_S = 5.0
"""Between two looks at the load."""
_REMEMBERED_S = 300.0  # instances take minutes to start, so none is given up that the last minutes needed


@dataclass(slots=True)
class Recommender:
    """Looks at all instances together.

    Attributes:
        instances: that are there.
        engines: of which there could be more, one of each parallel degree.
        rules: deadlines and head-room.
        tell: is told what is recommended, when that changes.
        latest: recommendation.
    """

    instances: Sequence[Instance]
    engines: Sequence[Engine]
    rules: Rules
    tell: Tell
    latest: Recommended | None = None
    _loads: deque[tuple[float, float]] = field(default_factory=deque)
    _due_s: float = -math.inf

    def look(self, now_s: float) -> None:
        """Recommend, where it is time to."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + EVERY_S
        load = together(self.instances)
        if load is None:
            return
        self._loads.append((now_s, load.rate_per_s))
        while self._loads[0][0] < now_s - _REMEMBERED_S:
            self._loads.popleft()
        most = max(rate for _, rate in self._loads)
        found = recommended(replace(load, rate_per_s=most), self.engines, self.rules.deadlines, headroom=self.rules.headroom)
        if found is None or (self.latest and (found.instances, found.gpus) == (self.latest.instances, self.latest.gpus)):
            return
        self.latest = found
        self.tell(self._event(found, most))

    def _event(self, found: Recommended, rate_per_s: float) -> Event:
        now = Counter(each.engine.gpus for each in self.instances)
        there = ", ".join(f"{count} of {counted(gpus, 'GPU')}" for gpus, count in sorted(now.items()))
        evidence = self.engines[0].tables.evidence
        text = (
            f"recommended for {rate_per_s:.3g} requests/s: {counted(found.instances, 'instance')} of "
            f"{counted(found.gpus, 'GPU')} at {words(found.setting)}, about {found.power_w:,.0f} W by the profile "
            f"({evidence}); there are {there}"
        )
        values = {
            "instances": found.instances, "gpus": found.gpus, "core_mhz": found.setting.core_mhz,
            "power_w": round(found.power_w, 1), "profile_evidence": evidence, "rate_per_s": rate_per_s,
            "there": [{"gpus": gpus, "instances": count} for gpus, count in sorted(now.items())],
        }  # fmt: skip
        return Event("recommendation", text, values=values)


def together(instances: Sequence[Instance]) -> SeenLoad | None:
    """The load of all instances that are heard of, on the safe side of chance; ``None`` where none shows any.

    Requests are counted over all instances before chance is allowed for, so that many of them need no more than they do.
    """
    heard = [(each, each.policy.load) for each in instances if each.state == "controlled" and each.policy.load is not None]
    rates: list[tuple[float, SeenLoad]] = []
    total = []
    for seconds in (RATE_OVER_S, LENGTHS_OVER_S):
        counts = [each.policy.recent.come(seconds) for each, _ in heard]
        come = sum(count for count, _ in counts)
        rate = sum(count / over_s for count, over_s in counts)
        total.append(rate * (1.0 + (2.0 * math.sqrt(come) + 1.0) / come) if come > 0.0 else 0.0)
        rates = [(count / over_s, load) for (count, over_s), (_, load) in zip(counts, heard, strict=True)]
    weight = sum(rate for rate, _ in rates)
    if not weight > 0.0:
        return None

    def mean(name: str) -> float:
        return float(sum(getattr(load, name) * rate for rate, load in rates) / weight)

    longest = max(load.long_prompt_tokens for rate, load in rates if rate > 0.0)
    return SeenLoad(max(total), mean("prompt_tokens"), longest, mean("output_tokens"), mean("context"))

"""Recommends how many instances of which degree there should be: more once needed, fewer when they no longer are."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wastenot.core.setting import Setting, setting_text
from wastenot.core.wording import counted
from wastenot.serving.cluster.seen_load import SeenLoad, carried
from wastenot.serving.control.instance import Event, Instance, Rules, Tell
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.by_metrics import LENGTHS_OVER_S, RATE_OVER_S, safely_per_s

_MOST = 4096
_BEYOND = (1.0, 1.1, 1.25, 1.5, 2.0)  # times the fewest instances: more of them may draw less, at lower clocks


@dataclass(frozen=True, slots=True)
class Fleet:
    """Instances that share a load evenly. Their power is predicted by the engine's profile, not measured.

    Attributes:
        instances: how many.
        gpus: of each.
        setting: of their clocks.
        power_w: of all of them.
    """

    instances: int
    gpus: int
    setting: Setting
    power_w: float


def recommended(load: SeenLoad, engines: Sequence[Engine], deadlines: Deadlines, *, headroom: float = 0.15) -> Fleet | None:
    """The instances of least power that take a load; ``None`` where no number of them keeps the deadlines.

    Args:
        load: of all instances together.
        engines: of which they may be, one of each parallel degree.
        deadlines: to be kept.
        headroom: share of each deadline that is to be left over.
    """
    found: list[Fleet] = []
    for engine in engines:

        def shared(counts: Sequence[int], engine: Engine = engine) -> list[Fleet | None]:
            """So many instances each, counts descending."""
            rates = np.array([load.rate_per_s / count for count in counts])
            state = carried(load, engine, deadlines, headroom=headroom, rate_per_s=rates)
            return [
                None if at < 0 else Fleet(
                    count, engine.gpus, engine.tables.settings[at], count * float(state.power_w[at, place])
                )
                for place, (count, at) in enumerate(zip(counts, state.cheapest(deadlines.share), strict=True))
            ]  # fmt: skip

        powers = [2**power for power in range(_MOST.bit_length() - 1, -1, -1)]
        enough = [count for count, each in zip(powers, shared(powers), strict=True) if each is not None]
        if not enough:
            continue
        high = enough[-1]
        low = high // 2  # too few, or none
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if shared([middle])[0] is None else (low, middle)
        tried = sorted({max(round(high * more), 1) for more in _BEYOND}, reverse=True)
        found.extend(each for each in shared(tried) if each is not None)
    return min(found, key=lambda each: (each.power_w, each.instances * each.gpus), default=None)


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
    latest: Fleet | None = None
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

    def _event(self, found: Fleet, rate_per_s: float) -> Event:
        now = Counter(each.engine.gpus for each in self.instances)
        there = ", ".join(f"{count} of {counted(gpus, 'GPU')}" for gpus, count in sorted(now.items()))
        evidence = self.engines[0].tables.evidence
        text = (
            f"recommended for {rate_per_s:.3g} requests/s: {counted(found.instances, 'instance')} of "
            f"{counted(found.gpus, 'GPU')} at {setting_text(found.setting, 'default clocks')}, about "
            f"{found.power_w:,.0f} W according to the profile ({evidence}); there are {there}"
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
    counted: list[tuple[float, float]] = []
    for seconds in (RATE_OVER_S, LENGTHS_OVER_S):
        counts = [each.policy.recent.come(seconds) for each, _ in heard]
        come, rate = sum(count for count, _ in counts), sum(count / over_s for count, over_s in counts)
        counted.append((come, come / rate if rate > 0.0 else seconds))
        rates = [(count / over_s, load) for (count, over_s), (_, load) in zip(counts, heard, strict=True)]
    weight = sum(rate for rate, _ in rates)
    if not weight > 0.0:
        return None

    def mean(name: str) -> float:
        return float(sum(getattr(load, name) * rate for rate, load in rates) / weight)

    longest = max(load.long_prompt_tokens for rate, load in rates if rate > 0.0)
    return SeenLoad(safely_per_s(*counted), mean("prompt_tokens"), longest, mean("output_tokens"), mean("context"))

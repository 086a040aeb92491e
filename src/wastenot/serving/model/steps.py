"""Steps of an engine that were measured one by one: the rows that a profile is made from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.core.wording import counted

Phase = Literal["prefill", "decode"]
_TOO_FAST = 0.5  # of the time of a step that does no more


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step and what it cost.

    Attributes:
        phase: ``prefill``, or ``decode``.
        sequences: prompts that were prefilled at once, or sequences that decoded.
        tokens: new tokens of each; 1 in a decode step.
        context: tokens of each that were in the cache before.
        time_s: of the step.
        power_w: mean of all GPUs; NaN where it was not measured.
        setting: of the GPUs.
        gpus: parallel degree.
    """

    phase: Phase
    sequences: float
    tokens: float
    context: float
    time_s: float
    power_w: float = math.nan
    setting: Setting = AUTO
    gpus: int = 1

    @property
    def new_tokens(self) -> float:
        """Of the whole step."""
        return self.sequences * self.tokens

    @property
    def attended(self) -> float:
        """Pairs of a new token and one that it attends to (of a prompt, half of its own tokens on average)."""
        own = self.tokens / 2 if self.phase == "prefill" else 0.0
        return self.new_tokens * (self.context + own)


def averaged(steps: Iterable[MeasuredStep]) -> tuple[MeasuredStep, ...]:
    """Repeats of the same step as one, with mean time and power, in the order in which they first came."""
    repeats: dict[MeasuredStep, list[MeasuredStep]] = defaultdict(list)
    for step in steps:
        repeats[replace(step, time_s=0.0, power_w=0.0)].append(step)
    return tuple(
        replace(
            what,
            time_s=sum(each.time_s for each in those) / len(those),
            power_w=sum(each.power_w for each in those) / len(those),
        )
        for what, those in repeats.items()
    )


def is_repeat(one: MeasuredStep, other: MeasuredStep) -> bool:
    """Whether two steps are the same but for what they cost."""
    return replace(one, time_s=0.0, power_w=0.0) == replace(other, time_s=0.0, power_w=0.0)


def settings_of(steps: Iterable[MeasuredStep]) -> tuple[Setting, ...]:
    """Their settings by rising core clock, automatic ones last."""
    return tuple(sorted({each.setting for each in steps}, key=rising))


def rising(setting: Setting) -> tuple[float, ...]:
    """Sorts settings by rising clocks, automatic ones last."""
    return tuple(
        math.inf if part is None else part for part in (setting.core_mhz, setting.memory_mhz, setting.power_limit_w)
    )


def implausible(steps: Iterable[MeasuredStep]) -> tuple[MeasuredStep, ...]:
    """Steps that took less than half as long as others that do no more: runs that failed or were not whole.

    Of two that contradict each other, the one that contradicts more steps is named.
    """
    groups: dict[tuple[Phase, Setting, int], list[MeasuredStep]] = defaultdict(list)
    for step in averaged(steps):
        groups[step.phase, step.setting, step.gpus].append(step)
    found: list[MeasuredStep] = []
    for rows in groups.values():
        sequences, tokens, context, time = (
            np.array([getattr(each, name) for each in rows]) for name in ("sequences", "tokens", "context", "time_s")
        )
        at_least = (sequences[:, None] >= sequences) & (tokens[:, None] >= tokens) & (context[:, None] >= context)
        against = at_least & (time[:, None] < _TOO_FAST * time)  # (more, less): more done in far less time
        while against.any():
            contradictions = against.sum(axis=0) + against.sum(axis=1)
            worst = int(contradictions.argmax())
            found.append(rows[worst])
            against[worst, :] = against[:, worst] = False
    return tuple(found)


def check_power(steps: Iterable[MeasuredStep]) -> None:
    """Refuse steps without power, of which no energy can be told."""
    without = [each for each in steps if not np.isfinite(each.power_w)]
    if without:
        phases = " and ".join(sorted({each.phase for each in without}))
        raise BadInputError(
            f"power: {counted(len(without), f'{phases} step')} in the table without it, so the energy is unknown; measure it"
        )

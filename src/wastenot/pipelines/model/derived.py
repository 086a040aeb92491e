"""Profiles derived from others: with recomputation of their own, with the backward split in two or joined.

Each is exact or says in the profile's notes what it assumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wastenot.core.errors import BadInputError
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.model.schedule import PipelineSchedule

HALF = 0.5
_AS_A_FORWARD = "recomputation takes what a forward takes"


def suited(profile: PipelineProfile, schedule: PipelineSchedule) -> PipelineProfile:
    """The profile with the instructions that a schedule runs and no others, derived where they were not measured.

    Raises:
        BadInputError: they cannot be derived from what the profile has.
    """
    names = {each.name for each in schedule.instructions}
    has = {name for _, name in profile.ways}
    if "backward" in names and "backward" not in has and "backward_weight" in has:
        profile = with_joined_backward(profile)
    if "recomputation" in names and "recomputation" not in has:
        profile = with_own_recomputation(profile)
    if "backward_input" in names and "backward_input" not in has:
        profile = with_split_backward(profile)
    run = {(each.stage, each.name) for each in schedule.instructions}
    if set(profile.ways) <= run or profile.stages != schedule.stages:
        return profile
    return replace(
        profile,
        ways={key: each for key, each in profile.ways.items() if key in run},
        baseline={key: each for key, each in profile.baseline.items() if key in run},
    )


def with_own_recomputation(profile: PipelineProfile) -> PipelineProfile:
    """Recomputation as an instruction: a forward once more, taken out of the backward where the backward includes it.

    Raises:
        BadInputError: no forward, or the backward includes a recomputation and is no longer than the forward.
    """
    found: _Found = {}
    for stage in range(profile.stages):
        forward = _Work.of(profile, stage, "forward")
        found[stage, "recomputation"] = forward
        if profile.recomputes:
            found[stage, "backward"] = _Work.of(profile, stage, "backward").plus(forward, -1.0)
    return _derived(profile, found, (_AS_A_FORWARD,), recomputes=False)


def with_split_backward(profile: PipelineProfile, input_fraction: float = HALF) -> PipelineProfile:
    """Backwards in two parts, for the input and for the weights, at any setting in the same proportion.

    Args:
        profile: with whole backwards; what they recompute belongs to the part for the input.
        input_fraction: that the part for the input has of time and energy. Matrix products need as many operations for
            the one as for the other (Qi et al., ICLR 2024, table 1), so that it is half by default.

    Raises:
        BadInputError: the fraction is not between 0 and 1, or there is no backward.
    """
    if not 0.0 < input_fraction < 1.0:
        raise BadInputError(f"`input_fraction` {input_fraction:g}: must be between 0 and 1")
    found: _Found = {}
    for stage in range(profile.stages):
        backward, again = _Work.of(profile, stage, "backward"), None
        if profile.recomputes:
            again = _Work.of(profile, stage, "forward")
            backward = backward.plus(again, -1.0)
        part = backward.scaled(input_fraction)
        found[stage, "backward"] = None
        found[stage, "backward_input"] = part if again is None else part.plus(again)
        found[stage, "backward_weight"] = backward.scaled(1.0 - input_fraction)
    note = f"gradients for the input take {100 * input_fraction:g} % of a backward, those of weights the rest"
    return _derived(profile, found, (_AS_A_FORWARD, note) if profile.recomputes else (note,), profile.recomputes)


def with_joined_backward(profile: PipelineProfile) -> PipelineProfile:
    """Whole backwards from split ones, both parts at the same setting."""
    found: _Found = {}
    for stage in range(profile.stages):
        parts = [_Work.of(profile, stage, name) for name in ("backward_input", "backward_weight")]
        found[stage, "backward"] = parts[0].plus(parts[1])
        found |= {(stage, part.name): None for part in parts}
    return _derived(profile, found, (), profile.recomputes)


@dataclass(frozen=True, slots=True)
class _Work:
    """An instruction of a stage: time, energy and label of each way, and time and energy at the default clocks."""

    where: str
    name: str
    ways: Sequence[tuple[float, float, object]]
    default: tuple[float, float]

    @classmethod
    def of(cls, profile: PipelineProfile, stage: int, name: str) -> _Work:
        where = f"profile {profile.name}"
        if (stage, name) not in profile.ways:
            raise BadInputError(f"{where}: has no {name} of stage {stage} to derive from")
        default = profile.baseline[stage, name]
        return cls(f"{where}: stage {stage}", name, listed_ways(profile.ways[stage, name]), default)

    def scaled(self, factor: float) -> _Work:
        ways = [(factor * time_s, factor * energy_j, label) for time_s, energy_j, label in self.ways]
        return replace(self, ways=ways, default=(factor * self.default[0], factor * self.default[1]))

    def plus(self, other: _Work, sign: float = 1.0) -> _Work:
        """With another one at the same setting, or without it."""
        others = {label: (time_s, energy_j) for time_s, energy_j, label in other.ways}
        both = [
            (time_s + sign * others[label][0], energy_j + sign * others[label][1], label)
            for time_s, energy_j, label in self.ways
            if label in others
        ]
        if not both:
            raise BadInputError(f"{self.where}: {self.name} and {other.name} have no setting in common to derive from")
        if min(min(time_s, energy_j) for time_s, energy_j, _ in both) <= 0.0:
            raise BadInputError(f"{self.where}: {self.name} takes no more than {other.name}, which it should include")
        default = self.default[0] + sign * other.default[0], self.default[1] + sign * other.default[1]
        return replace(self, ways=both, default=default)


_Found = dict[tuple[int, str], _Work | None]


def _derived(profile: PipelineProfile, found: _Found, notes: Sequence[str], recomputes: bool) -> PipelineProfile:
    """The profile with what was found, without what is ``None``; how far that can be off is not known as before."""
    ways, baseline = dict(profile.ways), dict(profile.baseline)
    for key, work in found.items():
        if work is None:
            del ways[key], baseline[key]
        else:
            ways[key], baseline[key] = choice(work.ways), work.default
    lost = ("derived instructions have no standard errors, so nothing is promised",) if profile.errors is not None else ()
    notes = (*profile.notes, *notes, *lost)
    return replace(profile, ways=ways, baseline=baseline, recomputes=recomputes, errors=None, notes=notes)

"""Profiles derived from others: with recomputation of their own, with the backward split in two or joined.

Each is exact or says in the profile's notes what it assumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wastenot.core.errors import BadInputError
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.model.schedule import PipelineSchedule

_Key = tuple[int, str]
_Numbers = tuple[float, float]
HALF = 0.5


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
    ways, baseline = dict(profile.ways), dict(profile.baseline)
    for stage in range(profile.stages):
        ways[stage, "recomputation"] = _of(profile, stage, "forward")
        baseline[stage, "recomputation"] = baseline[stage, "forward"]
        if profile.recomputes:
            ways[stage, "backward"] = _together(profile, stage, "backward", "forward", -1.0)
            baseline[stage, "backward"] = _sum(baseline[stage, "backward"], baseline[stage, "forward"], -1.0)
    note = "recomputation takes what a forward takes"
    return _derived(profile, ways, baseline, note, recomputes=False)


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
    if profile.recomputes:
        alone = with_own_recomputation(profile)
        split = with_split_backward(alone, input_fraction)
        ways, baseline = dict(split.ways), dict(split.baseline)
        for stage in range(profile.stages):
            ways[stage, "backward_input"] = _together(split, stage, "backward_input", "recomputation")
            again = baseline.pop((stage, "recomputation"))
            baseline[stage, "backward_input"] = _sum(baseline[stage, "backward_input"], again)
            del ways[stage, "recomputation"]
        return replace(split, ways=ways, baseline=baseline, recomputes=True)
    ways, baseline = dict(profile.ways), dict(profile.baseline)
    for stage in range(profile.stages):
        whole = _of(profile, stage, "backward")
        time_s, energy_j = baseline.pop((stage, "backward"))
        del ways[stage, "backward"]
        for name, part in (("backward_input", input_fraction), ("backward_weight", 1.0 - input_fraction)):
            ways[stage, name] = _scaled(whole, part)
            baseline[stage, name] = (part * time_s, part * energy_j)
    note = f"gradients for the input take {100 * input_fraction:g} % of a backward, those of weights the rest"
    return _derived(profile, ways, baseline, note, recomputes=False)


def with_joined_backward(profile: PipelineProfile) -> PipelineProfile:
    """Whole backwards from split ones, both parts at the same setting."""
    ways, baseline = dict(profile.ways), dict(profile.baseline)
    for stage in range(profile.stages):
        ways[stage, "backward"] = _together(profile, stage, "backward_input", "backward_weight")
        baseline[stage, "backward"] = _sum(baseline.pop((stage, "backward_input")), baseline.pop((stage, "backward_weight")))
        del ways[stage, "backward_input"], ways[stage, "backward_weight"]
    return _derived(profile, ways, baseline, None, profile.recomputes)


def _derived(
    profile: PipelineProfile,
    ways: Mapping[_Key, Frontier],
    baseline: Mapping[_Key, _Numbers],
    note: str | None,
    recomputes: bool,
) -> PipelineProfile:
    """The profile with other instructions; how far they can be off is not known as the measured ones' errors are."""
    lost = ("derived instructions have no errors, so that nothing is promised",) if profile.errors is not None else ()
    notes = (*profile.notes, *((note,) if note else ()), *lost)
    return replace(profile, ways=ways, baseline=baseline, recomputes=recomputes, errors=None, notes=notes)


def _of(profile: PipelineProfile, stage: int, name: str) -> Frontier:
    if (stage, name) not in profile.ways:
        raise BadInputError(f"profile {profile.name}: has no {name} of stage {stage} to derive from")
    return profile.ways[stage, name]


def _sum(one: _Numbers, other: _Numbers, sign: float = 1.0) -> _Numbers:
    return one[0] + sign * other[0], one[1] + sign * other[1]


def _scaled(frontier: Frontier, factor: float) -> Frontier:
    return choice([(factor * time_s, factor * energy_j, label) for time_s, energy_j, label in listed_ways(frontier)])


def _together(profile: PipelineProfile, stage: int, name: str, other: str, sign: float = 1.0) -> Frontier:
    """One instruction and another at the same setting, or the one without the other."""
    others = {label: (time_s, energy_j) for time_s, energy_j, label in listed_ways(_of(profile, stage, other))}
    both = [
        (*_sum(each[:2], others[each[2]], sign), each[2])
        for each in listed_ways(_of(profile, stage, name))
        if each[2] in others
    ]
    where = f"profile {profile.name}: stage {stage}"
    if not both:
        raise BadInputError(f"{where}: {name} and {other} have no setting in common to derive from")
    if min(time_s for time_s, _, _ in both) <= 0.0 or min(energy_j for _, energy_j, _ in both) <= 0.0:
        raise BadInputError(f"{where}: {name} takes no more than {other}, which it should include")
    return choice(both)

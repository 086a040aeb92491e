"""Profiles derived from others: with recomputation of their own, with backwards split or joined, or beside forwards.

Each is exact or says in the profile's notes what it assumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wastenot.core.errors import BadInputError
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.model.schedule import OVERLAPPED, PipelineSchedule

HIDDEN = 0.5
"""Of the shorter of a forward and a backward that run at once, what takes no time of its own, where no pair was measured.

Midway between running one after the other (0) and hiding the shorter one behind the longer (1). How much can be hidden
depends on what leaves the GPU idle: DeepSeek-V3 hides its all-to-all communication, which takes about half of its passes
(technical report, 2024, §3.2.1). Kernels that fill the GPU hide nothing."""
_AS_A_FORWARD = "recomputation takes what a forward takes"


def suited(profile: PipelineProfile, schedule: PipelineSchedule, hidden: float = HIDDEN) -> PipelineProfile:
    """The profile with the instructions that a schedule runs and no others, derived where they were not measured.

    Args:
        profile: what was measured.
        schedule: the order of instructions.
        hidden: see :func:`with_pairs`, for pairs of a forward and a backward that were not measured.

    Raises:
        BadInputError: they cannot be derived from what the profile has.
    """
    beside = {each.stage: each.beside.stage for each in schedule.instructions if each.beside is not None}
    names = {each.name for each in schedule.instructions}
    has = {name for _, name in profile.ways}
    paired = not beside or {(stage, OVERLAPPED) for stage in beside} <= set(profile.ways)
    whole, split = "backward" in names or not paired, "backward_input" in names
    if whole and "backward" not in has and "backward_weight" in has:
        profile = with_joined_backward(profile, keep=split)
    if "recomputation" in names and "recomputation" not in has:
        profile = with_own_recomputation(profile)
    if split and "backward_input" not in has:
        profile = with_split_backward(profile, keep=whole)
    if not paired:
        profile = with_pairs(profile, beside, hidden)
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


def with_split_backward(profile: PipelineProfile, *, keep: bool = False) -> PipelineProfile:
    """Backwards in two halves, for the input and for the weights: both need as many operations for matrix products.

    Source: Qi et al., ICLR 2024, table 1.

    Args:
        profile: with whole backwards; what they recompute belongs to the part for the input.
        keep: the whole ones, too, for schedules that run both.

    Raises:
        BadInputError: there is no backward.
    """
    found: _Found = {}
    for stage in range(profile.stages):
        backward, again = _Work.of(profile, stage, "backward"), None
        if profile.recomputes:
            again = _Work.of(profile, stage, "forward")
            backward = backward.plus(again, -1.0)
        part = backward.scaled(0.5)
        if not keep:
            found[stage, "backward"] = None
        found[stage, "backward_input"] = part if again is None else part.plus(again)
        found[stage, "backward_weight"] = part
    note = "gradients for the input take 50 % of a backward, those of weights the rest"
    return _derived(profile, found, (_AS_A_FORWARD, note) if profile.recomputes else (note,), profile.recomputes)


def with_joined_backward(profile: PipelineProfile, *, keep: bool = False) -> PipelineProfile:
    """Whole backwards from split ones, both parts at the same setting; the parts go, unless they are to be kept."""
    found: _Found = {}
    for stage in range(profile.stages):
        parts = [_Work.of(profile, stage, name) for name in ("backward_input", "backward_weight")]
        found[stage, "backward"] = parts[0].plus(parts[1])
        found |= {} if keep else {(stage, part.name): None for part in parts}
    return _derived(profile, found, (), profile.recomputes)


def with_pairs(profile: PipelineProfile, beside: Mapping[int, int], hidden: float = HIDDEN) -> PipelineProfile:
    """Forwards and backwards at once, as one instruction with one setting, where they were only measured by themselves.

        time    =  longer + (1 − hidden) · shorter
        energy  =  sum − waiting power · hidden · shorter

    between the longer of both and their sum. What a GPU draws above its power while waiting is work, which both have to do;
    the waiting power is drawn for a shorter time.

    Args:
        profile: with forwards and whole backwards.
        beside: stage of the backward by that of the forward.
        hidden: fraction of the shorter one that takes no time of its own; nothing was measured of it.

    Raises:
        BadInputError: the fraction is not from 0 to 1, or a forward or backward is missing.
    """
    if not 0.0 <= hidden <= 1.0:
        raise BadInputError(f"`overlap` {hidden:g}: must be from 0 to 1, such as 0.5")
    found: _Found = {
        (forward, OVERLAPPED): _Work.of(profile, forward, "forward").beside(
            _Work.of(profile, backward, "backward"), hidden, profile.waiting_w
        )
        for forward, backward in beside.items()
    }
    note = (
        f"a forward and a backward at once: {100 * hidden:g} % of the shorter one is assumed to take no time, and their "
        "energy above that of waiting to add up"
    )
    return _derived(profile, found, (note,), profile.recomputes)


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

    def beside(self, other: _Work, hidden: float, waiting_w: float) -> _Work:
        """With another one at once, at the same setting."""
        both = self.plus(other)
        own, others = ({label: time_s for time_s, _, label in each.ways} for each in (self, other))

        def less(time_s: float, energy_j: float, shorter_s: float) -> tuple[float, float]:
            return time_s - hidden * shorter_s, energy_j - waiting_w * hidden * shorter_s

        ways = [(*less(time_s, energy_j, min(own[label], others[label])), label) for time_s, energy_j, label in both.ways]
        if min(energy_j for _, energy_j, _ in ways) <= 0.0:
            raise BadInputError(f"{self.where}: {self.name} and {other.name} draw less than a GPU that waits")
        return replace(both, ways=ways, default=less(*both.default, min(self.default[0], other.default[0])))


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

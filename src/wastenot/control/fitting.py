"""Whether a plan fits: the card it was made for, and the job that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import TYPE_CHECKING

from wastenot.control.hooks import Seen
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.vendors import model_in, model_words
from wastenot.devices.protocol import Device, Identity
from wastenot.workloads.models import MODELS

if TYPE_CHECKING:
    from wastenot.planning.plan import Plan
    from wastenot.planning.schedule import Schedule

_PARAMETERS_DIFFER = 0.1  # relative; implementations pad tables and tie or do not tie the last layer
_TOKENS_DIFFER = 0.05
_HALF = ("bfloat16", "float16")
_OTHER_TIME = 1.6  # a workload whose iteration is longer or shorter by this factor is not the plan's
_OTHER_SHARE = 0.15  # of an iteration, by which a pass may be longer or shorter


def schedule_of(plan: Plan, path: str) -> Schedule:
    """The schedule to carry out.

    Raises:
        BadInputError: the plan has none.
    """
    if plan.schedule is None:
        raise BadInputError(f"{path}: has no schedule to apply; make the plan again with 'wastenot kernel plan'")
    return plan.schedule


def check_named_once(gpus: Sequence[Device]) -> None:
    """Refuse GPUs of which one is given twice, by a BadInputError."""
    identities = [gpu.identity.unique_id for gpu in gpus]
    twice = next((one for one in identities if identities.count(one) > 1), None)
    if twice is not None:
        raise BadInputError(f"`device`: {twice} is given twice")


def check_may_set(gpus: Sequence[Device], shown: str = "set") -> None:
    """Refuse GPUs whose clocks this process may not set.

    Args:
        gpus: to set.
        shown: what a dry run shows of settings: those that would be ``set``, or ``tried``.

    Raises:
        ClocksRefusedError: says what would be needed.
    """
    for gpu in gpus:
        refusal = gpu.clocks.refusal()
        if refusal is not None:
            raise ClocksRefusedError(
                f"{gpu.identity.name}: clocks cannot be set: {refusal} (`dry_run` shows what would be {shown})"
            )


def check_card(made_for: str, path: str, card: Identity) -> str | None:
    """Refuse a plan of another kind of card.

    Args:
        made_for: the device that the plan was made for.
        path: of its file.
        card: that it is to be applied on.

    Returns:
        What is worth telling where the plan was made on another card of the same model, else ``None``.

    Raises:
        BadInputError: the plan was made for another model, or for a simulated GPU.
    """
    if made_for in (card.label, card.name):
        return None
    if made_for.startswith("sim:") or card.name.startswith("sim:"):
        if made_for == card.name.partition("@")[0]:
            return None
        raise BadInputError(
            f"{path}: is a plan for {made_for}, and {card.name} is another device; plan a sweep of {card.name}"
        )
    model = model_in(made_for)
    if model_words(model) <= model_words(card.model):
        if model == made_for:
            return None
        return f"{path}: was made on another card of this model, {made_for.removeprefix(model).strip()}"
    raise BadInputError(f"{path}: is a plan for {model}, and {card.name} is {card.model}; plan a sweep of {card.name}")


def why_not_the_job(plan: Plan, seen: Seen) -> str | None:
    """Why a job is not the plan's workload, by what its model looks like; ``None`` where it may be.

    :func:`why_other_iterations` judges by the time of its iterations and passes, whatever the model.

    Args:
        plan: at work.
        seen: of the job.
    """
    run = plan.run
    if run is None or run.model not in MODELS:
        return None
    shape, model = run.shape, MODELS[run.model]
    if shape.phase != "training":
        return f"the plan is for {shape.phase}, but the job trains"
    if seen.parameters is not None and shape.tensor_parallel == 1:
        planned = model.parameters
        if abs(seen.parameters / planned - 1.0) > _PARAMETERS_DIFFER:
            return (
                f"the model has {seen.parameters:,} parameters, but {run.model} {planned:,}; a plan of its own begins with "
                "wn.capture() or wastenot kernel capture"
            )
    if seen.tokens is not None and abs(seen.tokens / shape.rows - 1.0) > _TOKENS_DIFFER:
        return f"an iteration takes {seen.tokens:,} tokens, but the plan is for {shape.rows:,}"
    if seen.dtype in _HALF and shape.dtype in ("fp32", "tf32"):
        return f"the model is in {seen.dtype}, but the plan is for {shape.dtype}"
    return None


def why_other_iterations(schedule: Schedule, iteration_s: float, passes: Mapping[int, Sequence[float]]) -> str | None:
    """Why what runs is not the plan's workload, by its iterations at the default clocks; ``None`` where it may be.

    Args:
        schedule: of the plan.
        iteration_s: that an iteration takes.
        passes: when markers were reached after the begin of their iteration, by their index in the schedule.
    """
    planned_s = schedule.rungs[-1].time_s
    if not 1.0 / _OTHER_TIME < iteration_s / planned_s < _OTHER_TIME:
        return f"an iteration takes {iteration_s:.3g} s at the default clocks, but the plan's takes {planned_s:.3g} s"
    for place, marker in enumerate(schedule.markers):
        seen = passes.get(place)
        if not seen:
            continue
        share, planned = median_high(seen) / iteration_s, marker.after_s / planned_s
        if abs(share - planned) > _OTHER_SHARE:
            return f"'{marker.name}' begins after {share:.0%} of an iteration, but the plan says {planned:.0%}"
    needed = {segment.begins for rung in schedule.rungs for segment in rung.segments}
    places = {marker.name: index for index, marker in enumerate(schedule.markers)}
    missing = next((name for name in needed if places[name] != 0 and places[name] not in passes), None)
    return None if missing is None else f"it never reaches '{missing}', where the plan changes clocks"

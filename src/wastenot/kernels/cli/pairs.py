"""``wastenot kernel pairs``: kernels that would run well concurrently, and what running light kernels first would save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.pages.formatting import percent, quantity
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import DtypeOption, JsonOption, StudyOption, WorkloadOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.kernels.model.order import CarryOver, LoopOrder
    from wastenot.kernels.model.pairs import Pairs
    from wastenot.study.store import Study
    from wastenot.study.sweep import Sweep
    from wastenot.workloads.bound import Roofline


def pairs(
    study: StudyOption,
    workload: WorkloadOption = None,
    device: Annotated[
        str | None,
        option(
            "Device whose peaks and power limit are used; default: the study's.", "NAME", autocompletion=completing.simulated
        ),
    ] = None,
    power_limit: Annotated[
        float | None, option("Power limit of the card, instead of the device's.", "W", parser=quantities.power)
    ] = None,
    most: Annotated[int, option("Number of pairs to show.", "N")] = 10,
    dtype: DtypeOption = "bf16",
    as_json: JsonOption = False,
) -> None:
    """Find kernels with complementary power.

    Shows upper bounds on what running them concurrently, or light kernels before heavy ones, would save.
    """
    from wastenot.core.values import as_values
    from wastenot.kernels.model.pairs import complementary_pairs
    from wastenot.meters.tasks import tasks_in_study
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json

    if most < 1:
        raise BadInputError(f"--most {most}: must be at least 1")
    source = open_study(study)
    sweep = source.read(workload, "ssp")
    name = device or sweep.device
    limit_w = _limit(sweep, device, power_limit)
    candidates = complementary_pairs(
        sweep,
        limit_w,
        specs={task.name: task.steps[0][0] for task in tasks_in_study(source, sweep).tasks if task.is_kernel},
        roofline=_roofline(name, dtype, device is not None),
        memory_power_w=_memory_power(source, sweep),
    )
    carry_over, loops = _order(source, sweep)
    if as_json:
        print_json(
            "pairs",
            {"workload": sweep.workload, "device": sweep.device, "origin": sweep.origin, "limit_w": candidates.limit_w,
             "shared_w": candidates.shared_w, "told_by": candidates.told_by, "dependencies": "unknown",
             "kernels": [as_values(one) | {"power_w": one.power_w} for one in candidates.kernels],
             "pairs": [as_values(pair) | {"iteration_j": pair.iteration_j} for pair in candidates.pairs[:most]],
             "carry_over": None if carry_over is None else as_values(carry_over),
             "loops": [as_values(loop) | {"saved_j": loop.saved_j} for loop in loops]},
        )  # fmt: skip
    else:
        console().print(_pairs_text(sweep, candidates, most))
        console().print(_order_text(sweep, carry_over, loops))


def _limit(sweep: Sweep, device: str | None, stated_w: float | None) -> float:
    """The power limit: as given, else that of a simulated device, else the highest power measured."""
    from wastenot.devices.open import open_device

    if stated_w is not None:
        return stated_w
    name = device or (sweep.device if sweep.device.startswith("sim:") else None)
    limits = None if name is None else open_device(name).clocks.power_limits_w()
    return float((sweep.energy_j / sweep.time_s).max()) if limits is None else limits[1]


def _roofline(device: str, dtype: str, named: bool) -> Roofline | None:
    from wastenot.workloads.bound import find_roofline

    try:
        return find_roofline(device, dtype)
    except BadInputError:
        if named and not device.endswith(".toml"):
            raise
        return None


def _memory_power(source: Study, sweep: Sweep) -> dict[str, float]:
    powers_w: dict[str, list[float]] = {}
    for measurement in source.measurements(sweep.workload, sweep.state, sweep.granularity):
        if measurement.setting.is_auto and measurement.memory_power_w is not None:
            powers_w.setdefault(measurement.kernel, []).append(measurement.memory_power_w)
    return {kernel: sum(watts) / len(watts) for kernel, watts in powers_w.items()}


def _order(source: Study, sweep: Sweep) -> tuple[CarryOver | None, tuple[LoopOrder, ...]]:
    """The carry-over and what the order of kernels is worth, if the study has energies in context."""
    from wastenot.kernels.model.order import fit_carry_over, light_first

    try:
        carry_over = fit_carry_over(sweep, source.read(sweep.workload, "context", sweep.granularity))
    except BadInputError:
        return None, ()
    return carry_over, light_first(sweep, carry_over) if carry_over.known else ()


def _pairs_text(sweep: Sweep, candidates: Pairs, most: int) -> RenderableType:
    """The best pairs, and what the bounds assume."""
    from wastenot.kernels.model.pairs import Pair
    from wastenot.pages.table import Listed
    from wastenot.terminal.tables import Group, Text, headline, listed

    time_s = {one.kernel: one.time_s for one in candidates.kernels}
    whole_j = sum(one.count * one.energy_j for one in candidates.kernels)
    fields: tuple[Listed[Pair], ...] = (
        Listed("compute-bound", lambda pair: pair.compute, numeric=False),
        Listed("memory-bound", lambda pair: pair.memory, numeric=False),
        Listed("pairs", lambda pair: f"{pair.times:,}"),
        Listed("one after another", lambda pair: quantity(time_s[pair.compute] + time_s[pair.memory], "s", 3)),
        Listed("concurrently, at least", lambda pair: quantity(pair.together_s, "s", 3)),
        Listed("headroom", lambda pair: quantity(pair.headroom_w, "W", 3)),
        Listed("saves at most", lambda pair: quantity(pair.iteration_j, "J", 3)),
        Listed("of the iteration", lambda pair: percent(pair.iteration_j / whole_j)),
    )
    table = listed(candidates.pairs[:most], fields)
    head = headline(sweep.workload, sweep.device, sweep.origin, "kernels with complementary power, at auto")
    note = (
        f"Classified by {candidates.told_by}. Limit {candidates.limit_w:.0f} W; at most {candidates.shared_w:.0f} W, the "
        "least power of any kernel, is shared by kernels that run concurrently. Upper bounds, assuming no interference "
        "and no data dependencies. A kernel appears in several pairs but can be used in only one."
    )
    none = "there are no complementary kernels: all are compute-bound or all are memory-bound"
    return Group(head, "", table if candidates.pairs else none, "", Text(note, style="yellow"))


def _order_text(sweep: Sweep, carry_over: CarryOver | None, loops: tuple[LoopOrder, ...]) -> RenderableType:
    """What running light kernels first would save."""
    from wastenot.terminal.tables import Group, Text

    if carry_over is None:
        how = f"wastenot kernel sweep {sweep.workload} --device DEVICE --study STUDY --in-context"
        return Group("", f"The value of reordering is unknown without energies in context; measure them: {how}")
    share = f"{carry_over.share:.1%} ± {carry_over.share_error:.1%}"
    fitted = (
        f"After a heavier kernel, a lighter one draws an extra {share} of the difference, decaying over "
        f"{quantity(carry_over.lasts_s, 's', 2)} (fitted to {counted(carry_over.loops, 'loop')})"
    )
    if not carry_over.known:
        return Group("", Text(f"{fitted}: within the noise, so the order makes no difference here."))
    lines = [
        f"  {loop.name} × {loop.times}: {quantity(loop.given_j, 'J', 3)} per round in the given order, at least "
        f"{quantity(loop.best_j, 'J', 3)} in any order; saves at most {quantity(loop.saved_j, 'J', 3)} per iteration"
        for loop in loops
    ]
    orders = [f"  {loop.name}, light first: {', '.join(loop.best)}" for loop in loops]
    note = "Upper bounds: data dependencies, which the workload does not contain, would rule out most of these orders."
    return Group("", Text(f"{fitted}."), *map(Text, lines), Text(note, style="yellow"), *map(Text, orders))

"""``wastenot kernel iteration``: a whole iteration under the power limit, and what a plan gains there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from wastenot.pages.formatting import change, changes, fraction_of_whole, megahertz, quantity
from wastenot.terminal import quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import JsonOption, SweepOptions
from wastenot.workloads.identity import STATE_DESCRIPTIONS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.kernels.natural.iteration import Known, PredictedIteration, PredictedPlan
    from wastenot.study.sweep import Sweep


def iteration(
    source: SweepOptions,
    power_limit: Annotated[
        float | None,
        option(
            "Mean power that the card allows; default: what kernels that reach the limit by themselves are held to.",
            "W",
            parser=quantities.power,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        option(
            "Temperature of the GPU in the iteration, in °C; by default the mean of the study.",
            "C",
            parser=quantities.celsius,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict a whole iteration under the power limit.

    In an iteration all kernels run near one clock, which the limit sets. Also shows how much faster the iteration would
    be, and how much energy it would use, with a clock cap for each kernel.
    """
    from wastenot.kernels.natural.iteration import iteration_of_study
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json

    sweep, predicted = iteration_of_study(
        open_study(source.study), source.workload, source.energies, limit_w=power_limit, temperature_c=temperature
    )
    if as_json:
        print_json("iteration", _document(sweep, predicted))
    else:
        console().print(_text(sweep, predicted, temperature))


def _document(sweep: Sweep, predicted: PredictedIteration) -> dict[str, object]:
    from wastenot.core.values import as_values

    def plan(found: PredictedPlan) -> dict[str, object]:
        return {
            "time_s": found.plan.iteration.time_s,
            "energy_j": found.plan.iteration.energy_j,
            "power_w": found.plan.iteration.power_w,
            "lower_bound": found.plan.lower_bound,
            "time_change": as_values(found.time_change),
            "energy_change": as_values(found.energy_change),
            "core_mhz": dict(zip(predicted.whole.costs.kernels, found.plan.ceiling_mhz, strict=True)),
        }

    costs, default = predicted.whole.costs, predicted.whole.default
    return {
        "workload": sweep.workload,
        "device": sweep.device,
        "origin": sweep.origin,
        "state": sweep.state,
        "power_limit_w": predicted.whole.limit_w,
        "limited": default.limited,
        "core_mhz": as_values(predicted.core_mhz),
        "time_s": as_values(predicted.time_s),
        "energy_j": as_values(predicted.energy_j),
        "alone": {"time_s": predicted.alone_s, "energy_j": predicted.alone_j},
        "extrapolated": [{"kernel": name, "from_mhz": low, "to_mhz": high} for name, low, high in predicted.extrapolated],
        "kernels": [
            {"kernel": kernel, "count": count, "time_s": time_s, "power_w": power_w}
            for kernel, count, time_s, power_w in zip(
                costs.kernels, costs.count.tolist(), default.kernel_s.tolist(), default.kernel_w.tolist(), strict=True
            )
        ],
        "fastest": plan(predicted.fastest),
        "least_energy": plan(predicted.saving),
    }


def _text(sweep: Sweep, predicted: PredictedIteration, temperature: float | None) -> RenderableType:
    """The iteration, the two plans, and each kernel in it."""
    from wastenot.terminal.tables import Group, RichTable, Text, headline, plain_table

    default = predicted.whole.default
    kernels = plain_table(("kernel",), ("count", "of the time", "time", "power", "fastest, MHz", "least energy, MHz"))
    for row, kernel in enumerate(sweep.kernels):
        kernels.add_row(
            Text(kernel.name),
            f"{kernel.count}",
            fraction_of_whole(kernel.count * float(default.kernel_s[row]) / default.time_s),
            quantity(float(default.kernel_s[row]), "s", 4),
            quantity(float(default.kernel_w[row]), "W", 3),
            megahertz(predicted.fastest.plan.ceiling_mhz[row]),
            megahertz(predicted.saving.plan.ceiling_mhz[row]),
        )
    summary = RichTable.grid(padding=(0, 2))
    summary.add_column(style="bold", no_wrap=True)
    summary.add_column(no_wrap=True)
    summary.add_column()
    held = "the power limit holds it there" if default.limited else "the power limit does not hold it down"
    alone = (
        f"kernels on their own add up to {change(predicted.alone_s / default.time_s - 1)} time and "
        f"{change(predicted.alone_j / default.energy_j - 1)} energy"
    )
    summary.add_row("Clock", _known(predicted.core_mhz, "MHz", 4), f"{held}: {predicted.whole.limit_w:.0f} W on average")
    summary.add_row("Time", _known(predicted.time_s, "s", 4), alone)
    summary.add_row("Energy", _known(predicted.energy_j, "J", 4), quantity(default.power_w, "W", 3))
    for name, plan in (("Fastest plan", predicted.fastest), ("Least energy", predicted.saving)):
        value = f"time {change(plan.time_change.value)}, energy {change(plan.energy_change.value)}"
        summary.add_row(name, value, _interval(plan))
    head = headline(
        sweep.workload, sweep.device, sweep.origin, f"a whole iteration, from kernels {STATE_DESCRIPTIONS[sweep.state]}"
    )
    notes = [Text(f"note: {note}", style="yellow") for note in _notes(predicted, temperature)]
    return Group(head, "", kernels, "", summary, "", *notes)


def _notes(predicted: PredictedIteration, temperature: float | None) -> list[str]:
    """What to know before relying on it."""
    notes = []
    if predicted.whole.default.limited and temperature is None:
        notes.append(
            "at the temperature at which kernels were measured; a continuously loaded GPU may be warmer and slower: "
            "--temperature"
        )
    if predicted.extrapolated:
        names = [name for name, _, _ in predicted.extrapolated]
        listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        notes.append(
            f"{len(names)} of {len(predicted.whole.curves)} kernels were not seen at {predicted.core_mhz.value:.0f} MHz "
            f"({listed}); their curves are extrapolated, and the errors allow for it"
        )
    if predicted.whole.default.limited:
        notes.append(
            "the plans assume that clocks switch instantly between kernels, and that the regulator only considers mean power"
        )
    return notes


def _known(known: Known, unit: str, digits: int) -> str:
    value = f"{known.value:.0f} MHz" if unit == "MHz" else quantity(known.value, unit, digits)
    return f"{value} ± {known.error / known.value:.2%}" if known.error > 0.0 else value


def _interval(plan: PredictedPlan) -> str:
    """95 % intervals of both changes."""
    time, energy = plan.time_change, plan.energy_change
    return f"95 %: {changes((time.low, time.high))}, {changes((energy.low, energy.high))}" if time.error > 0.0 else ""

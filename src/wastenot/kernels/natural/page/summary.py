"""What natural clocks say, in tables; for a terminal and for the page."""

from __future__ import annotations

from wastenot.kernels.forecast.result import Forecast, Quantiles
from wastenot.kernels.natural.overview import BOUNDS, CapPlan, KernelAtNaturalClocks, NaturalOverview
from wastenot.pages.formatting import change, changes, digits_within, fraction_of_whole, percent
from wastenot.pages.table import Listed, Table, listing

_SHOWN_ERROR = 0.005  # of what a kernel loses, below which rounding hides it


def forecast_table(predicted: Forecast | None, *, beyond: bool = False) -> Table | None:
    """The forecast before and after natural measurements; ``None`` where there is none.

    Args:
        predicted: the forecast.
        beyond: only of clocks beyond those seen: plans of caps within them are told elsewhere.
    """
    if predicted is None or predicted.natural is None:
        return None
    natural, slower = predicted.natural, f"{percent(predicted.max_slowdown, 0)} slower"
    clock = "any core clock" if predicted.core_only else "any clock"
    any_clock = [
        (f"{clock}, {slower}", predicted.energy_change),
        (f"{clock}, {slower}, from the default clocks alone", natural.without),
    ]
    within = [
        (f"a cap for each kernel within the clocks seen, {percent(each.max_slowdown, 0)} slower", each.energy_change)
        for each in natural.within_range
    ]
    fields: tuple[Listed[tuple[str, Quantiles]], ...] = (
        Listed("What", lambda row: row[0], numeric=False),
        Listed("Median", lambda row: row[1].median, change),
        Listed("80 %", lambda row: row[1].central_80[0], text_of=lambda row: changes(row[1].central_80)),
        Listed("95 %", lambda row: row[1].central_95[0], text_of=lambda row: changes(row[1].central_95)),
    )
    note = (
        "Planned separately for each of many possible GPUs, as if one knew which is yours; the plans of caps above are made "
        "once for all of them, so they save less, and are what to count on. Within the clocks seen, the errors of the "
        f"curves and {percent(natural.locked_power_sd, 1)} (assumed) of power at a locked clock are included; lower "
        "clocks rely on a model."
    )
    if beyond:
        note = "Planned separately for each of many possible GPUs. Clocks below those seen rely on a model."
    rows = any_clock if beyond else [*within, *any_clock]
    return listing("Forecast of the energy change, if clocks could be set", rows, fields, note)


def plans_table(overview: NaturalOverview) -> Table:
    """What plans of caps are expected to do."""
    fields: tuple[Listed[CapPlan], ...] = (
        Listed("Slowdown limit", lambda plan: plan.max_slowdown, text_of=lambda plan: percent(plan.max_slowdown, 0)),
        Listed("Caps", _caps, numeric=False),
        Listed(
            "Energy",
            lambda plan: plan.energy_change,
            text_of=lambda plan: change(plan.energy_change, digits_within(plan.energy_change_interval)),
        ),
        Listed("95 %", _within, unknown=""),
        Listed("Time", lambda plan: plan.time_change, change),
    )
    note = (
        f"Expected from measurements at natural clocks. One cap: of a whole iteration, in which {common_clock(overview)}. "
        "Where each kernel has a cap of its own: of kernels by themselves, as if switching were free."
    )
    plans = [plan for plan in overview.plans if plan.energy_change or plan.cap_mhz is not None]
    for limit in dict.fromkeys(plan.max_slowdown for plan in overview.plans if plan not in plans):
        if all(plan.max_slowdown != limit for plan in plans):
            note += f" At most {percent(limit, 0)} slower, no cap helps." if limit else " Without a slowdown, no cap helps."
    return listing("Plans of caps within the clocks seen", plans, fields, note)


def common_clock(overview: NaturalOverview) -> str:
    """At which clock the kernels of an iteration run, and why."""
    warm = "" if overview.temperature_c is None else f" at {overview.temperature_c:.0f} °C"  # a warmer GPU is held lower
    why = f"where the power limit holds them{warm}" if overview.iteration_limited else "with power to spare"
    return f"all kernels run near {overview.iteration_mhz:,.0f} MHz, {why}"


def _within(plan: CapPlan) -> str | None:
    return None if plan.energy_change_interval is None else changes(plan.energy_change_interval)


def _caps(plan: CapPlan) -> str:
    if plan.granularity == "iteration":
        return f"one for all: {'none helps' if plan.cap_mhz is None else f'{plan.cap_mhz:,.0f} MHz'}"
    return f"each {plan.granularity} its own"


def kernels_table(overview: NaturalOverview) -> Table:
    """Every kernel: its clock by itself, the clocks it was seen at, what it loses there, and its cap."""
    fields: tuple[Listed[KernelAtNaturalClocks], ...] = (
        Listed("Kernel", lambda one: one.kernel, numeric=False),
        Listed("Calls", lambda one: one.count, "{:,}".format),
        Listed("% of energy", lambda one: one.energy_share, text_of=lambda one: fraction_of_whole(one.energy_share)),
        Listed(
            "Own clock, MHz",
            lambda one: one.auto_mhz,
            text_of=lambda one: f"{one.auto_mhz:,.0f}{' *' if one.limited else ''}",
        ),
        Listed("Seen at, MHz", lambda one: one.low_mhz, text_of=lambda one: f"{one.low_mhz:,.0f} to {one.high_mhz:,.0f}"),
        Listed("Time lost per clock lost", lambda one: one.slope, text_of=_loss),
        Listed("Time", lambda one: one.time_at_low, text_of=lambda one: change(one.time_at_low, 1)),
        Listed("Energy", lambda one: one.energy_at_low, text_of=lambda one: change(one.energy_at_low, 1)),
        Listed("Cap, MHz", lambda one: one.cap_mhz[1], "{:,.0f}".format),
    )
    note = (
        "Own: the kernel's clock without a cap, * where the power limit holds it down. Time lost: 0 % where a lower clock "
        "costs no time, 100 % where time is inversely proportional to the clock, with its 95 % error from 0.5 %. Time and "
        "energy: of a call at the lowest clock seen, compared with the default clocks. Cap: in the plan at "
        f"{percent(BOUNDS[1], 0)} slowdown; – where it has none."
    )
    by_energy = sorted(overview.kernels, key=lambda one: -one.energy_share)
    remarks = [f" {one.kernel}: {'; '.join(one.notes)}." for one in by_energy if one.notes]
    return listing("Kernels", by_energy, fields, note + "".join(remarks))


def _loss(kernel: KernelAtNaturalClocks) -> str:
    if kernel.loses == "unknown":
        return "–"
    error = kernel.slope_interval[1] - kernel.slope
    return f"{percent(kernel.slope, 0)}{f' ± {percent(error, 1)}' if error >= _SHOWN_ERROR else ''}"

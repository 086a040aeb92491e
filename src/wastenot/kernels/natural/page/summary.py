"""What natural clocks say, in tables; for a terminal and for the page."""

from __future__ import annotations

from wastenot.kernels.forecast.forecast import Quantiles
from wastenot.kernels.natural.overview import BOUNDS, CapPlan, KernelAtNaturalClocks, NaturalOverview
from wastenot.pages.formatting import change, percent
from wastenot.pages.table import Column, Row, Table
from wastenot.planning.headline import Interval


def forecast_table(overview: NaturalOverview) -> Table | None:
    """The forecast before and after natural measurements; ``None`` where there is none."""
    predicted = overview.forecast
    if predicted is None or predicted.natural is None:
        return None
    natural = predicted.natural
    rows = [
        _forecast_row(f"caps within the clocks seen, {percent(each.max_slowdown, 0)} slower", each.energy_change)
        for each in natural.within_range
    ]
    slower = f"{percent(predicted.max_slowdown, 0)} slower"
    rows.append(_forecast_row(f"any core clock, {slower}", predicted.energy_change))
    rows.append(_forecast_row(f"any core clock, {slower}, from the default clocks alone: before", natural.without))
    return Table(
        "Forecast of the energy change, if clocks could be set",
        (Column("What"), Column("Median", numeric=True), Column("80 %", numeric=True), Column("95 %", numeric=True)),
        tuple(rows),
        "Planned anew for each of many possible GPUs, the plans of caps above once for all of them: the two differ by some "
        "tenths of a point. Within the clocks seen, the errors of the curves count and "
        f"{percent(natural.locked_power_sd, 1)} (assumed) of power at a locked clock; lower clocks rest on a model.",
    )


def _forecast_row(what: str, spread: Quantiles) -> Row:
    (low80, high80), (low95, high95) = spread.central_80, spread.central_95
    texts = (what, change(spread.median), f"{change(low80)} to {change(high80)}", f"{change(low95)} to {change(high95)}")
    return Row(None, texts, (what, spread.median, low80, low95))


def plans_table(overview: NaturalOverview) -> Table:
    """What plans of caps are expected to do."""
    return Table(
        "Plans of caps within the clocks seen",
        (Column("Slowdown allowed", numeric=True), Column("Caps"), Column("Energy", numeric=True),
         Column("95 %", numeric=True), Column("Time", numeric=True)),
        tuple(map(_plan_row, overview.plans)),
        "Expected from measurements at natural clocks; no clock was set, and switching between kernels is taken as free.",
    )  # fmt: skip


def _plan_row(plan: CapPlan) -> Row:
    caps = {"kernel": "each kernel its own", "pass": "each pass its own"}.get(plan.granularity, "one for all")
    if plan.granularity == "iteration":
        caps += ": none helps" if plan.cap_mhz is None else f": {plan.cap_mhz:.0f} MHz"
    texts = (
        percent(plan.max_slowdown, 0), caps, change(plan.energy_change), _within(plan.energy_change_interval, ""),
        change(plan.time_change),
    )  # fmt: skip
    return Row(None, texts, (plan.max_slowdown, caps, plan.energy_change, None, plan.time_change))


def kernels_table(overview: NaturalOverview) -> Table:
    """Every kernel: its clock by itself, the clocks it was seen at, what it loses there, and its cap."""
    return Table(
        "Kernels",
        (Column("Kernel"), Column("Calls", numeric=True), Column("% of energy", numeric=True),
         Column("Own MHz", numeric=True), Column("Seen at MHz", numeric=True), Column("Loses", numeric=True),
         Column("Time", numeric=True), Column("Energy", numeric=True), Column("Cap MHz", numeric=True)),
        tuple(map(_kernel_row, overview.kernels)),
        "Own: the clock of the kernel by itself, * where the power limit holds it down. Loses: 0 % where a lower clock "
        "costs no time, 100 % where time grows as the clock falls, with its 95 % error. Time and energy: of a call at the "
        "lowest clock seen, against the default clocks. Cap: in the plan at "
        f"{percent(BOUNDS[1], 0)} slowdown; – where it has none.",
    )  # fmt: skip


def _kernel_row(kernel: KernelAtNaturalClocks) -> Row:
    error = percent(kernel.slope_interval[1] - kernel.slope, 1)
    loss = "–" if kernel.loses == "unknown" else f"{percent(kernel.slope, 0)} ± {error}"
    cap = kernel.cap_mhz[1]
    texts = (
        kernel.kernel,
        f"{kernel.count:,}",
        percent(kernel.energy_share, 1),
        f"{kernel.auto_mhz:.0f}{' *' if kernel.limited else ''}",
        f"{kernel.low_mhz:.0f} to {kernel.high_mhz:.0f}",
        loss,
        change(kernel.time_at_low, 1),
        change(kernel.energy_at_low, 1),
        "–" if cap is None else f"{cap:.0f}",
    )
    values = (
        kernel.kernel, kernel.count, kernel.energy_share, kernel.auto_mhz, kernel.low_mhz, kernel.slope, kernel.time_at_low,
        kernel.energy_at_low, cap,
    )  # fmt: skip
    return Row(None, texts, values, "; ".join(kernel.notes) or None)


def _within(interval: Interval | None, before: str = ", ") -> str:
    return "" if interval is None else f"{before}{change(interval[0])} to {change(interval[1])}"

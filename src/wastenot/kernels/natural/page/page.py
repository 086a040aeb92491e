"""The page of what natural clocks say: in ten seconds what a cap would save, which one and why; figures; tables."""

from __future__ import annotations

import shlex

from wastenot.core.setting import Setting
from wastenot.core.vendors import commands, undo_commands
from wastenot.kernels.natural.overview import BOUNDS, CapPlan, Loss, NaturalOverview
from wastenot.kernels.natural.page.figures import (
    curves_figure,
    joules_figure,
    loss_figure,
    saving_figure,
    subtitle,
    wake_figure,
)
from wastenot.kernels.natural.page.summary import forecast_table, kernels_table, plans_table
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import SPACE, change, digits_within, pace, percent, quantity, saved_range
from wastenot.pages.page import Folded, Page
from wastenot.pages.panel import Line, Next, Panel

_SAVES = 5e-5  # of the energy, below which a plan is shown to save nothing


def story_of(overview: NaturalOverview) -> tuple[str, str, tuple[Panel, ...]]:
    """The headline, how sure it is, and three panels: one cap for all, a cap for each kernel, and what both rest on."""
    one, each = _plans(overview, "iteration"), _plans(overview, "kernel")
    limit = f"{percent(BOUNDS[1], 0)} slower"
    best = next((plan for plan in (*one[:1], *each[:1]) if _saves(plan)), None)
    if best is None:
        effect = f"No cap within the clocks seen would save energy at most {limit}"
    else:
        what = "A cap for each kernel" if best.cap_mhz is None else f"One cap of {_mhz(best.cap_mhz)}"
        effect = f"{what} would save {_saving(best)} of the energy, {pace(best.time_change, 1)}"
    verdict = "expected from clocks that the GPU passed through by itself; none was set"
    return effect, verdict, (_one_cap(overview, one), _own_caps(each), _basis(overview))


def _plans(overview: NaturalOverview, granularity: str) -> list[CapPlan]:
    """Those that may take longer, the strictest first."""
    return [plan for plan in overview.plans if plan.granularity == granularity and plan.max_slowdown > 0.0]


def _one_cap(overview: NaturalOverview, plans: list[CapPlan]) -> Panel:
    title = "One cap for everything"
    shown = next((plan for plan in plans if plan.cap_mhz is not None and _saves(plan)), None)
    if shown is None or shown.cap_mhz is None:
        return Panel(title, "none helps", "within the clocks seen.")
    simulated = overview.origin == "simulated"  # whose numbers are no reason to set a card's clock
    run = () if simulated else commands(overview.device, Setting(core_mhz=shown.cap_mhz))
    lines = [Line("Expected", f"{_interval(shown)} (95{SPACE}%)")]
    lines += [
        Line(f"At most {percent(plan.max_slowdown, 0)} slower", f"{_mhz(plan.cap_mhz)}, {_energy(plan)}")
        for plan in plans
        if plan is not shown and plan.cap_mhz is not None
    ]
    how = "; measure it on your GPU before setting it there" if simulated else ", which root can set today:"
    limit = percent(shown.max_slowdown, 0)
    text = f"with a cap of {_mhz(shown.cap_mhz)} on the core clock, at most {limit} slower{how}"
    value = f"{_saving(shown)} saved"
    undo = undo_commands(run) if run else ()
    return Panel(title, value, text if run else f"{text}.", commands=run, undo=undo, lines=tuple(lines))


def _own_caps(plans: list[CapPlan]) -> Panel:
    title = "A cap for each kernel, if switching were free"
    if not any(map(_saves, plans)):
        return Panel(title, "saves no more", "within the clocks seen.")
    first, *others = plans
    lines = [Line("Expected", f"{_interval(first)} (95{SPACE}%)")]
    lines += [Line(f"At most {percent(plan.max_slowdown, 0)} slower", _energy(plan)) for plan in others]
    return Panel(
        title, f"{_saving(first)} saved", f"at most {percent(first.max_slowdown, 0)} slower.",
        lines=tuple(lines), note="Cannot be had today: drivers need milliseconds to switch between kernels.",
    )  # fmt: skip


def _basis(overview: NaturalOverview) -> Panel:
    low, high = min(each.low_mhz for each in overview.kernels), max(each.high_mhz for each in overview.kernels)
    shares: dict[Loss, float] = {"nothing": 0.0, "all": 0.0}
    for kernel in overview.kernels:
        shares[kernel.loses] = shares.get(kernel.loses, 0.0) + kernel.energy_share
    held = "held there by the power limit" if overview.iteration_limited else "below the power limit"
    lines = [
        Line("Clock of a whole iteration, predicted", f"{_mhz(overview.iteration_mhz)}, {held}"),
        Line("Kernels that lose almost nothing at a lower clock", f"{percent(shares['nothing'], 0)} of the energy"),
    ]
    if shares["all"] > 0.0:
        lines.append(Line("Kernels that lose nearly all", f"{percent(shares['all'], 0)} of the energy"))
    seen = f"of {len(overview.kernels)} kernels at {low:,.0f} to {_mhz(high)}; no clock was set."
    return Panel("Basis", f"{quantity(overview.seconds, 's', 3)} of device time", seen, lines=tuple(lines))


def _saves(plan: CapPlan) -> bool:
    return plan.energy_change < -_SAVES


def _mhz(clock: float | None) -> str:
    return "no cap" if clock is None else f"{clock:,.0f}{SPACE}MHz"


def _energy(plan: CapPlan) -> str:
    """What a plan saves, or with its sign what it changes."""
    return f"{_saving(plan)} saved" if _saves(plan) else f"energy {change(plan.energy_change)}"


def _interval(plan: CapPlan) -> str:
    return "not known" if plan.energy_change_interval is None else saved_range(plan.energy_change_interval)


def _saving(plan: CapPlan) -> str:
    """What a plan saves, to the digits that its interval allows."""
    return percent(-plan.energy_change, digits_within(plan.energy_change_interval))


def next_step(workload: str, device: str) -> Next:
    """Find and prove such a cap on a running program: one that serves, where the workload is a phase of serving."""
    limit, program = f"{100.0 * BOUNDS[1]:.3g}%", "serve.py" if workload.endswith(("-decode", "-prefill")) else "train.py"
    then = (
        f"Try such caps on a running program, yours in place of {program}, with the slowdown guarded and the saving measured"
    )
    on = f" --device {shlex.quote(device)}" if device.startswith("sim:") else ""
    return Next(then, (f"wastenot tune{on} --max-slowdown {limit} -- python {program}",))


def natural_figures(overview: NaturalOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    saving = saving_figure(overview)
    saved = () if saving is None else (saving,)
    return *saved, curves_figure(overview), joules_figure(overview), loss_figure(overview), wake_figure(overview)


def natural_page(overview: NaturalOverview) -> Page:
    """The page of what natural clocks say.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    auto = f"{quantity(overview.auto_time_s, 's', 4)}, {quantity(overview.auto_energy_j, 'J', 4)}, kernel by kernel"
    made_from = [("Device", overview.device), ("Iteration at the default clocks", auto)]
    if overview.temperature_c is not None:
        made_from.append(("Temperature", f"{overview.temperature_c:.0f} °C on average"))
    effect, verdict, panels = story_of(overview)
    figures = natural_figures(overview)
    return Page(
        verb="natural clocks",
        brand="natural clocks",
        title=(overview.workload, f"on {overview.device}"),
        origin=overview.origin,
        effect=effect,
        verdict=verdict,
        panels=panels,
        next_step=next_step(overview.workload, overview.device),
        figures=figures[:-2],
        tables=[],
        folded=Folded(
            "All plans, each kernel, how it was measured, and a forecast",
            "what kernels lose at lower clocks, the clock after matrix products, and what other clocks may save",
            figures[-2:],
            [
                ("plans", plans_table(overview)),
                ("kernels", kernels_table(overview)),
                ("forecast", forecast_table(overview.forecast, beyond=True)),
            ],
        ),
        tone="promised",
        panel_kinds=("today", "rest", "rest"),
        notes=overview.notes,
        about=subtitle(overview),
        device=overview.device,
        made_from=made_from,
        cannot_tell=overview.cannot_tell,
    )  # fmt: skip

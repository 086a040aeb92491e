"""What the figures of a job share: colours, units, axes, and what they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.core.wording import counted
from wastenot.jobs.model.objective import objective_of
from wastenot.jobs.page.words import is_weighted
from wastenot.jobs.plan.overview import JobOverview
from wastenot.pages.formatting import SPACE
from wastenot.pages.optional_imports import load

WIDE = 915
OUTCOME_COLORS = {
    "reached": "#2f6fde",
    "stopped": "#e08a00",
    "missed": "#d6483b",
    "diverged": "#b04bb8",
    "no memory": "#8a9a00",
    "lost": "#7a8699",
    "failed": "#7c5cff",
    "running": "#0f9b8e",
}
_ROOM = 0.06  # at both ends of an axis, as a fraction of what it holds
_WIDELY = 4.0  # ratio of the greatest to the least, from which on an axis is logarithmic


def about(overview: JobOverview) -> str:
    """Of what a figure is, and where its numbers come from."""
    runs = counted(len(overview.history), "run").replace(" ", SPACE)
    return f"{overview.terms.name} on {overview.device} · {runs} · {overview.origin} numbers"


def time_unit(longest_s: float) -> tuple[str, float]:
    """A unit for an axis of times, and how many of it make a second."""
    for least_s, unit, unit_s in ((5400.0, "h", 3600.0), (300.0, "min", 60.0), (0.5, "s", 1.0)):
        if longest_s >= least_s:
            return unit, 1.0 / unit_s
    return "ms", 1e3


def energy_unit(highest_j: float) -> tuple[str, float]:
    """A unit for an axis of energies, and how many of it make a joule."""
    for least_j, unit, unit_j in ((2e9, "GJ", 1e9), (2e6, "MJ", 1e6), (2e4, "kJ", 1e3)):
        if highest_j >= least_j:
            return unit, 1.0 / unit_j
    return "J", 1.0


def cost_axis(overview: JobOverview, highest: float) -> tuple[str, float]:
    """What an axis of costs is called, with its unit, and how many of that make one.

    Weighted costs are neither energy nor time: they are shown as per cent of the default's, where that is known.
    """
    if is_weighted(overview.terms) and overview.default is not None:
        return "energy and time of a run, weighted, % of the default", 100.0 / overview.default.cost(overview.terms)
    objective = objective_of(overview.terms)
    unit, factor = time_unit(highest) if objective.saves == "time" else energy_unit(highest)
    return f"{'cost' if objective.saves == 'both' else objective.quantity} of a run, {unit}", factor


def scale_of(values: Sequence[float]) -> Any:
    """A scale that holds all values with some room, logarithmic where they differ widely."""
    alt = load("altair")
    low, high = min(values), max(values)
    if low > 0.0 and high / low > _WIDELY:
        factor = (high / low) ** _ROOM
        return alt.Scale(type="log", domain=[low / factor, high * factor], nice=False)
    spread = (high - low) or 0.1 * abs(high) or 1.0
    return alt.Scale(domain=[low - 1.5 * _ROOM * spread, high + 1.5 * _ROOM * spread], nice=False, zero=False)


def sizes_axis(field: str, sizes: Sequence[int], *, channel: str = "X") -> Any:
    """An axis of batch sizes, evenly spaced by their logarithms, with a tick at each as far as there is room."""
    alt = load("altair")
    every = max(1, -(-len(sizes) // 16))
    room = (sizes[-1] / sizes[0]) ** 0.06 if len(sizes) > 1 else 1.5
    return getattr(alt, channel)(
        f"{field}:Q",
        title="batch size",
        scale=alt.Scale(type="log", base=2, domain=[sizes[0] / room, sizes[-1] * room], nice=False),
        axis=alt.Axis(values=list(sizes[::every]), format=",d", grid=False),
    )

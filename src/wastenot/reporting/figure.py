"""A figure: a Vega-Lite specification with the words around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.planning.plan import Plan
from wastenot.reporting.optional_imports import load


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure without title and colours, which the page and the files add in their own way.

    Attributes:
        name: stem of its files.
        title: what it shows.
        subtitle: of which workload and device, and where the numbers come from.
        note: how to read it and what is left out, or why there is no figure.
        specification: Vega-Lite; ``None`` where there is nothing to draw.
    """

    name: str
    title: str
    subtitle: str
    note: str
    specification: dict[str, Any] | None


def make_figure(plan: Plan, name: str, title: str, note: str, chart: Any | None) -> Figure:
    """A figure of an Altair chart, or of none; the subtitle always says where the numbers come from."""
    subtitle = f"{plan.workload} on {plan.device} · {plan.origin} numbers"
    specification: dict[str, Any] | None = None if chart is None else chart.to_dict()
    if specification is not None:
        specification.pop("config", None)  # Altair's own; ours comes from the theme
    return Figure(name, title, subtitle, note, specification)


def inline(rows: Sequence[Mapping[str, object]]) -> Any:
    """Rows as data of a chart; no table library is needed for this."""
    return load("altair").InlineData(values=[dict(row) for row in rows])

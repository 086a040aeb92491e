"""Policies beside each other, of one engine or of a cluster: a bar of energy for each, and how many requests were late.

policy  ┃▬▬▬▬▬▬▬▬▬▬▬  297 mJ              ┃ ●    ┊       0.06 %
policy  ┃▬▬▬▬▬▬▬  223 mJ, 24.9 % saved    ┃  ●   ┊       0.14 %
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.pages.figure import energy_axis, inline, layered, name_axis, tooltips
from wastenot.pages.formatting import percent, quantity
from wastenot.pages.optional_imports import load

_WIDE, _LATE, _STEP = 880, 210, 26  # of names and both panels; of the second; of a row
_LETTER, _MOST_NAME = 6.4, 240  # pixels
_ROOM_FOR_LABELS = 1.55  # beside bars
_ROOM_FOR_LATE = 1.5
_LINEAR = 0.1  # per cent of late requests up to which the axis is about linear


@dataclass(frozen=True, slots=True)
class PolicyBar:
    """What is drawn of a policy.

    Attributes:
        policy: its name.
        color: of it in all figures of the page.
        energy_j: per token; ``least_j`` and ``most_j`` over seeds.
        saved: in words; empty for the one that others are compared with.
        late: fraction of requests that missed a deadline.
        attains: whether so few missed one that its saving counts.
    """

    policy: str
    color: str
    energy_j: float
    least_j: float
    most_j: float
    saved: str
    late: float
    attains: bool


def policies_chart(bars: Sequence[PolicyBar], *, allowed: float, late: str, bound_j: float | None = None) -> Any:
    """A row for each policy.

    Args:
        bars: in the order they are shown.
        allowed: fraction of requests that may be late.
        late: what these are, as the title of their axis.
        bound_j: energy per token that no policy can do without, where that is known.
    """
    alt = load("altair")
    rows = [
        {
            "index": index,
            "policy": bar.policy,
            "energy": bar.energy_j,
            "least": bar.least_j,
            "most": bar.most_j,
            "failed": not bar.attains,
            "late": 100.0 * bar.late,
            "label": ", ".join(filter(None, (quantity(bar.energy_j, "J", 3), bar.saved))),
            "short": bar.saved or quantity(bar.energy_j, "J", 3),
            "text": percent(bar.late, 2),
        }
        for index, bar in enumerate(bars)
    ]
    names = [bar.policy for bar in bars]
    width = min(round(_LETTER * max(map(len, names))), _MOST_NAME)
    most = max(bar.most_j for bar in bars)
    unit, in_unit = energy_axis(most)
    energies = alt.Scale(domain=[0.0, _ROOM_FOR_LABELS * most], nice=False)
    x = alt.X(
        "energy:Q", title=f"energy per token, {unit}", scale=energies, axis=alt.Axis(tickCount=5, grid=False, **in_unit)
    )
    y = alt.Y("index:O", title=None, axis=name_axis(names, width))
    bare = alt.Y("index:O", title=None, axis=alt.Axis(labels=False, ticks=False, domain=False, grid=False))
    tip = tooltips({"policy:N": "policy", "label:N": "energy per token", "text:N": "late"})
    scale = alt.Scale(domain=list(range(len(bars))), range=[bar.color for bar in bars])
    color = alt.Color("index:O", scale=scale, legend=None)
    opacity = alt.condition("datum.failed", alt.value(0.35), alt.value(1.0))
    chart = alt.Chart(inline(rows))
    energy = [
        chart.mark_bar(height=_STEP * 0.6).encode(x=x, y=y, color=color, opacity=opacity, tooltip=tip),
        chart.mark_rule(style="interval").encode(x=alt.X("least:Q"), x2=alt.X2("most:Q"), y=y),
        chart.mark_text(style="label", align="left", dx=8).encode(
            x=alt.X("most:Q", scale=energies), y=y, text=alt.Text("label:N")
        ),
    ]
    if bound_j is not None:
        energy.insert(1, alt.Chart(inline([{"energy": bound_j}])).mark_rule(style="rule").encode(x=x))
    latest = _ROOM_FOR_LATE * max(100.0 * allowed, *(100.0 * bar.late for bar in bars))
    # Nearly linear up to a tenth of a per cent, then logarithmic: what is allowed is small, what some policies miss is not.
    lates = alt.Scale(type="symlog", constant=_LINEAR, domain=[0.0, latest], nice=False)
    ticks = alt.Axis(
        values=[each for each in (0, 0.1, 1, 10, 100) if each <= latest], labelExpr="'' + datum.value", grid=False
    )
    across = alt.X("late:Q", title=f"{late} (log scale)", scale=lates, axis=ticks)
    limit = alt.Chart(inline([{"late": 100.0 * allowed}]))
    dots = alt.Chart(inline([{**row, "short": row["text"]} for row in rows]))
    share = [
        limit.mark_rect(style="good-region", tooltip=None).encode(x=across, x2=alt.value(0)),
        dots.mark_circle(size=90).encode(x=across, y=bare, color=color, opacity=opacity, tooltip=tip),
        dots.mark_text(style="label", align="left").encode(x=alt.XValue(_LATE + 8), y=bare, text=alt.Text("text:N")),
    ]
    height = alt.Step(_STEP)
    panels = (
        layered(*energy).properties(width=_WIDE - _LATE - width, height=height),
        layered(*share).properties(width=_LATE, height=height),
    )
    return alt.hconcat(*panels, spacing=18)

"""Policies beside each other, of one engine or of a cluster: a bar of energy for each, and how many requests were late.

policy  ┃▬▬▬▬▬▬▬▬▬▬▬  297 mJ                       ┃ ●    ┊       99.94 % met
policy  ┃▬▬▬▬▬▬▬┄┄┄┄  223 mJ, −74 mJ, 24.9 % saved ┃  ●   ┊       99.86 % met
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wastenot.pages.figure import energy_axis, inline, layered, name_axis, tooltips
from wastenot.pages.formatting import MINUS, SPACE, number, percent, percent_met, quantity
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import CATEGORIES

Role = Literal["compared with", "headline", "second", "other", "other, assumed"]
"""Of a policy on its page: what others are compared with, the headline, what the second card is of, or none of these."""

_BLUE, _ORANGE, *_, _GREY = CATEGORIES[:6]
ROLE_COLORS: dict[Role, str] = {
    "compared with": _GREY, "headline": _BLUE, "second": _ORANGE, "other": _BLUE, "other, assumed": _ORANGE,
}  # fmt: skip
"""The same in all figures of a page."""

_WIDE, _LATE, _STEP = 880, 190, 26  # of names and both panels; of the second; of a row
_LETTER, _MOST_NAME = 6.4, 240  # pixels
_ROOM_FOR_LABELS = 1.75  # beside bars
_ROOM_FOR_LATE = 1.5
_LINEAR = 0.1  # per cent of late requests up to which the axis is about linear
_TICKS, _BEYOND_BARS = 4, 1.1  # of energies: how many, and how far beyond the longest bar


@dataclass(frozen=True, slots=True)
class PolicyBar:
    """What is drawn of a policy.

    Attributes:
        policy: its name.
        role: on the page.
        energy_j: per token; ``least_j`` and ``most_j`` over seeds.
        saved: fraction of the energy; ``None`` for the one that others are compared with.
        late: fraction of requests that missed a deadline.
        attains: whether so few missed one that its saving counts.
    """

    policy: str
    role: Role
    energy_j: float
    least_j: float
    most_j: float
    saved: float | None
    late: float
    attains: bool


def policies_chart(
    bars: Sequence[PolicyBar], *, allowed: float = 0.0, late: str | None = None, bound_j: float | None = None
) -> Any:
    """A row for each policy, those that need most first; what the headline's saves is drawn beside its bar.

    Args:
        bars: of the policies.
        allowed: fraction of requests that may be late.
        late: what these are, as the title of their axis; ``None`` to leave them out.
        bound_j: energy per token that no policy can do without, where that is known.
    """
    alt = load("altair")
    bars = sorted(bars, key=lambda bar: -bar.energy_j)
    against_j = next(bar.energy_j for bar in bars if bar.role == "compared with")
    rows = [
        {
            "index": index,
            "policy": bar.policy,
            "energy": bar.energy_j,
            "least": bar.least_j,
            "most": bar.most_j,
            "against": against_j,
            "beside": against_j if bar.role == "headline" else bar.most_j,
            "headline": bar.role == "headline",
            "failed": not bar.attains,
            "opacity": 0.25 if not bar.attains else 0.45 if bar.role.startswith("other") else 1.0,
            "late": 100.0 * bar.late,
            "label": _label(bar, against_j),
            "short": _saving(bar) or quantity(bar.energy_j, "J", 3),
            "text": f"{percent_met(1.0 - bar.late)} met",
        }
        for index, bar in enumerate(bars)
    ]
    names = [bar.policy for bar in bars]
    width = min(round(_LETTER * max(map(len, names))), _MOST_NAME)
    most = max(bar.most_j for bar in bars)
    unit, in_unit = energy_axis(most)
    energies = alt.Scale(domain=[0.0, _ROOM_FOR_LABELS * most], nice=False)
    axis = alt.Axis(values=_ticks(most), grid=False, **in_unit)
    x = alt.X("energy:Q", title=f"energy per token, {unit}", scale=energies, axis=axis)
    y = alt.Y("index:O", title=None, axis=name_axis(names, width))
    bare = alt.Y("index:O", title=None, axis=alt.Axis(labels=False, ticks=False, domain=False, grid=False))
    tip = tooltips({"policy:N": "policy", "label:N": "energy per token", "text:N": "deadlines"})
    color = alt.Color(
        "index:O", legend=None, scale=alt.Scale(domain=list(range(len(bars))), range=[ROLE_COLORS[bar.role] for bar in bars])
    )
    opacity = alt.Opacity("opacity:Q", scale=None, legend=None)
    chart = alt.Chart(inline(rows))
    energy = [
        chart.mark_bar(height=_STEP * 0.6).encode(x=x, y=y, color=color, opacity=opacity, tooltip=tip),
        chart.transform_filter("datum.headline")
        .mark_rule(style="rule", tooltip=None)
        .encode(x=alt.X("most:Q", scale=energies), x2=alt.X2("against:Q"), y=y),
        chart.mark_rule(style="interval").encode(x=alt.X("least:Q"), x2=alt.X2("most:Q"), y=y),
        chart.mark_text(style="label", align="left", dx=8).encode(
            x=alt.X("beside:Q", scale=energies), y=y, text=alt.Text("label:N")
        ),
    ]
    if bound_j is not None:
        energy.insert(1, alt.Chart(inline([{"energy": bound_j}])).mark_rule(style="rule").encode(x=x))
    height = alt.Step(_STEP)
    if late is None:
        return layered(*energy).properties(width=_WIDE - width, height=height)
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
    panels = (
        layered(*energy).properties(width=_WIDE - _LATE - width, height=height),
        layered(*share).properties(width=_LATE, height=height),
    )
    return alt.hconcat(*panels, spacing=18)


def _label(bar: PolicyBar, against_j: float) -> str:
    """Energy and saving; of the headline also the difference, which its line shows."""
    shown_j = float(f"{against_j:.3g}") - float(f"{bar.energy_j:.3g}")  # so that it is what the labels say
    value, unit = (1e3 * shown_j, "mJ") if bar.energy_j < 1.0 else (shown_j, "J")
    between = f"{MINUS}{number(value, 2)}{SPACE}{unit}" if bar.role == "headline" and shown_j > 0.0 else ""
    return ", ".join(filter(None, (quantity(bar.energy_j, "J", 3), between, _saving(bar))))


def _saving(bar: PolicyBar) -> str:
    if not bar.attains:
        return "too many late"
    return "" if bar.saved is None else f"{percent(bar.saved, 1)} saved"


def _ticks(most: float) -> list[float]:
    """Of an axis that ends soon after the longest bar, whatever room labels take beyond it."""
    step = 10.0 ** math.floor(math.log10(most / _TICKS))
    step *= next(each for each in (1.0, 2.0, 2.5, 5.0, 10.0) if each * step * _TICKS >= most)
    return [round(number * step, 12) for number in range(_TICKS + 1) if number * step <= _BEYOND_BARS * most]

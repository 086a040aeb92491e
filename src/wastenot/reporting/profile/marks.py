"""Marks on power over a run: executions' bounds, the executions that the profile is about, and words for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wastenot.profiling.result import Profile, State
from wastenot.reporting.figure import inline
from wastenot.reporting.profile.rows import WIDTH, TimeUnit, altair, span_of
from wastenot.reporting.profile.words import shown_before, unit_word

_MOST_BOUNDS = 70  # executions whose bounds are drawn
_NARROW = 130  # pixels that a label needs


def execution_marks(profile: Profile, unit: TimeUnit) -> list[Any]:
    """Executions' bounds, and the units that the profile is about."""
    alt = altair()
    begin, time = profile.unit_begin_s, profile.unit_time_s
    units = {state.unit: state.name for state in profile.states}
    areas = [
        {"t": unit.factor * float(begin[number - 1]), "end": unit.factor * float(begin[number - 1] + time[number - 1])}
        for number in units
    ]
    layers = [alt.Chart(inline(areas)).mark_rect(style="good-region").encode(x="t:Q", x2="end:Q")]
    if len(begin) <= _MOST_BOUNDS:
        bounds = np.unique(np.concatenate([begin, [begin[-1] + time[-1]]]))
        rules = [{"t": unit.factor * float(bound)} for bound in bounds]
        layers.append(alt.Chart(inline(rules)).mark_rule(style="rule", opacity=0.45, strokeWidth=0.8).encode(x="t:Q"))
    return layers


def state_labels(profile: Profile, unit: TimeUnit) -> list[Any]:
    """Words at the top: warm-up, SSE, SSP; on two lines where they are close."""
    alt = altair()
    span = span_of(profile)
    pixels = WIDTH / (span[1] - span[0])
    word = unit_word(profile).partition(" of ")[0]

    def said(state: State) -> str:
        return profile.kernel if state.name == "in context" else f"{state.name}: {word} {state.unit}"

    places: list[tuple[float, str, str]] = []
    states = profile.states
    if shown_before(profile) and profile.unit_begin_s[0] > 0.0:
        places.append((0.5 * float(profile.unit_begin_s[0]), profile.before, "center"))
    elif states[0].unit > 1:
        warm_s = float(profile.unit_begin_s[states[0].unit - 1])
        narrow = pixels * warm_s < _NARROW / 2
        places.append((warm_s, "warm-up ", "right") if narrow else (0.5 * warm_s, "warm-up", "center"))
    if len(states) > 1 and len({state.unit for state in states}) == 1:
        name = " = ".join(state.name for state in states)
        places.append((float(profile.unit_begin_s[states[0].unit - 1]), f"{name}: {word} {states[0].unit}", "left"))
    else:
        places += [(float(profile.unit_begin_s[state.unit - 1]), said(state), "left") for state in states]
    layers: list[Any] = []
    last_s = -math.inf
    for moment_s, text, align in places:
        flush = align == "left" and pixels * (span[1] - moment_s) < _NARROW
        close = align == "left" and pixels * (moment_s - last_s) < _NARROW + (_NARROW if flush else 0)
        # Where there is no room to the right the words end with the execution.
        at_s, side = (float(profile.unit_begin_s[-1] + profile.unit_time_s[-1]), "right") if flush else (moment_s, align)
        row = alt.Chart(inline([{"t": unit.factor * at_s, "text": text}]))
        place = {"align": side, "baseline": "top", "dx": 3 if side == "left" else 0, "dy": 21 if close else 5}
        layers += [
            row.mark_text(style=style, **place).encode(x="t:Q", y=alt.value(0), text="text:N") for style in ("halo", "label")
        ]
        last_s = at_s if side == "left" else last_s
    return layers

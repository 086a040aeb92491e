"""A kernel alone, and after others (FinGraV, Fig. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.devices.instrument import TOTAL
from wastenot.profiling.result import Profile
from wastenot.reporting.figure import Figure, inline
from wastenot.reporting.profile.compare_figures import ALL_WIDTH, LONGEST_NAME, STEP, name_axis, subtitle_of
from wastenot.reporting.profile.rows import BLUE, altair, specification_of
from wastenot.reporting.profile.words import shown_before, steady, watts
from wastenot.reporting.words import change, quantity, shortened

_ALONE = "alone, SSP"
_WORDS_AT = int(ALL_WIDTH / 1.57)  # where a row's words begin, right of every bar


def contexts_figure(profiles: Sequence[Profile]) -> Figure:
    """Each kernel alone, and after others: total power."""
    stem, title = "profiles-contexts", "A kernel alone, and after others"
    groups = _by_kernel(profiles)
    if not groups:
        note = "No kernel here was profiled both alone and after others (wastenot profile --after)."
        return Figure(stem, title, subtitle_of(profiles), note, None)
    alt = altair()
    most = max(steady(profile).channels[TOTAL].mean_w for members in groups.values() for profile in members)
    panels = [_context_panel(kernel, members, most, last=kernel == list(groups)[-1]) for kernel, members in groups.items()]
    note = (
        "Mean total power of an execution in steady state (SSP) when the kernel runs by itself, and of one execution of "
        "it in the wake of other kernels, with standard errors, and its time; in per cent: against alone."
    )
    shown = [profile for members in groups.values() for profile in members]
    return Figure(stem, title, subtitle_of(shown), note, specification_of(alt.vconcat(*panels, spacing=12)))


def _by_kernel(profiles: Sequence[Profile]) -> dict[str, list[Profile]]:
    """Kernels that were profiled alone and in context on one device: alone first."""
    groups: dict[tuple[str, str], list[Profile]] = {}
    for profile in profiles:
        if TOTAL in steady(profile).channels:
            groups.setdefault((profile.kernel, profile.device), []).append(profile)
    found = {}
    for (kernel, device), members in groups.items():
        alone = [profile for profile in members if not profile.before]
        others = [profile for profile in members if profile.before]
        if alone and others:
            several = sum(key[0] == kernel for key in groups) > 1
            found[f"{kernel}, {device}" if several else kernel] = [alone[0], *others]
    return found


def _context_panel(kernel: str, members: list[Profile], most_w: float, *, last: bool) -> Any:
    alt = altair()
    labels = [_ALONE if not profile.before else shortened(shown_before(profile), LONGEST_NAME) for profile in members]
    rows = [str(place) for place in range(len(members))]
    alone_w = steady(members[0]).channels[TOTAL].mean_w
    values = []
    for place, profile in enumerate(members):
        inside = steady(profile).channels[TOTAL]
        time_s = steady(profile).time_s
        text = f"{watts(inside.mean_w, inside.mean_error_w)}, {quantity(time_s, 's', 3)}"
        if place:
            changes = change(inside.mean_w / alone_w - 1.0, 1), change(time_s / steady(members[0]).time_s - 1.0, 1)
            text = f"{watts(inside.mean_w, inside.mean_error_w)} ({changes[0]}), {quantity(time_s, 's', 3)} ({changes[1]})"
        values.append(
            {
                "row": rows[place],
                "label": labels[place],
                "p": inside.mean_w,
                "low": inside.mean_w - inside.mean_error_w,
                "high": inside.mean_w + inside.mean_error_w,
                "text": text,
                "alone": place == 0,
            }
        )
    title = "total power, W" if last else ""
    scale = alt.Scale(domain=[0.0, 1.62 * most_w], nice=False)
    x = alt.X("p:Q", title=title, scale=scale, axis=alt.Axis(values=_ticks(most_w), labels=last, ticks=False, domain=False))
    base = alt.Chart(inline(values)).encode(
        y=alt.Y("row:O", title=None, sort=rows, scale=alt.Scale(domain=rows), axis=name_axis(labels))
    )
    reference = alt.Chart(inline([{"p": alone_w}])).mark_rule(style="rule").encode(x=x)
    bars = base.mark_bar(height=15, color=BLUE, cornerRadiusEnd=1.5).encode(
        x=x, opacity=alt.condition("datum.alone", alt.value(0.85), alt.value(0.45)),
        tooltip=[alt.Tooltip("label:N", title=kernel), alt.Tooltip("text:N", title="total")],
    )  # fmt: skip
    errors = base.mark_rule(style="curve", strokeWidth=1.6, strokeDash=[1, 0]).encode(
        x=alt.X("low:Q", title=title), x2="high:Q"
    )
    texts = base.mark_text(style="label", align="left", fontSize=11).encode(x=alt.value(_WORDS_AT), text="text:N")
    return alt.layer(bars, reference, errors, texts).properties(
        width=ALL_WIDTH,
        height=alt.Step(STEP - 8),
        title=alt.TitleParams(kernel, anchor="start", frame="group", fontSize=12.5, offset=4),
        view=alt.ViewBackground(stroke=None),
    )


def _ticks(most_w: float) -> list[float]:
    """Round powers, up to the longest bar: what is right of it belongs to the words."""
    step = next(step for step in (20.0, 50.0, 100.0, 200.0, 500.0, 1000.0) if most_w / step < 8.0 or step == 1000.0)
    return [step * place for place in range(int(most_w / step) + 1)]

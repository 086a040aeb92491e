"""The schedule as a time line, before and after: one row per rank, one box per instruction, coloured by its core clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.pages.figure import Figure, inline, layered, specification_of, tooltips
from wastenot.pages.formatting import quantity, setting_text
from wastenot.pages.narrow import PANEL_WIDTH
from wastenot.pages.optional_imports import load
from wastenot.pipelines.model.schedule import OVERLAPPED
from wastenot.pipelines.page.drawing import AFTER, WIDE, TimeAxis, about, before_text, instruction_text, mhz_text
from wastenot.pipelines.plan.overview import Box, PipelineOverview, TimeLine
from wastenot.pipelines.plan.plan import Clocks

_TITLE = "The schedule, before and after"
_MOST_IN_ROW = 110  # boxes beyond which a whole row is a blur
_SHOWN_IN_ROW = 44  # boxes of a row in a close-up
_MOST_IN_WINDOW = 1_000
_ROW_PX, _LEAST_ROW_PX, _MOST_HEIGHT_PX = 26, 5, 420
_LABEL_PX = 17  # of a box that holds its micro-batch
_HEIGHTS = {"forward": 0.58, "recomputation": 0.36, "backward_weight": 0.72}  # of a row; a backward is as high as it
_FIXED_HEIGHT = 0.2
_BOTTOM, _CRITICAL = 0.90, 0.97  # of a row: where boxes stand, and to where the mark of the critical path reaches
_GAP = 12
_BESIDE_MHZ = 1.0  # of the scale on both sides of a single clock, which gets its middle colour, on which labels can be read

_Channel = Callable[[str], Any]  # of a field


@dataclass(frozen=True, slots=True)
class _Window:
    """A part of the time axis: its name, and from when to when."""

    name: str
    begin: float
    end: float


def schedule_figure(overview: PipelineOverview) -> Figure:
    """The schedule at the default clocks above, under the plan below, on the same time axis."""
    axis = TimeAxis.of(overview)
    parts = "" if len(_windows(overview, axis)) == 1 else (
        "The schedule is long: its beginning, part of its middle and its end are shown at the same scale. "
    )  # fmt: skip
    grey = " Grey: clocks left to the GPU, or work that takes the same time at every clock." if _has_grey(overview) else ""
    names = {box.name for box in overview.after.boxes}
    more = "or a forward and a backward at once (with the forward's number), " if OVERLAPPED in names else ""
    more += "lower ones gradients of weights, " if "backward_weight" in names else ""
    more += "the lowest recomputations, " if "recomputation" in names else ""
    note = (
        f"{parts}One row per rank (the GPUs of a stage). Low boxes are forwards, high ones backwards, {more}labelled with "
        f"their micro-batch, a part of the batch, where it fits; gaps are waiting.{grey} Red: the critical path; any delay "
        "there slows all."
    )
    return Figure("pipeline-schedule", _TITLE, about(overview), note, specification_of(_chart(overview, axis)))


def _has_grey(overview: PipelineOverview) -> bool:
    return any(box.core_mhz is None for line in (overview.before, overview.after) for box in line.boxes)


def _windows(overview: PipelineOverview, axis: TimeAxis) -> tuple[_Window, ...]:
    """The whole axis if its boxes can be told apart, otherwise its beginning, middle and end."""
    boxes, ranks = len(overview.after.boxes), len(overview.plan.ranks)
    in_row = boxes / ranks
    if in_row <= _MOST_IN_ROW:
        return (_Window("", 0.0, axis.end),)
    shown = min(max(float(_SHOWN_IN_ROW), 2.2 * ranks), _MOST_IN_WINDOW / ranks)
    width = axis.end * min(shown / in_row, 0.3)
    middle = 0.5 * axis.end
    return (
        _Window("beginning", 0.0, width),
        _Window("middle", middle - 0.5 * width, middle + 0.5 * width),
        _Window("end", axis.end - width, axis.end),
    )


def _chart(overview: PipelineOverview, axis: TimeAxis) -> Any:
    alt = load("altair")
    windows = _windows(overview, axis)
    width = WIDE if len(windows) == 1 else (WIDE - 2 * _GAP) // len(windows)
    lines = ((before_text(overview.plan), overview.before), (AFTER, overview.after))
    span = _span([box for _, line in lines for box in line.boxes])
    rows = []
    for place, (name, line) in enumerate(lines):
        title = f"{name}: {quantity(line.lasts_s, 's', 4)}"
        above = title if len(windows) == 1 else ""  # over three panels it would push them apart
        panels = [
            _panel(overview, line, axis, window, span, width, above if index == 0 else "", last=place == 1,
                   first=index == 0)
            for index, window in enumerate(windows)
        ]  # fmt: skip
        joined = alt.hconcat(*panels, spacing=_GAP)
        rows.append(joined if above else joined.properties(title=_title(title)))
    both = alt.vconcat(*rows, spacing=14).resolve_scale(color="shared", x="independent")
    return both.add_params(alt.param(name=PANEL_WIDTH, value=width))


def _span(boxes: Sequence[Box]) -> tuple[float, float] | None:
    """The lowest and the highest core clock; ``None`` where there is no clock."""
    clocks = [box.core_mhz for box in boxes if box.core_mhz is not None]
    return (min(clocks), max(clocks)) if clocks else None


def clock_color(span: tuple[float, float], field: str = "core:Q") -> Any:
    """The scale of core clocks, the same for all panels and figures."""
    alt = load("altair")
    low, high = span
    scale = alt.Scale(range="ramp", domain=[low, high] if high > low else [low - _BESIDE_MHZ, low + _BESIDE_MHZ], nice=False)
    legend = alt.Legend(
        orient="top", direction="horizontal", gradientLength=180, titleOrient="left", titleFontWeight="normal", format=",.0f"
    )
    if high == low:  # one clock needs no scale
        legend = alt.Legend(orient="top", type="symbol", values=[low], titleOrient="left", titleFontWeight="normal",
                            symbolType="square", format=",.0f")  # fmt: skip
    return alt.Color(field, title="core clock, MHz", scale=scale, legend=legend)


def _panel(
    overview: PipelineOverview,
    line: TimeLine,
    axis: TimeAxis,
    window: _Window,
    span: tuple[float, float] | None,
    width: int,
    title: str,
    *,
    first: bool,
    last: bool,
) -> Any:
    alt = load("altair")
    ranks = len(overview.plan.ranks)
    height = max(min(_ROW_PX, _MOST_HEIGHT_PX // ranks), _LEAST_ROW_PX) * ranks
    domain = (round(window.begin, 9), round(window.end, 9))
    shown = [box for box in line.boxes if box.end_s * axis.factor > window.begin and box.begin_s * axis.factor < window.end]
    whole = window.name == ""
    ticks = 10 if whole else 4

    def x(field: str) -> Any:
        return axis.x(field, domain, ticks=ticks, labels=last)

    every = max(1, -(-ranks * 11 // height))  # of ranks has a label
    y_axis = alt.Axis(
        values=[rank + 0.5 for rank in range(0, ranks, every)], labelExpr="'rank ' + floor(datum.value)",
        ticks=False, domain=False, grid=False, labels=first, labelPadding=6,
    )  # fmt: skip

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title=None, scale=alt.Scale(domain=[ranks, 0], nice=False), axis=y_axis)

    layers = [*_boxes(shown, axis, x, y, span, window=window, width=width)]
    layers += _critical(shown, axis, x, y)
    layers += _ends(overview, line, axis, x, window)
    return layered(*layers).properties(width=width, height=height, title=_title(*filter(None, (title, window.name))))


def _title(*lines: str) -> dict[str, object]:
    return {"text": list(lines) or "", "fontSize": 12, "fontWeight": "normal", "offset": 6}


def _boxes(
    boxes: Sequence[Box],
    axis: TimeAxis,
    x: _Channel,
    y: _Channel,
    span: tuple[float, float] | None,
    *,
    window: _Window,
    width: int,
) -> list[Any]:
    """Boxes of a clock in its colour, the others grey; what they say stands once for all that take the same way."""
    alt = load("altair")
    kinds: dict[tuple[object, ...], int] = {}
    about_kind: list[dict[str, object]] = []
    rows: list[dict[str, object]] = []
    for box in boxes:
        key = (box.stage, box.name, box.clocks, box.time_s, box.energy_j)
        if key not in kinds:
            kinds[key] = len(about_kind)
            about_kind.append(_kind_row(len(about_kind), box, span))
        rows.append(
            {
                "x": round(axis.factor * box.begin_s, 6),
                "x2": round(axis.factor * box.end_s, 6),
                "r": box.rank,
                "m": box.micro_batch,
                "s": "critical" if box.critical else quantity(box.slack_s, "s", 3),
                "k": kinds[key],
            }
        )
    fields = ["what", "clock", "core", "takes", "energy", "h", "strong"]
    base = (
        alt.Chart(inline(rows))
        .transform_lookup(lookup="k", from_=alt.LookupData(data=inline(about_kind), key="k", fields=fields))
        .transform_calculate(
            top=f"datum.r + {_BOTTOM} - {_BOTTOM} * datum.h", bottom=f"datum.r + {_BOTTOM}",
            batch="datum.m < 0 ? '–' : format(datum.m, 'd')",
        )
    )  # fmt: skip
    shown = tooltips(
        {
            "what:N": "instruction", "batch:N": "micro-batch", "clock:N": "clocks", "takes:N": "time",
            "energy:N": "energy of a GPU", "s:N": "slack", "x:Q": f"from, {axis.unit}",
        }
    )  # fmt: skip
    placed = {"x": x("x"), "x2": alt.X2("x2:Q"), "y": y("top"), "y2": alt.Y2("bottom:Q"), "tooltip": shown}
    edge = {"strokeWidth": 0.6 if len(boxes) < 600 else 0.3, "clip": True}
    layers = []
    if any(box.core_mhz is None for box in boxes):
        grey = base.transform_filter("!isValid(datum.core)")
        layers.append(grey.mark_rect(style="auto-box", **edge).encode(**placed))
    if span is not None and any(box.core_mhz is not None for box in boxes):
        colored = base.transform_filter("isValid(datum.core)")
        layers.append(colored.mark_rect(style="box", **edge).encode(color=clock_color(span), **placed))
    wide = alt.datum.h > 0.5
    lasts = window.end - window.begin
    middle = base.transform_filter(wide).transform_filter(f"(datum.x2 - datum.x) * {PANEL_WIDTH} > {_LABEL_PX * lasts:.6g}")
    middle = middle.transform_calculate(center="0.5 * (datum.x + datum.x2)", across="0.5 * (datum.top + datum.bottom)")
    at = {"x": x("center"), "y": y("across"), "text": alt.Text("batch:N")}
    if any(width * axis.factor * box.time_s > _LABEL_PX * lasts and box.clocks for box in boxes):
        for strong, style in ((True, "label-on-strong"), (False, "label-on-pale")):
            one = middle.transform_filter(f"{'' if strong else '!'}datum.strong")
            layers.append(one.mark_text(style=style, baseline="middle", clip=True, tooltip=None).encode(**at))
    return layers


def _kind_row(number: int, box: Box, span: tuple[float, float] | None) -> dict[str, object]:
    row: dict[str, object] = {
        "k": number,
        "what": f"{instruction_text(box.name)}{f', stage {box.stage}' if box.stage >= 0 else ''}",
        "clock": clocks_text(box.clocks) if box.clocks else "any",
        "takes": quantity(box.time_s, "s", 4),
        "energy": quantity(box.energy_j, "J", 4),
        "h": _HEIGHTS.get(box.name, 1.0) if box.clocks else _FIXED_HEIGHT,
    }
    if box.core_mhz is not None and span is not None:
        row |= {"core": round(box.core_mhz, 1), "strong": box.core_mhz > 0.5 * sum(span)}
    return row


def clocks_text(clocks: Sequence[Clocks]) -> str:
    """The clocks of an instruction in a few words: one setting, or the range of those it goes through."""
    settings = [each.setting for each in clocks]
    if len(set(settings)) == 1:
        return setting_text(settings[0], named=True)
    cores = sorted({each.core_mhz for each in settings if each.core_mhz is not None})
    if not cores:
        return f"{len(clocks)} settings"
    return f"{len(clocks)} settings, core {cores[0]:,.0f} to {mhz_text(cores[-1])}"


def _critical(boxes: Sequence[Box], axis: TimeAxis, x: _Channel, y: _Channel) -> list[Any]:
    """A line under what is on a critical path; neighbours share one."""
    alt = load("altair")
    runs: list[dict[str, float]] = []
    for box in sorted((each for each in boxes if each.critical), key=lambda each: (each.rank, each.begin_s)):
        begin, end = round(axis.factor * box.begin_s, 6), round(axis.factor * box.end_s, 6)
        if runs and runs[-1]["top"] == box.rank + _BOTTOM and begin - runs[-1]["x2"] < 1e-6 * axis.end:
            runs[-1]["x2"] = end
        else:
            runs.append({"x": begin, "x2": end, "top": box.rank + _BOTTOM, "bottom": box.rank + _CRITICAL})
    if not runs:
        return []
    chart = alt.Chart(inline(runs)).mark_rect(style="critical", clip=True, tooltip=None)
    return [chart.encode(x=x("x"), x2=alt.X2("x2:Q"), y=y("top"), y2=alt.Y2("bottom:Q"))]


def _ends(overview: PipelineOverview, line: TimeLine, axis: TimeAxis, x: _Channel, window: _Window) -> list[Any]:
    """Where the iteration ends, and until when all wait for a straggler."""
    alt = load("altair")
    ends = [axis.factor * line.time_s]
    if overview.plan.until_s is not None and line.lasts_s > line.time_s:
        ends.append(axis.factor * line.lasts_s)
    rows = [{"x": round(end, 6)} for end in ends if window.begin <= end <= window.end]
    if not rows:
        return []
    return [alt.Chart(inline(rows)).mark_rule(style="rule").encode(x=x("x"))]

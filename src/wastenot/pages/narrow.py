"""The form that a figure takes on a phone, made from its specification by rules that are the same for all figures.

    wide:    name |=====  text   name |==  text         narrow:   name      text
             name |===    text   name |=   text                   |=====
                                                                  name      text
                                                                  |===

1. Panels of a row stand below each other. One that left its vertical axis to the first of its row gets that axis; a column
   of words beside bars is left out, since what it says is shown under the pointer too.
2. A panel is as wide as a phone leaves room for beside its axis, a square one stays square.
3. Names of rows that would take a third of the width stand above their rows, with the text of the row at their right.
4. Text is the data's field ``short`` where there is one.
5. Legends stand above or below panels, with as many columns as there is room for.
6. Axes have few ticks; titles that are too long take several lines.
"""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Iterator
from typing import Any

NARROW_WIDTH = 340
"""Pixels that a narrow figure may take, axes and labels included: what a phone leaves of a page."""

NARROW_PANEL = 260
"""Pixels of a panel in it, beside an axis with a title."""

PANEL_WIDTH = "panel_width"
"""The parameter of a specification that holds the width of its panels, for what depends on it."""

_MARGIN = 22  # left and right together, with half of the last label of a horizontal axis
_LETTER = 0.51  # of the font's size: how wide a letter is
_TITLE, _NUMBERS, _WORDS = 22, 36, 50  # what a vertical axis' title, its numbers, or numbers with a word take
_BESIDE_NUMBERS = 10  # of labels: tick and padding
_MOST_NAMES = 110  # that names take beside rows
_MOST_TICKS = 5
_ROW, _NAME_RISE, _MARK_FALL = 38, 9, 9  # of a row with its name above it: the height, and how far from the middle both are
_LEGEND_SYMBOL, _LEGEND_GAP, _MOST_SYMBOL = 16, 14, 250
_BEHIND_NAMES = 0.4  # opacity of rules that cross names

_Part = dict[str, Any]


def narrow_form(specification: _Part) -> _Part:
    """The specification for a narrow page, at most ``NARROW_WIDTH`` pixels wide; the data are shared, not copied."""
    datasets = specification.get("datasets", {})
    form: _Part = copy.deepcopy({name: value for name, value in specification.items() if name != "datasets"})
    _hand_down_data(form)
    _stack(form)
    panels = [each for each in _parts(form) if not _inner(each)]
    room = NARROW_WIDTH - _MARGIN - max(_axis_width(unit, datasets) for panel in panels for unit in _units(panel))
    for panel in panels:
        _fit(panel, datasets, room)
    for each in form.get("params", ()):
        if each["name"] == PANEL_WIDTH:
            each["value"] = room
    for part in _parts(form):
        _break_title(part)
    return {**form, "datasets": datasets}


# ---- rows of panels ------------------------------------------------------------------------------------------------------


def _stack(part: _Part) -> None:
    """Put the panels of all rows below each other."""
    if "concat" in part:
        part["columns"] = 1
    if "hconcat" in part:
        row = part.pop("hconcat")
        part["vconcat"] = [each for each in row if each is row[0] or each.get("mark", {}).get("type") != "text"]
        for each in part["vconcat"][1:]:
            _share_axis(row[0], each)
    for each in _inner(part):
        _stack(each)


def _share_axis(first: _Part, other: _Part) -> None:
    """Give a panel the labels and the title of the vertical axis that stood left of its row."""
    channels = [unit["encoding"]["y"] for unit in _units(first) if "y" in unit["encoding"]]
    labelled = max(filter(_has_labels, channels), key=lambda channel: "axis" in channel, default=None)
    title = next((each["title"] for each in channels if each.get("title")), None)
    for unit in _units(other):
        channel = unit["encoding"].get("y", {})
        if labelled is not None and channel and not _has_labels(channel):
            channel |= {"axis": copy.deepcopy(labelled.get("axis", {})), "title": labelled.get("title")}
        if title is not None and "title" in channel and not channel["title"]:
            channel["title"] = title


def _has_labels(channel: _Part) -> bool:
    axis = channel.get("axis", {})
    return axis is not None and bool(axis.get("labels", True))


# ---- a panel -------------------------------------------------------------------------------------------------------------


def _fit(panel: _Part, datasets: _Part, room: int) -> None:
    """Make a panel as wide as there is room."""
    units = list(_units(panel))
    before = panel["width"]
    square = panel["height"] == before
    panel["width"] = width = min(room, before) if square else room
    if square:
        panel["height"] = width
    for unit in units:
        encoding, rows = unit["encoding"], _rows(unit, datasets)
        if rows and "short" in rows[0] and "field" in encoding.get("text", {}):
            encoding["text"]["field"] = "short"
        _thin_ticks(encoding, width)
        for channel in encoding.values():
            if isinstance(channel, dict) and isinstance(channel.get("legend"), dict):
                _fit_legend(channel, width)
        for name in ("x", "x2"):
            if "value" in encoding.get(name, {}):
                encoding[name]["value"] = round(encoding[name]["value"] * width / before)
    if any(_names_of(unit) > _MOST_NAMES for unit in units):
        _name_above(panel, units, datasets, width)


def _names_of(unit: _Part) -> float:
    """Pixels that are set aside for the names of rows."""
    axis = unit["encoding"].get("y", {}).get("axis") or {}
    return float(axis.get("minExtent", 0.0)) if axis.get("labelExpr") else 0.0


def _axis_width(unit: _Part, datasets: _Part) -> int:
    """Pixels that the vertical axis takes, where there is one; numbers are given as much everywhere, to stand in line."""
    channel = unit["encoding"].get("y", {})
    if "field" not in channel or channel.get("axis", {}) is None or _names_of(unit) > _MOST_NAMES:
        return 0
    title = _TITLE if channel.get("title", channel["field"]) else 0
    axis = channel.setdefault("axis", {})
    if channel.get("type") in ("nominal", "ordinal"):
        rows = _rows(unit, datasets)
        longest = max((_text_width(str(row.get(channel["field"], ""))) for row in rows), default=0.0)
        axis["labelLimit"] = min(axis.get("labelLimit", _MOST_NAMES), _MOST_NAMES)
        names = axis.get("minExtent", min(longest, axis["labelLimit"]))
        return title + int(names + axis.get("offset", 0)) + _BESIDE_NUMBERS
    extent = int(axis.get("minExtent", _WORDS if "labelExpr" in axis else _NUMBERS))
    axis |= {"minExtent": extent, "maxExtent": extent}
    return title + extent


def _name_above(panel: _Part, units: list[_Part], datasets: _Part, width: int) -> None:
    """Put the names of rows above them, and text beside bars at the right of the names."""
    panel["height"] = {"step": _ROW}
    longest = 0.0
    for unit in units:
        encoding, mark = unit["encoding"], unit["mark"]
        if "field" in (across := encoding.get("x", {})) and across.get("axis", {}) is not None:
            across["axis"] = {**across.get("axis", {}), "grid": False}  # whose lines would cross names
        if "y" not in encoding:
            if mark["type"] == "rule":
                mark["opacity"] = _BEHIND_NAMES
        elif mark["type"] == "text":
            rows = _rows(unit, datasets)
            longest = max(longest, *(_text_width(str(row.get(encoding["text"]["field"], "")), 11) for row in rows))
            mark |= {"align": "right", "dx": 0, "yOffset": -_NAME_RISE}
            encoding["x"] = {"value": width}
        else:
            mark["yOffset"] = _MARK_FALL
    for unit in units:
        if unit["encoding"].get("y", {}).get("axis"):
            unit["encoding"]["y"]["axis"] |= {
                "labelAlign": "left", "labelPadding": 0, "labelOffset": -_NAME_RISE, "minExtent": 0, "maxExtent": 0,
                "labelLimit": round(width - longest - 8),
            }  # fmt: skip


def _thin_ticks(encoding: _Part, width: int) -> None:
    channel = encoding.get("x", {})
    if "tickCount" in (channel.get("axis") or {}):
        channel["axis"]["tickCount"] = min(channel["axis"]["tickCount"], _MOST_TICKS)
    if isinstance(channel.get("title"), str):
        lines = _lines(channel["title"], width, 12)
        channel["title"] = lines if len(lines) > 1 else lines[0]


def _fit_legend(channel: _Part, width: int) -> None:
    """A legend above or below its panel, in columns that it has room for."""
    legend = channel["legend"]
    if legend.get("orient", "right") in ("left", "right"):
        legend |= {"orient": "bottom", "direction": "horizontal"}
    if "gradientLength" in legend:
        legend["gradientLength"] = min(legend["gradientLength"], width - _LEGEND_GAP)
    names = channel["scale"]["domain"]
    if not all(isinstance(name, str) for name in names):
        return
    room = NARROW_WIDTH - _MARGIN
    legend["symbolSize"] = min(legend.get("symbolSize", 100), _MOST_SYMBOL)
    legend["columnPadding"] = min(legend.get("columnPadding", 10), _LEGEND_GAP)
    legend["labelLimit"] = min(legend.get("labelLimit", 160), room - _LEGEND_SYMBOL - _LEGEND_GAP)
    symbol = legend["symbolSize"] ** 0.5 + 8
    widest = symbol + max(min(_text_width(name), legend["labelLimit"]) for name in names)
    columns = int((room + legend["columnPadding"]) / (widest + legend["columnPadding"]))
    legend["columns"] = max(min(columns, len(names)), 1)


# ---- titles --------------------------------------------------------------------------------------------------------------


def _break_title(part: _Part) -> None:
    """Let the title of a panel or a row of them take several lines."""
    title = part.get("title")
    if isinstance(title, str):
        part["title"] = title = {"text": title}
    for name, size in (("text", "fontSize"), ("subtitle", "subtitleFontSize")):
        if title and title.get(name):
            given = title[name] if isinstance(title[name], list) else [title[name]]
            wide = NARROW_WIDTH - 2 * _MARGIN
            title[name] = [line for text in given for line in _lines(text, wide, title.get(size, 13))]


def _lines(text: str, width: float, size: float) -> list[str]:
    """A text in lines, between its parts where it has some."""
    if _text_width(text, size) <= width:
        return [text]
    return [line for part in text.split(" · ") for line in textwrap.wrap(part, int(width / (_LETTER * size)))]


def _text_width(text: str, size: float = 12) -> float:
    return _LETTER * size * len(text)


# ---- parts of a specification --------------------------------------------------------------------------------------------


def _inner(part: _Part) -> list[_Part]:
    return [each for name in ("concat", "hconcat", "vconcat") for each in part.get(name, ())]


def _parts(part: _Part) -> Iterator[_Part]:
    """A specification with all that is put together in it."""
    yield part
    for each in _inner(part):
        yield from _parts(each)


def _units(part: _Part) -> Iterator[_Part]:
    """What has marks of one kind: a panel, or each layer of it."""
    parts = [part]
    while parts:
        each = parts.pop(0)
        parts = [*each.get("layer", ()), *_inner(each), *parts]
        if "mark" in each:
            yield each


def _hand_down_data(part: _Part) -> None:
    """Give the data of what is put together to each unit, whose text is to be looked up."""
    data = part.pop("data", None) if "mark" not in part else None
    for each in (*part.get("layer", ()), *_inner(part)):
        if data is not None:
            each.setdefault("data", data)
        _hand_down_data(each)


def _rows(unit: _Part, datasets: _Part) -> list[_Part]:
    return datasets.get(unit["data"]["name"], []) if unit.get("data") else []

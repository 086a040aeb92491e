"""A figure: a Vega-Lite specification with the text around it, and the files it is exported to."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.core.files import write_bytes
from wastenot.core.origin import Origin
from wastenot.pages.formatting import ORIGIN_TEXT
from wastenot.pages.narrow import narrow_form
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import LIGHT

PNG_SCALE = 2.0


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure without title and colours, which pages and files add in their own way.

    Attributes:
        name: stem of its files.
        title: what it shows.
        subtitle: its workload and device, and where the numbers come from.
        note: how to read it and what is left out, or why there is no figure.
        specification: Vega-Lite, for wide pages and for files; ``None`` if there is nothing to draw.
    """

    name: str
    title: str
    subtitle: str
    note: str
    specification: dict[str, Any] | None

    @property
    def narrow(self) -> dict[str, Any] | None:
        """The same for narrow pages; see :mod:`wastenot.pages.narrow`."""
        return None if self.specification is None else narrow_form(self.specification)


def specification_of(chart: Any | None) -> dict[str, Any] | None:
    """The specification of an Altair chart with its data, and without Altair's own colours: ours come from the theme."""
    if chart is None:
        return None
    specification: dict[str, Any] = chart.to_dict(validate=False)
    specification.pop("config", None)
    specification["datasets"] = _taken_out(specification)
    return specification


def inline(rows: Sequence[Mapping[str, object]]) -> Any:
    """Rows as the data of a chart that goes through :func:`specification_of`.

    Altair copies and checks the data of a chart each time that the chart is refined or put into another one. To spare
    that, the rows travel as text, as the name of the data.
    """
    text = json.dumps([dict(row) for row in rows], ensure_ascii=False, separators=(",", ":"), default=_plain)
    return load("altair").NamedData(name=text)


def layered(*charts: Any) -> Any:
    """Charts on top of each other.

    Altair copies charts whenever they are put into another one, down to the last axis; encodings of these are not copied.
    """
    return load("altair").layer(*map(_settled, charts))


def _settled(chart: Any) -> Any:
    """A chart whose encodings are their own copy, and which is copied no deeper than its own properties."""
    alt = load("altair")
    if getattr(chart, "encoding", alt.Undefined) is alt.Undefined:
        return chart
    chart, encodings = chart.copy(deep=False), chart.encoding.copy(deep=False)
    object.__setattr__(encodings, "__deepcopy__", lambda *_: encodings)
    chart.encoding = encodings
    return _copied_flat(chart)


def _copied_flat(chart: Any) -> Any:
    """A copy of a chart that shares all but its own properties with it, and whose copies do."""
    copy = chart.copy(deep=False)
    object.__setattr__(copy, "__deepcopy__", _copied_flat)
    return copy


def _plain(number: Any) -> object:
    """A NumPy number as Python's."""
    return number.item()


def _taken_out(specification: dict[str, Any]) -> dict[str, Any]:
    """The data of all parts, by the short names that the parts are given instead; equal data once."""
    datasets: dict[str, Any] = {}
    parts: list[Any] = [specification]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
            data = part.get("data")
            if isinstance(data, dict) and str(data.get("name", "")).startswith("["):
                name = f"data-{hashlib.sha256(data['name'].encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
                if name not in datasets:
                    datasets[name] = json.loads(data["name"])
                part["data"] = {"name": name}
    return datasets


def series_color(field: str, colors: Mapping[str, str], **legend: object) -> Any:
    """A colour for each series by name, with a legend above the figure; ``legend`` are further properties of that."""
    alt = load("altair")
    names = list(colors)
    scale = alt.Scale(domain=names, range=list(colors.values()))
    return alt.Color(field, title=None, sort=None, scale=scale, legend=alt.Legend(orient="top", **legend))


def series_opacity(field: str, opacities: Mapping[str, float]) -> Any:
    """An opacity for each series by name."""
    alt = load("altair")
    names = list(opacities)
    scale = alt.Scale(type="ordinal", domain=names, range=list(opacities.values()))
    return alt.Opacity(field, title=None, sort=names, scale=scale)


def tooltips(titles: Mapping[str, str]) -> list[Any]:
    """What to show of a mark under the pointer: the title of each field."""
    return [load("altair").Tooltip(field, title=title) for field, title in titles.items()]


def energy_axis(most_j: float) -> tuple[str, dict[str, str]]:
    """The unit in which an axis of energies in J is read, and the options of the axis that say them in it.

    Args:
        most_j: that the axis shows.
    """
    return ("mJ", {"labelExpr": "format(1000 * datum.value, '~g')"}) if most_j < 1.0 else ("J", {})


def words(chart: Any, style: str = "label", **place: object) -> list[Any]:
    """The text of a chart, readable over lines; ``place`` is where it stands beside its point."""
    return [chart.mark_text(style=each, tooltip=None, **place) for each in ("halo", style)]


def beside(style: str, chart: Any, text: str, tooltip: Any) -> list[Any]:
    """A mark of a style with the text of a field beside it."""
    named = chart.encode(text=load("altair").Text(text))
    return [
        *words(named, align="left", baseline="middle", dx=11, dy=-1),
        chart.mark_point(style=style).encode(tooltip=tooltip),
    ]


def name_axis(names: Sequence[str], width: int) -> Any:
    """An axis of named rows: the scale is the row index and labels are looked up, so names may repeat and keep their order.

    Args:
        names: one for each row.
        width: of the labels, in pixels.
    """
    return load("altair").Axis(
        labelExpr=f"{_string_list(names)}[datum.value]",
        labelLimit=width,
        minExtent=width,
        maxExtent=width,
        ticks=False,
        domain=False,
        grid=False,
        labelPadding=8,
        labelFontSize=12,
    )


def _string_list(strings: Sequence[str]) -> str:
    """A list of strings in Vega's expression language; nothing in a string can end it."""
    quoted = ("".join(f"\\u{unit:04x}" for unit in _utf16(string)) for string in strings)
    return "[" + ",".join(f'"{string}"' for string in quoted) + "]"


def _utf16(text: str) -> list[int]:
    encoded = text.encode("utf-16-be", errors="surrogatepass")
    return [int.from_bytes(encoded[start : start + 2], "big") for start in range(0, len(encoded), 2)]


def vega_lite_version() -> str:
    """The Vega-Lite version that figures are written in, such as ``6.4``."""
    major_minor_patch: str = load("altair").SCHEMA_VERSION
    return ".".join(major_minor_patch.removeprefix("v").split(".")[:2])


def export_figures(figures: Iterable[Figure], origin: Origin, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each figure as SVG, PDF and PNG; those with nothing to draw are left out.

    All are drawn before the first is written, and each file appears whole or not at all.

    Args:
        figures: to write.
        origin: of their numbers.
        folder: where to write; created if missing.

    Returns:
        The files, ``relaxed-waste.svg`` and so on, in the order of the figures.

    Raises:
        BadInputError: the folder or a file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    contents = {
        f"{figure.name}.{suffix}": content
        for figure in figures
        if figure.specification is not None
        for suffix, content in _render(figure, origin).items()
    }
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{target}: cannot create this folder: {error.strerror or error}") from error
    for name, content in contents.items():
        write_bytes(target / name, content)
    return [target / name for name in contents]


def _render(figure: Figure, origin: Origin) -> dict[str, bytes]:
    converter = load("vl_convert")
    specification = _titled(figure, origin)
    # No base address is allowed: a figure holds its data and may not fetch anything.
    options: dict[str, Any] = {"vl_version": vega_lite_version(), "config": LIGHT, "allowed_base_urls": []}
    svg: str = converter.vegalite_to_svg(specification, **options)
    return {"svg": svg.encode("utf-8"), "pdf": converter.svg_to_pdf(svg), "png": converter.svg_to_png(svg, scale=PNG_SCALE)}


def _titled(figure: Figure, origin: Origin) -> dict[str, Any]:
    """The specification with its title inside, for a file that stands alone."""
    subtitle = [figure.subtitle] if origin == "measured" else [figure.subtitle, f"{origin}: {ORIGIN_TEXT[origin]}"]
    specification = dict(figure.specification or {})
    title = {"text": figure.title, "subtitle": subtitle}
    if "title" in specification:  # a single chart has a title of its own: wrap it in a row, which takes another
        return {
            "$schema": specification.pop("$schema"),
            "title": title,
            **{name: specification.pop(name) for name in ("datasets", "params") if name in specification},
            "hconcat": [specification],
        }
    return {**specification, "title": title}

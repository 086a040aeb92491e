"""All figures of a report, in the order they are shown, and the files they are exported to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from wastenot.errors import BadInputError
from wastenot.files import write_atomically
from wastenot.origin import Origin
from wastenot.reporting.figure import Figure
from wastenot.reporting.optional_imports import load
from wastenot.reporting.plan.curve_figure import curve_figure
from wastenot.reporting.plan.data import ReportData
from wastenot.reporting.plan.desirability_figure import desirability_figure
from wastenot.reporting.plan.kernels_figure import kernels_figure
from wastenot.reporting.plan.settings_figure import coarse_figure, kernel_figure
from wastenot.reporting.theme import LIGHT
from wastenot.reporting.words import ORIGIN_WORDS

PNG_SCALE = 2.0


def draw(data: ReportData) -> tuple[Figure, ...]:
    """All figures, also those that have nothing to draw and say why.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    return (
        curve_figure(data),
        coarse_figure(data),
        kernel_figure(data),
        kernels_figure(data),
        desirability_figure(data),
    )


def vega_lite_version() -> str:
    """The Vega-Lite version that figures are written in, such as ``6.4``."""
    major_minor_patch: str = load("altair").SCHEMA_VERSION
    return ".".join(major_minor_patch.removeprefix("v").split(".")[:2])


def write_figures(data: ReportData, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each figure as SVG, PDF and PNG; those with nothing to draw are left out.

    All are drawn before the first is written, and each file appears whole or not at all.

    Args:
        data: what to show.
        folder: where to; made if it is not there.

    Returns:
        The files, ``relaxed-waste.svg`` and so on, in the order of the report.

    Raises:
        BadInputError: the folder or a file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    return write_files(draw(data), data.plan.origin, folder)


def write_files(figures: Iterable[Figure], origin: Origin, folder: str | os.PathLike[str]) -> list[Path]:
    """As :func:`write_figures`, of any figures.

    Args:
        figures: to write.
        origin: of their numbers.
        folder: where to; made if it is not there.

    Raises:
        BadInputError: the folder or a file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    contents = {
        f"{figure.name}.{ending}": content
        for figure in figures
        if figure.specification is not None
        for ending, content in _render(figure, origin).items()
    }
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{target}: cannot be made a folder: {error.strerror or error}") from error
    written = []
    for name, content in contents.items():
        path = target / name
        write_atomically(path, _writer(content))
        written.append(path)
    return written


def _writer(content: bytes) -> Callable[[Path], None]:
    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    return write


def _render(figure: Figure, origin: Origin) -> dict[str, bytes]:
    converter = load("vl_convert")
    specification = titled(figure, origin)
    # No base address is allowed: a figure holds its data and may not fetch anything.
    options: dict[str, Any] = {"vl_version": vega_lite_version(), "config": LIGHT, "allowed_base_urls": []}
    svg: str = converter.vegalite_to_svg(specification, **options)
    return {
        "svg": svg.encode("utf-8"),
        "pdf": converter.svg_to_pdf(svg),
        "png": converter.svg_to_png(svg, scale=PNG_SCALE),
    }


def titled(figure: Figure, origin: Origin) -> dict[str, Any]:
    """The specification with its title inside it, for a file that stands alone."""
    subtitle = [figure.subtitle] if origin == "measured" else [figure.subtitle, f"{origin}: {ORIGIN_WORDS[origin]}"]
    specification = dict(figure.specification or {})
    title = {"text": figure.title, "subtitle": subtitle}
    if "title" in specification:  # a chart of one part has its own title: put it into a row, which takes another
        return {
            "$schema": specification.pop("$schema"),
            "title": title,
            **{name: specification.pop(name) for name in ("datasets", "params") if name in specification},
            "hconcat": [specification],
        }
    return {**specification, "title": title}

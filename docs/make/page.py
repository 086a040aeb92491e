"""What of a page is computed, so that no number and no picture of it is made by hand, and the one way to write it.

A block of a page stands between two comments, which readers do not see:

    <!-- computed: NAME -->
    | table | ... |
    <!-- end -->

Pictures stand in ``docs/images``. The modules beside this one hold the recipes; ``python -m docs.make --list`` shows them.
"""

from __future__ import annotations

import json
import re
import struct
import tempfile
import textwrap
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vl_convert

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"

_BLOCK = re.compile(r"(?<=<!-- computed: )([\w-]+)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """What of a page is computed.

    Attributes:
        name: of the page below ``docs``, without ``.md``.
        blocks: computes the text of each block, by its name.
        pictures: draws each picture, by its name in ``docs/images``.
        renew: returns the whole text of a page whose commands are run, given its path.
    """

    name: str
    blocks: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    renew: Callable[[Path], str] | None = None

    @property
    def path(self) -> Path:
        """The page."""
        return DOCS / f"{self.name}.md"

    def computed(self) -> dict[str, str]:
        """All blocks by name, computed anew."""
        return {name: compute() for name, compute in self.blocks.items()}

    def write(self, wanted: str | None = None) -> None:
        """Write all that is computed of the page, or only the block or picture of that name."""
        if self.renew is not None and wanted is None:
            self.path.write_text(self.renew(self.path))
        write_blocks(self.path, {name: compute() for name, compute in self.blocks.items() if wanted in (None, name)})
        for name, draw in self.pictures.items():
            if wanted in (None, name):
                drawn = draw()
                (IMAGES / name).write_bytes(packed(drawn) if name.endswith(".png") else drawn)


def blocks_of(page: Path) -> dict[str, str]:
    """The blocks of a page by name."""
    return {name: text for name, _, text in _BLOCK.findall(page.read_text())}


def write_blocks(page: Path, blocks: Mapping[str, str]) -> None:
    """Write blocks into a page.

    Raises:
        ValueError: the page has no such block.
    """
    missing = blocks.keys() - blocks_of(page).keys()
    if missing:
        raise ValueError(f"{page}: no block '{min(missing)}'")
    page.write_text(_BLOCK.sub(lambda found: f"{found[1]}{found[2]}{blocks.get(found[1], found[3])}", page.read_text()))


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text())


def table(heads: str, rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown; heads of columns are separated as they are there, by " | "."""
    lines = [f"| {line} |\n" for line in (heads, *map(" | ".join, rows))]
    return lines[0] + "|" + "---|" * len(heads.split(" | ")) + "\n" + "".join(lines[1:])


def filled(text: str, width: int = 125) -> str:
    """A paragraph in lines as long as the page's."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) + "\n"


def signed(value: float, digits: int, unit: str = "") -> str:
    """A number with its sign, as the pages write it."""
    return f"{value:+.{digits}f}{unit}".replace("-", "−")


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction in per cent."""
    return f"{100 * fraction:.{digits}f} %"


def png(chart: Any, scale: float = 1.5, config: Mapping[str, Any] | None = None) -> bytes:
    """An Altair chart as a picture, in the colours of ``config``."""
    return vl_convert.vegalite_to_png(chart.to_dict() | ({} if config is None else {"config": config}), scale=scale)


def figure(write: Callable[[str], Sequence[Path]], name: str, scale: float | None = None) -> bytes:
    """A figure of the product as a picture.

    Args:
        write: writes figures into a folder and returns their paths.
        name: of the figure.
        scale: pixels per unit, if not as files of figures have it.
    """
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        if scale is None:
            return (Path(folder) / f"{name}.png").read_bytes()
        return vl_convert.svg_to_png((Path(folder) / f"{name}.svg").read_text(), scale=scale)


def packed(picture: bytes) -> bytes:
    """The same PNG in a fifth of the bytes: what draws it compresses for speed."""
    head, chunks, at = picture[:8], [], 8
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        chunks.append((picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]))
        at += 12 + length
    pixels = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    end = chunks.pop()
    kept = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
    written = [*kept, (b"IDAT", zlib.compress(pixels, 9)), end]
    return head + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in written
    )

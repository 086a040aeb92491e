"""Which servers there are, and on which GPUs each runs: from the command line, or from a file.

[[instance]]
url = "http://localhost:8000"
devices = ["nvidia:0", "nvidia:1"]
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from wastenot.core.documents import Name, Part, first_problem
from wastenot.core.errors import BadInputError
from wastenot.core.files import read_text
from wastenot.serving.control.sources import host_of

_FORM = "write one such as http://localhost:8000=nvidia:0"


@dataclass(frozen=True, slots=True)
class Placement:
    """A server and its GPUs.

    Attributes:
        url: of the server.
        devices: that it runs on; none where it is only watched.
    """

    url: str
    devices: tuple[str, ...] = ()


def placements(named: Sequence[str], path: Path | None = None) -> tuple[Placement, ...]:
    """The servers that are named, and those of a file.

    Args:
        named: such as ``http://localhost:8000=nvidia:0,nvidia:1``.
        path: of a file in TOML.

    Raises:
        BadInputError: one cannot be understood, none is named, or a server or a GPU is given twice.
    """
    found = [_placement(each) for each in named] + ([] if path is None else _read(path))
    if not found:
        raise BadInputError(f"`instance`: no server is given; {_FORM}")
    for each in found:
        host_of(each.url)
    urls = [name for name, times in Counter(each.url for each in found).items() if times > 1]
    if urls:
        raise BadInputError(f"`instance` {urls[0]}: is given twice")
    devices = [name for name, times in Counter(one for each in found for one in each.devices).items() if times > 1]
    if devices and not devices[0].startswith("sim:"):
        raise BadInputError(f"`instance`: {devices[0]} is given to two servers; one clock cannot follow both")
    return tuple(found)


def _placement(text: str) -> Placement:
    url, equals, devices = text.rpartition("=")
    if not equals:
        return Placement(text.rstrip("/"))
    names = tuple(name.strip() for name in devices.split(","))
    if not all(names):
        raise BadInputError(f"`instance` {text}: gives no GPU after the equals sign; {_FORM}")
    return Placement(url.rstrip("/"), names)


class _Instance(Part):
    url: Name
    devices: list[Name] = []  # noqa: RUF012 — pydantic copies it


class _File(Part):
    instance: list[_Instance]


def _read(path: Path) -> list[Placement]:
    remedy = "a file of servers has [[instance]] with url and devices"
    try:
        content = _File.model_validate(tomllib.loads(read_text(path, remedy)))
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path}: is not TOML ({error}); {remedy}") from error
    except ValidationError as error:
        field, problem = first_problem(error)
        raise BadInputError(f"{path}: {'.'.join(map(str, field))}: {problem}; {remedy}") from error
    return [Placement(each.url.rstrip("/"), tuple(each.devices)) for each in content.instance]

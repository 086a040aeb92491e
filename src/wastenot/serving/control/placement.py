"""Which servers there are, and on which GPUs each runs: from the command line, or from a file.

[[instance]]
url = "http://localhost:8000"
devices = ["nvidia:0", "nvidia:1"]
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from wastenot.core.documents import Name, Part, first_problem
from wastenot.core.errors import BadInputError
from wastenot.core.files import read_text
from wastenot.serving.control.sources import host_of

_FORM = "write one such as http://localhost:8000=nvidia:0"


def placements(named: Sequence[str], path: Path | None = None) -> dict[str, tuple[str, ...]]:
    """The servers that are named, and those of a file: the GPUs of each by its address, none where it is only watched.

    Args:
        named: such as ``http://localhost:8000=nvidia:0,nvidia:1``.
        path: of a file in TOML.

    Raises:
        BadInputError: one cannot be understood, none is named, or a server or a GPU is given twice.
    """
    found = [_placement(each) for each in named] + ([] if path is None else _read(path))
    urls = [name for name, times in Counter(url for url, _ in found).items() if times > 1]
    if urls:
        raise BadInputError(f"`instance` {urls[0]}: is given twice")
    check_placements(dict(found))
    return dict(found)


def check_placements(devices: Mapping[str, Sequence[str]]) -> None:
    """Refuse servers and GPUs that cannot be controlled together.

    Args:
        devices: of each server, by its address.

    Raises:
        BadInputError: there is no server, an address is none, or a GPU is given twice.
    """
    if not devices:
        raise BadInputError(f"`instance`: no server is given; {_FORM}")
    for url in devices:
        host_of(url)
    twice = [name for name, times in Counter(one for each in devices.values() for one in each).items() if times > 1]
    if twice and not twice[0].startswith("sim:"):
        raise BadInputError(f"`instance`: {twice[0]} is given to two servers; one clock cannot follow both")


def _placement(text: str) -> tuple[str, tuple[str, ...]]:
    url, equals, devices = text.rpartition("=")
    if not equals:
        return text.rstrip("/"), ()
    names = tuple(name.strip() for name in devices.split(","))
    if not all(names):
        raise BadInputError(f"`instance` {text}: gives no GPU after the equals sign; {_FORM}")
    return url.rstrip("/"), names


class _Instance(Part):
    url: Name
    devices: list[Name] = []  # noqa: RUF012 — pydantic copies it


class _File(Part):
    instance: list[_Instance]


def _read(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    remedy = "a file of servers has [[instance]] with url and devices"
    try:
        content = _File.model_validate(tomllib.loads(read_text(path, remedy)))
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path}: is not TOML ({error}); {remedy}") from error
    except ValidationError as error:
        field, problem = first_problem(error)
        raise BadInputError(f"{path}: {'.'.join(map(str, field))}: {problem}; {remedy}") from error
    return [(each.url.rstrip("/"), tuple(each.devices)) for each in content.instance]

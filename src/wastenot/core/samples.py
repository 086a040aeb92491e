"""Small files to try commands on, which are installed with the package; README.md beside them says what each is."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from wastenot.core.errors import BadInputError
from wastenot.core.files import write_bytes
from wastenot.core.suggest import suggestion

FOLDER: Final = Path(str(resources.files("wastenot"))) / "samples"
PREFIX: Final = "sample:"
"""Before the name of a sample, where a file names another one."""

_LISTED = re.compile(r"^- `([\w.-]+)`: (.+?)(?=\n- |\n\n|\Z)", re.MULTILINE | re.DOTALL)


def samples() -> dict[str, str]:
    """What each sample is, by its name."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    return {name: " ".join(said.split()).rstrip(".") for name, said in _LISTED.findall(text)}


def sample_file(name: str) -> Path:
    """Where a sample stands.

    Raises:
        BadInputError: there is none of this name.
    """
    known = samples()
    if name not in known:
        raise BadInputError(f"{name}: is not a sample; {suggestion(name, known)}")
    return FOLDER / name


def file_named(name: str | os.PathLike[str], folder: Path = Path()) -> Path:
    """Where a file of that name stands: ``sample:engine.json`` among the samples, others relative to a folder."""
    text = os.fspath(name)
    return sample_file(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else folder / text


def copy_samples(names: Sequence[str], folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Copy samples into a folder, all of them or, where one cannot be, none.

    Args:
        names: of samples.
        folder: an existing one.
        overwrite: replace files of these names.

    Returns:
        The files written.

    Raises:
        BadInputError: there is no such sample or folder, or a file of that name exists already.
    """
    if not folder.is_dir():
        raise BadInputError(f"{folder}: is not a folder; make it first")
    pairs = [(sample_file(name), folder / name) for name in dict.fromkeys(names)]
    for _, target in pairs:
        if target.exists() and not overwrite:
            raise BadInputError(f"{target}: already exists; `force` replaces it, or name another folder with `out`")
    for source, target in pairs:
        write_bytes(target, source.read_bytes())
    return [target for _, target in pairs]

"""``wastenot samples``: small files to try commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from wastenot.core.errors import BadInputError
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption


def samples(
    names: Annotated[list[str] | None, argument("Which to copy; without any, all are listed.", "[NAME...]")] = None,
    every: Annotated[bool, option("Copy all of them.", flag="--all")] = False,
    out: Annotated[Path, option("Where to copy them to.", "DIR")] = Path(),
    force: Annotated[bool, option("Replace files of the same names.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List small input files to try commands on, or copy some.

    Traces of requests, tables of measurements, a scenario and more, small and simulated: each what a command reads.
    """
    from wastenot.core.samples import copy_samples, samples as known
    from wastenot.terminal.output import print_json, say

    if names and every:
        raise BadInputError("--all: copies all samples; leave out the names, or --all")
    copied = copy_samples(list(known()) if every else names or (), out, overwrite=force)
    if as_json:
        listed = [{"name": name, "what": what} for name, what in known().items()]
        print_json("samples", {"samples": listed, "written": [str(path) for path in copied]})
        return
    for path in copied:
        say(f"{path}: written")
    if not copied:
        width = max(map(len, known()))
        for name, what in known().items():
            print(f"{name:<{width}}  {what}")
        say("copy them with: wastenot samples NAME..., or wastenot samples --all")

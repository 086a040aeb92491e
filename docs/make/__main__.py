"""Makes what the docs show of data and of commands: ``python -m docs.make [--list] [NAME...]``.

NAME is a page (``h200``), one of its blocks (``h200:watts``) or a picture (``steer-minute.png``). Without any, everything
is made, long sweeps and fits included; ``--list`` shows what there is and where its recipe stands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from subprocess import CalledProcessError
from types import ModuleType
from typing import Any

from docs.make.page import Page
from wastenot.core.errors import WastenotError

Found = tuple[ModuleType, Page]


def pages() -> Iterator[Found]:
    """Every page of which something is computed, with the module of its recipes."""
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        module = import_module(f"docs.make.{path.stem}")
        for page in getattr(module, "PAGES", ()):
            yield module, page


def listed(found: Found) -> str:
    """A page in the list: its recipes, and what each of them makes."""
    module, page = found
    lines = [f"{page.name}    docs/make/{module.__name__.rpartition('.')[2]}.py: {_first_line(module.__doc__)}"]
    if page.renew is not None:
        lines.append(f"    {'the whole page':40} {described(page.renew)}")
    recipes = {f"{page.name}:{name}": recipe for name, recipe in page.blocks.items()} | page.pictures
    return "\n".join([*lines, *(f"    {name:40} {described(recipe)}" for name, recipe in recipes.items())])


def described(recipe: Callable[[], Any]) -> str:
    """What a recipe says of itself."""
    if isinstance(recipe, partial):
        return f"{described(recipe.func)} ({', '.join(map(str, recipe.args))})"
    return _first_line(recipe.__doc__)


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


def wanted_by(name: str, every: list[Found]) -> tuple[Page, str | None]:
    """The page to write for a name, and what of it; ``None`` for all."""
    for _, page in every:
        if name == page.name:
            return page, None
        of, _, block = name.partition(":")
        if name in page.pictures or (of == page.name and block in page.blocks):
            return page, block or name
    sys.exit(f"nothing is called {name!r}; see python -m docs.make --list")


def main() -> None:
    """Make what is named."""
    parser = argparse.ArgumentParser(prog="python -m docs.make", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show what there is, and make nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a page, PAGE:BLOCK or a picture; without any, everything")
    options = parser.parse_args()
    every = list(pages())
    if options.list:
        print(*map(listed, every), sep="\n")
        return
    left_out = []
    for page, what in [wanted_by(name, every) for name in options.names] or [(page, None) for _, page in every]:
        print(f"{page.name}{f': {what}' if what else ''}", flush=True)
        try:
            page.write(what)
        except (FileNotFoundError, CalledProcessError, WastenotError) as error:
            left_out.append(f"{page.name} is left out: {error}")
    sys.exit("\n".join(left_out) or None)


if __name__ == "__main__":
    main()

"""What is wrong with a command line, in our words instead of those of the libraries that read it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wastenot.core.suggest import nearest, suggestion

_ABOUT = re.compile(r"^Invalid value for '([^']+)': (?:Value error, )?", re.DOTALL)
_CHOICE = re.compile(r"'([^']*)' is not one of ((?:'[^']*'(?:, )?)+)\.?$")
_UNKNOWN = re.compile(r"No such option: (\S+) \(Possible options: ([^)]*)\)")
_NUMBERS = {
    "Input should be a valid integer": "must be a whole number",
    "Input should be a valid number": "must be a number",
}


def usage_text(message: str, arguments: Sequence[str]) -> str:
    """A message about a command line.

    Args:
        message: of Typer, Click or pydantic.
        arguments: that were typed.
    """
    about = _ABOUT.match(message)
    said = message[about.end() :] if about else message
    for theirs, ours in _NUMBERS.items():
        if said.startswith(theirs):
            said = ours
    choice = _CHOICE.fullmatch(said)
    if choice:
        known = choice[2].replace("'", "").split(", ")
        said = f"there is no '{choice[1]}'; {suggestion(choice[1], known)}"
    unknown = _UNKNOWN.fullmatch(said)
    if unknown:
        near = nearest(unknown[1], unknown[2].split(", "))
        said = f"No such option: {unknown[1]}" + ("" if near is None else f"; did you mean {near}?")
    if said.startswith("Missing option '--study'"):
        files = [argument for argument in arguments[1:] if argument.endswith(".db")]
        said = f"Missing option '--study': write --study {files[0]}" if files else said
    return f"{about[1]}: {said}" if about else said

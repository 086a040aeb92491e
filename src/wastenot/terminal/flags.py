"""The flags of the command line that stand for arguments of the library."""

from __future__ import annotations

from collections.abc import Callable

_FLAG_OF: dict[str, str] = {
    "state": "--energies",
    "rate_per_s": "--rate",
    "policies": "--policy",
    "stale_s": "--stale-after",
    "end_to_end": "--e2e",
    "switch_s": "--switch-time",
}
"""Flags whose names differ from the arguments of the library that they set."""

_asked: Callable[[], set[str]] = set


def know_flags(flags: Callable[[], set[str]]) -> None:
    """Have flags looked up among those of the commands, which are asked for when first needed."""
    global _asked  # noqa: PLW0603 - there is one command line in a process
    _asked = flags


def flag_of(argument: str) -> str:
    """The flag that stands for an argument of the library, so that errors name what the user typed.

    ``max_slowdown`` is ``--max-slowdown``; a unit may be left out (``clock_tolerance_mhz`` is ``--clock-tolerance``), and a
    few have other names. An argument without a flag keeps its name.
    """
    flags = _asked()
    flag = _FLAG_OF.get(argument, "--" + argument.replace("_", "-"))
    for known in (flag, flag.rpartition("-")[0]):
        if known in flags:
            return known
    return argument

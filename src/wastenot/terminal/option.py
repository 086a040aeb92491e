"""How commands declare an option: what it means and what stands for its value; its flag is the parameter's name."""

from __future__ import annotations

from typing import Any

import typer


def option(help: str, metavar: str | None = None, *, flag: str | None = None, **more: Any) -> Any:
    """What Typer reads an option from, as the annotation of a parameter.

    Args:
        help: what it means.
        metavar: what stands for its value; ``None`` for a switch, and where the choices say it.
        flag: where it is not the parameter's name: ``max_slowdown`` is ``--max-slowdown``.
        more: of ``typer.Option``, such as ``parser`` and ``autocompletion``.
    """
    return typer.Option(*([] if flag is None else [flag]), metavar=metavar, help=help, **more)


def argument(help: str, metavar: str, **more: Any) -> Any:
    """What Typer reads an argument from, likewise."""
    return typer.Argument(metavar=metavar, help=help, **more)

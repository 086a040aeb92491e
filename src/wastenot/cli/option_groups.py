"""Commands as Typer takes them: a dataclass parameter stands for an option per field, and switches have one flag.

So options that several commands share are declared once.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, get_args, get_type_hints

from typer.models import OptionInfo


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command as Typer takes it: each dataclass among its parameters is replaced by its fields, which it is built from.

    Args:
        command: its parameters, and the fields of the dataclasses, are annotated by :mod:`wastenot.terminal.option`.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not (isinstance(group, type) and dataclasses.is_dataclass(group)):
            annotation = _with_flag(parameter.name, parameter.annotation)
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation))
            continue
        hints = get_type_hints(group, include_extras=True)
        fields = dataclasses.fields(group)
        groups[parameter.name] = (group, [field.name for field in fields])
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
                annotation=_with_flag(field.name, hints[field.name]),
            )
            for field in fields
        ]

    def expanded(**values: Any) -> None:
        for name, (group, fields) in groups.items():
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**values)

    expanded.__name__, expanded.__doc__, expanded.__module__ = command.__name__, command.__doc__, command.__module__
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def _with_flag(name: str, annotation: Any) -> Any:
    """The annotation of a switch with its flag, as Typer would add a second one, ``--no-...``; any other as it is."""
    kind, *declared = get_args(annotation) or (annotation,)
    named = not declared or not isinstance(declared[0], OptionInfo) or declared[0].default is not ...
    if kind is not bool or named:
        return annotation
    switch = copy(declared[0])
    switch.param_decls = (f"--{name.replace('_', '-')}",)
    return Annotated[bool, switch]

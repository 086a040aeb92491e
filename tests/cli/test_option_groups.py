"""Options declared once for several verbs."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer

from wastenot.cli.main import app
from wastenot.cli.option_groups import expand_groups


@dataclass(frozen=True)
class _Size:
    width: Annotated[int, typer.Option("--width")]
    height: Annotated[int, typer.Option("--height")] = 2


def test_a_verb_takes_the_fields_of_a_group_and_gets_the_group():
    taken = []

    def verb(name: Annotated[str, typer.Argument()], *, size: _Size, loud: Annotated[bool, typer.Option("--loud")] = False):
        """Says what it took."""
        taken.append((name, size, loud))

    expanded = expand_groups(verb)
    assert list(inspect.signature(expanded).parameters) == ["name", "width", "height", "loud"]
    assert (expanded.__name__, expanded.__doc__) == ("verb", "Says what it took.")
    expanded(name="box", width=3, height=2, loud=True)
    assert taken == [("box", _Size(3, 2), True)]


def test_every_verb_and_every_option_has_a_help_text():
    for name, verb in typer.main.get_command(app).commands.items():
        assert verb.help, name
        assert verb.get_short_help_str(62)[-3:] != "...", name
        for parameter in verb.params:
            assert getattr(parameter, "help", None), (name, parameter.name)

"""What help shows: everyday commands and subjects, and examples that work."""

import re
import shlex

import pytest

from testbed.program import COMMANDS, words_of
from wastenot.cli.help_text import EVERY_DAY, EXAMPLES, GROUPS, REPLACED

LINES = [line for command, lines in EXAMPLES.items() if command in COMMANDS for line in lines]
READS_A_STUDY = ("kernel plan", "kernel frontier", "show", "kernel workloads")


def parse(line):
    """Parse an example as the program would; raises where it does not fit the options of its command."""
    typed = line.partition("| ")[2] if line.startswith("cat ") else line.partition(" |")[0]
    program, *arguments = shlex.split(typed)
    assert program == "wastenot"
    words = words_of(arguments)
    COMMANDS[words].make_context(f"wastenot {words}", arguments[len(words.split()) :])


@pytest.mark.parametrize("group", [(), *((name,) for name in GROUPS)])
def test_a_bare_group_is_its_help(wastenot, group):
    bare = wastenot(*group)
    assert (bare.code, bare.err) == (0, "")
    assert bare.out == wastenot(*group, "--help").out
    at_80 = wastenot(*group, "--help", COLUMNS="80").out
    assert [line for line in at_80.splitlines() if line.startswith("  ") and line.endswith("...")] == []


def test_the_first_help_fits_a_screen(wastenot):
    shown = wastenot("--help", COLUMNS="80").out
    assert shown.count("\n") <= 34
    top = {words.split()[0] for words in COMMANDS}
    assert top == {*EVERY_DAY, *GROUPS, "reproduce"}
    assert all(f"\n  {name} " in shown for name in top)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_ends_with_examples_of_it(wastenot, command):
    ran = wastenot(*command.split(), "--help")
    assert ran.code == 0
    tail = ran.out.rstrip("\n").partition("\nExamples:\n")[2].splitlines()
    assert tail == [f"  {line}" for line in EXAMPLES[command]] and tail
    assert all(f"wastenot {command}" in line for line in tail)


@pytest.mark.parametrize("name", [*REPLACED, "profile", "pipeline", "job"])
def test_a_former_name_gives_the_new_one(wastenot, name):
    said = wastenot.refuse(name, "x.db", "--study", "my.db")
    now = re.search(rf"'{name}' is now 'wastenot ([^']+)'", said)
    assert now is not None and now[1].partition(" --")[0] in COMMANDS


@pytest.mark.parametrize("line", LINES)
def test_examples_fit_the_options(line):
    parse(line)


@pytest.mark.parametrize("line", [line for command in READS_A_STUDY for line in EXAMPLES[command]])
def test_examples_that_read_a_study_run(study, line):
    assert study(*shlex.split(line)[1:]).code == 0

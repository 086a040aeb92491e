"""What help shows: where to begin, every verb in one group, and examples that work."""

import shlex

import pytest

from testbed.program import COMMANDS
from wastenot.cli.help_text import BEGIN, EXAMPLES, VERBS

LINES = [line for verb, lines in EXAMPLES.items() if verb in COMMANDS for line in lines]
READS_A_STUDY = ("plan", "frontier", "compare", "show", "workloads")


def parse(line):
    """Parse an example as the program would; raises where it does not fit the options of its verb."""
    command = line.partition("| ")[2] if line.startswith("cat ") else line.partition(" |")[0]
    program, verb, *arguments = shlex.split(command)
    assert program == "wastenot"
    COMMANDS[verb].make_context(verb, arguments)
    return verb, arguments


def test_bare_wastenot_is_help(wastenot):
    bare = wastenot()
    assert (bare.code, bare.err) == (0, "")
    assert bare.out == wastenot("--help").out
    lines = bare.out.splitlines()
    assert lines[lines.index("Where to begin:") + 1].startswith("  wastenot ")
    assert lines.index("Where to begin:") < 8


def test_every_verb_stands_in_one_group(wastenot):
    grouped = [verb for verbs in VERBS.values() for verb in verbs]
    assert len(grouped) == len(set(grouped))
    assert COMMANDS.keys() <= set(grouped)
    shown = wastenot("--help").out
    assert all(f"\n  {verb} " in shown for verb in COMMANDS)
    assert all(f"\n{title}:\n" in shown for title in VERBS)
    at_80 = wastenot("--help", COLUMNS="80").out
    assert [line for line in at_80.splitlines() if line.startswith("  ") and line.endswith("...")] == []


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_of_every_verb_ends_with_examples_of_it(wastenot, verb):
    ran = wastenot(verb, "--help")
    assert ran.code == 0
    tail = ran.out.rstrip("\n").partition("\nExamples:\n")[2].splitlines()
    assert tail == [f"  {line}" for line in EXAMPLES[verb]] and tail
    assert all(f"wastenot {verb}" in line for line in tail)


@pytest.mark.parametrize("line", LINES)
def test_examples_fit_the_options(line):
    parse(line)


def test_the_lines_to_begin_with_fit_the_options():
    for line in BEGIN:
        if line.split()[1] in COMMANDS:
            parse(line)


@pytest.mark.parametrize("line", [line for line in LINES if line.split()[1] in READS_A_STUDY])
def test_examples_that_read_a_study_run(study, line):
    assert study(*shlex.split(line)[1:]).code == 0

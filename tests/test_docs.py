"""The documentation names what there is."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import wastenot as wn
from docs.make.architecture import FLOORS, ROOMS, draw
from docs.make.page import IMAGES
from testbed.program import COMMANDS, words_of
from wastenot.cli.help_text import GROUPS
from wastenot.core.stability import PUBLIC

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "wastenot"


def test_every_public_name_has_its_entry_and_no_other_has():
    text = (ROOT / "docs" / "api.md").read_text()
    entries = {
        part.partition("\n")[0]: sorted(re.findall(r"^::: wastenot\.([\w.]+)$", part, re.M))
        for part in text.split("\n## ")[1:]
    }
    assert {subject: names for subject, names in entries.items() if names} == {
        subject: sorted((*names.stable, *names.experimental)) for subject, names in PUBLIC.items()
    }


def test_every_public_name_is_stable_or_experimental():
    marked = [name for of_it in PUBLIC.values() for name in (*of_it.stable, *of_it.experimental)]
    assert sorted(marked) == sorted([*wn.__all__, *(f"serve.{name}" for name in wn.serve.__all__)])


def test_the_picture_of_the_rooms_shows_those_that_exist():
    assert {path.parent.name for path in SRC.glob("*/__init__.py")} == ROOMS
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    assert [{room.strip().removeprefix("wastenot.") for room in layer.split("|")} for layer in layers] == [*map(set, FLOORS)]
    assert (IMAGES / "architecture.svg").read_bytes() == draw()


def test_files_that_the_documents_point_to_are_there():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def test_paths_in_the_architecture_are_there():
    named = re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", (ROOT / "docs" / "architecture.md").read_text())
    future = {"devices/amd/"}
    assert [path for path in set(named) - future if not ((SRC / path).exists() or (ROOT / path).exists())] == []


def _typed(page: Path) -> Iterator[list[str]]:
    """The arguments of every ``wastenot`` command in the code of a page, in blocks and within sentences."""
    text = page.read_text()
    blocks = re.findall(r"^(?:```\w*\n.*?^```|(?:    [^\n]*\n)+)", text, re.M | re.S)
    typed = [line for block in blocks for line in re.findall(r"^(?:    )?(?:\$ )?(?:sudo )?wastenot (.+)", block, re.M)]
    typed += re.findall(r"(?<!\S)\(?`wastenot ([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    for line in typed:
        words = shlex.split(line, comments=True)
        program = "--" in words
        end = min((words.index(stop) for stop in ("|", ">", "&&", "--") if stop in words), default=len(words))
        if not {"...", "…", "COMMAND", "--help"} & set(words):
            yield words[:end] + ["--", "program"] * program


def test_commands_that_the_documents_show_have_these_options():
    shown = {page: list(_typed(page)) for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
    assert len(shown[ROOT / "README.md"]) > 5
    for page, commands in shown.items():
        for typed in commands:
            if typed[0].startswith("-") or (len(typed) == 1 and typed[0] in GROUPS):
                continue
            words = words_of(typed)
            assert words, f"{page.name}: wastenot {' '.join(typed)}"
            arguments = typed[len(words.split()) :]
            try:
                COMMANDS[words].make_context(f"wastenot {words}", arguments)
            except Exception as error:
                if type(error).__name__ != "MissingParameter":  # a sentence need not name all
                    raise AssertionError(f"{page.name}: wastenot {words} {arguments}: {error}") from error

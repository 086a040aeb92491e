"""The documentation names what there is."""

import re
from pathlib import Path

from docs.make_architecture import PICTURE, ROOMS, draw

import wastenot as wn

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "wastenot"


def test_every_public_name_has_its_entry_and_no_other_has():
    entries = re.findall(r"^::: wastenot\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.M)
    assert sorted(entries) == sorted(wn.__all__)


def test_the_picture_of_the_rooms_shows_those_that_exist():
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert packages - ROOMS.keys() == set()
    assert {room for room in ROOMS if not (SRC / room).is_dir() and not (SRC / f"{room}.py").is_file()} == set()
    assert PICTURE.read_text() == draw()


def test_files_that_the_documents_point_to_are_there():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def test_paths_in_the_architecture_are_there():
    named = re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", (ROOT / "docs" / "architecture.md").read_text())
    future = {"devices/amd/"}
    assert [path for path in set(named) - future if not ((SRC / path).exists() or (ROOT / path).exists())] == []

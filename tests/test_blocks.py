"""Pages do what they say: every block is run as a reader would paste it, on the installed package, in an empty folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.kept import ROOT
from docs.make.blocks import BLOCK, REASONS, differences, left_out, pages, run_page
from docs.make.page import DOCS
from docs.make.tutorials import renewed

EVERY = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LANGUAGES = ("console", "sh", "python", "text", "csv", "json", "toml", "yaml")
LEFT_OUT = {
    "needs a GPU": 11,
    "needs a program of yours": 11,
    "needs a running server": 6,
    "needs a second terminal": 4,
    "needs root": 8,
    "needs the network": 2,
    "installs": 12,
    "takes minutes": 1,
    "compared by a test of its own": 5,
}


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with the package as its wheel installs it; one for all processes of the tests."""
    shared = tmp_path_factory.getbasetemp().parent if worker_id != "master" else tmp_path_factory.getbasetemp()
    folder = shared / "installed"
    with _lock(shared / "installing"):
        if not folder.exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    clone = folder.with_name("to-install")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", clone / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    here = int(version("setuptools").partition(".")[0]) >= 77  # as pyproject.toml asks for; an older one is not used
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    options = ["--no-deps", *(["--no-build-isolation"] if here else []), "--target", str(folder)]
    subprocess.run([*pip, *options, str(clone)], check=True)
    shutil.rmtree(clone)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        flock(file, LOCK_EX)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).with_suffix("").as_posix())
def test_every_block_runs_and_prints_what_the_page_shows(page: Path, installed: Path, tmp_path: Path) -> None:
    for command, code, printed in run_page(page, tmp_path, installed):
        assert code == command.exit_code, "\n".join([f"$ {command.typed}", *printed])
        name = page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")
        assert differences(command, printed) == [], f"renew it: python -m docs.make {name}"


def test_blocks_say_what_language_they_are_in_and_why_they_are_not_run() -> None:
    for page in EVERY:
        assert [language for *_, language, _ in BLOCK.findall(page.read_text()) if language not in LANGUAGES] == [], (
            page.name
        )
        indented = re.findall(r"(?<=\n\n)    \S.*", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))
        assert indented == [], page.name
    assert Counter(reason for page in EVERY for reason in left_out(page)) == LEFT_OUT
    assert LEFT_OUT.keys() == set(REASONS)


def test_python_keeps_its_names_from_block_to_block_and_says_what_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: two.txt -->\n```text\n2\n```\n```python\ntwo = int(open('two.txt').read())\n```\n"
        "```python\nprint(two + 1)\n```\n```python\nthree\n```\n<!-- not run: needs root -->\n```sh\nfalse\n```\n"
        "```text\nfalse\n```\n```sh\nfalse\necho not reached\n```\n"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    ran = [(code, printed[-1:]) for _, code, printed in run_page(page, folder)]
    assert ran == [(0, []), (0, ["3"]), (1, ["NameError: name 'three' is not defined"]), (1, [])]
    assert left_out(page) == ["needs root"]


def test_a_page_is_renewed_where_it_shows_what_is_printed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "```sh\necho a\n```\n<!-- run -->\n```console\n$ echo b\n{}\n```\n```console\n$ echo c\nas it was\n```\n"
    page.write_text(text.format("old"))
    assert renewed(page) == text.format("b")

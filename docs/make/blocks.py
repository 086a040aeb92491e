"""What a reader runs of a page: every block of commands and of Python, one after another in one folder.

    ```sh                       commands: ``console`` with a prompt and what they print, ``sh`` without; ``python``, whose
    wastenot samples --all      blocks share their names over a page; other languages are shown and not run
    ```

A comment before a block, invisible to readers, says what else is to be known:

    <!-- run -->                what a console prints is compared with what the page shows
    <!-- run: numbers vary -->  only the words are compared
    <!-- run: exit 2 -->        the command must fail
    <!-- run: on an H200 -->    NVML is the stand-in's, in virtual time: a simulated H200 that looks like a real one
    <!-- run: on an H200 as an ordinary user -->
    <!-- run: on an H200 in real time -->    where ``python`` runs what a program would that uses CUDA
    <!-- file: step.py -->      a file that later commands find
    <!-- not run: needs root -->    one of ``REASONS``

    <!-- run: cut after "Applicable today" -->             ``[…]`` stands for what follows the first line with these words
    <!-- run: cut after "Next:", resume at "Kernel" -->    ... up to the first line with those; once more may follow

A test runs the same (``tests/test_blocks.py``): words must be those printed, and numbers equal within 2 %.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kept import ROOT
from docs.make.page import DOCS
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.program import USER_VARIABLE, WALL_VARIABLE

CUT = "[…]"
COLUMNS = 100

REASONS = (
    "needs a GPU",
    "needs a program of yours",
    "needs a running server",
    "needs a second terminal",
    "needs root",
    "needs the network",
    "installs",
    "takes minutes",
    "compared by a test of its own",
)
"""Why a block is not run."""

BLOCK = re.compile(r"(?:<!-- (run|file|not run)(?:: ([^\n]*?))? -->\n)?^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_CUTS = re.compile(r'cut after "([^"]*)"(?:, resume at "([^"]*)")?')
_RUN = ("console", "sh", "python")
_OF_THE_RUN = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?|(?<=here it takes ).*"
)  # when, and how fast the machine is
_PROGRESS = re.compile(r": [\d,]+ of [\d,]+, .* left\b")  # where no terminal shows a bar
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


@dataclass(frozen=True, slots=True)
class Command:
    """What a reader types: a command with a prompt, a block of commands, or one of Python.

    Attributes:
        typed: without the prompt.
        shown: the lines below it; ``None`` where they are not compared with what is printed.
        python: whether it is Python.
        on: name of the stand-in's preset, or nothing where no GPU is there.
        wall: in real time.
        user: by an ordinary user rather than root.
        numbers_vary: whether only words are compared.
        exit_code: with which it must end.
        cuts: words of the last line shown before each cut, and of the line from which lines are shown again, if any are.
    """

    typed: str
    shown: tuple[str, ...] | None = None
    python: bool = False
    on: str | None = None
    wall: bool = False
    user: bool = False
    numbers_vary: bool = False
    exit_code: int = 0
    cuts: tuple[tuple[str, str | None], ...] = ()

    def cut(self, printed: list[str]) -> list[str]:
        """What was printed, shortened where the page shortens it; as it is where the words do not occur."""
        kept: list[str] = []
        rest = printed
        for after, again in self.cuts:
            last = _line_with(after, rest, 0)
            if last is None:
                break
            resumed = None if again is None else _line_with(again, rest, last + 1)
            kept += [*rest[: last + 1], CUT]
            rest = [] if resumed is None else rest[resumed:]
        return [*kept, *rest]


@dataclass(frozen=True, slots=True)
class File:
    """A file that a page has the reader write."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a page shows something else than what is printed."""

    command: str
    shown: str
    printed: str


def pages() -> list[Path]:
    """Every page with a block that is run, README first."""
    every = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md"))]
    return [page for page in every if any(isinstance(step, Command) for step in steps_of(page))]


def steps_of(page: Path) -> list[Command | File]:
    """What a reader of the page does, in order."""
    steps: list[Command | File] = []
    for kind, option, language, body in BLOCK.findall(page.read_text()):
        if kind == "file":
            steps.append(File(option, body))
        elif kind != "not run" and language in _RUN:
            steps += commands_of(option, body, language, compared=kind == "run")
    return steps


def left_out(page: Path) -> list[str]:
    """Why blocks of a page are not run."""
    return [option for kind, option, *_ in BLOCK.findall(page.read_text()) if kind == "not run"]


def run_page(page: Path, folder: Path, package: Path = ROOT / "src") -> Iterator[tuple[Command, int, list[str]]]:
    """Do in a folder what a reader of the page does; yields each command with its exit code and the lines it printed.

    Args:
        page: of the documentation.
        folder: an empty one.
        package: the folder where ``wastenot`` is imported from.
    """
    with _machine(folder.with_name(f"{folder.name}-machine"), package) as machine:
        python = None
        for step in steps_of(page):
            if isinstance(step, File):
                (folder / step.name).write_text(step.text)
                continue
            if step.python:
                python = python or machine.python(folder)
                code, printed = python.run(step.typed)
            else:
                done = subprocess.run(
                    ["bash", "-e", "-o", "pipefail", "-c", step.typed],
                    cwd=folder, env=machine.environment(step), check=False, text=True, encoding="utf-8",
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
                code, printed = done.returncode, done.stdout
            lines = [line.rstrip() for line in printed.replace(str(folder), "~").splitlines()]
            kept = [line for line in lines if not _PROGRESS.search(line)]
            if step.numbers_vary:  # a note may or may not stand below them
                kept = [line for line in kept if not line.startswith("  note:")]
            yield step, code, kept


def differences(command: Command, printed: list[str]) -> list[Difference]:
    """Lines of a command that the page shows otherwise."""
    if command.shown is None:
        return []
    shown, lines = list(command.shown), command.cut(printed)
    if [_words(line) for line in shown] != [_words(line) for line in lines]:
        length = max(len(shown), len(lines))
        pairs = zip(shown + [""] * (length - len(shown)), lines + [""] * (length - len(lines)), strict=True)
        return [Difference(command.typed, *pair) for pair in pairs if _words(pair[0]) != _words(pair[1])]
    if command.numbers_vary:
        return []
    return [Difference(command.typed, *pair) for pair in zip(shown, lines, strict=True) if not _near(*pair)]


def commands_of(option: str, body: str, language: str, *, compared: bool) -> list[Command]:
    """The commands of a block, with what is shown below each."""
    option = option or ""
    if language != "console":
        return [Command(body.rstrip(), python=language == "python", **_on(option))]
    code = re.search(r"exit (\d+)", option)
    commands: list[Command] = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        typed, *shown = _continued(part)
        commands.append(
            Command(
                typed,
                tuple(shown) if compared else None,
                **_on(option),
                numbers_vary="numbers vary" in option,
                exit_code=0 if code is None else int(code[1]),
                cuts=tuple((after, again or None) for after, again in _CUTS.findall(option)),
            )
        )
    return commands


def _on(option: str) -> dict[str, Any]:
    """On which machine a block is run."""
    return {
        "on": "h200" if "on an H200" in option else None,
        "wall": "in real time" in option,
        "user": "as an ordinary user" in option,
    }


def _line_with(words: str, lines: list[str], first: int) -> int | None:
    """The place of the first line with words."""
    return next((place for place in range(first, len(lines)) if words in lines[place]), None)


def _continued(part: str) -> list[str]:
    """Lines of a command's block, the first with all its continuations."""
    lines = part.splitlines()
    last = next(place for place, line in enumerate(lines) if not line.endswith("\\"))
    return ["\n".join(lines[: last + 1]), *lines[last + 1 :]]


def _words(line: str) -> str:
    """A line without its numbers and without how much room they take."""
    return re.sub(r"[\s─-]+", " ", _NUMBER.sub("#", _OF_THE_RUN.sub("TIME", line))).strip()


def _near(shown: str, printed: str) -> bool:
    """Whether numbers in two lines of the same words are near each other: other machines round otherwise."""
    pairs = zip(*(_NUMBER.findall(_OF_THE_RUN.sub("TIME", line)) for line in (shown, printed)), strict=True)
    return all(abs(_value(one) - _value(other)) <= 0.02 * abs(_value(one)) + 2 * _last_digit(one) for one, other in pairs)


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _last_digit(number: str) -> float:
    return 10.0 ** -len(number.partition(".")[2].partition("e")[0])


class _Machine:
    """What a page's commands find on the machine: a program folder, and GPUs on the stand-in, started when asked for."""

    def __init__(self, folder: Path, package: Path, stack: ExitStack) -> None:
        self._folder, self._package, self._stack = folder, package, stack
        self._plain, self._faked = folder / "bin", folder / "gpu-bin"
        for place in (self._plain, self._faked):
            place.mkdir(parents=True)
        for name in ("python", "wastenot"):
            self._script(self._plain, name, f'exec "{sys.executable}" {"-m wastenot " if name == "wastenot" else ""}"$@"')
        self._script(self._faked, "wastenot", f'exec "{sys.executable}" -m testbed.stand_in.program "$@"')
        self._script(self._faked, "nvidia-smi", f'exec "{sys.executable}" -m testbed.stand_in.nvidia_smi "$@"')
        self._script(self._faked, "python", f'exec "{sys.executable}" -m testbed.stand_in.cuda_program')
        self._servers: dict[tuple[str, bool], dict[str, str]] = {}

    @staticmethod
    def _script(place: Path, name: str, text: str) -> None:
        path = place / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def environment(self, command: Command) -> dict[str, str]:
        """Environment of a command."""
        own = {
            "COLUMNS": str(COLUMNS),
            "HOME": str(self._folder),
            # Scripts of pages take seconds to put together.
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
            "WASTENOT_STATE": str(self._folder / "state"),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONIOENCODING": "utf-8",
            "TERM": "dumb",
        }
        inherited = {name: value for name, value in os.environ.items() if name not in ("WASTENOT_READ_ONLY", "BROWSER")}
        path = f"{self._plain}{os.pathsep}{inherited.get('PATH', '')}"
        if command.on is None:
            hidden = {"CUDA_VISIBLE_DEVICES": ""}
            return inherited | own | hidden | {"PATH": path, "PYTHONPATH": str(self._package)}
        key = command.on, command.wall
        if key not in self._servers:
            self._servers[key] = self._start(*key)
        user = {USER_VARIABLE: "1"} if command.user else {}
        there = self._servers[key]
        first = {
            "PATH": f"{self._faked}{os.pathsep}{path}",
            "PYTHONPATH": f"{self._package}{os.pathsep}{there['PYTHONPATH']}",
        }
        return inherited | own | user | there | first

    def python(self, folder: Path) -> _Session:
        """An interpreter that keeps names from block to block."""
        return self._stack.enter_context(_Session(folder, self.environment(Command(""))))

    def _start(self, preset: str, wall: bool) -> dict[str, str]:
        stand_in = self._stack.enter_context(start_stand_in(preset, wall=wall))
        found = stand_in.environment(**({WALL_VARIABLE: "1"} if wall else {}))
        found.pop("CUDA_VISIBLE_DEVICES", None)
        return {name: value for name, value in found.items() if os.environ.get(name) != value}


@contextmanager
def _machine(folder: Path, package: Path) -> Iterator[_Machine]:
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield _Machine(folder, package, stack)


class _Session:
    """An interpreter that runs one block after another; a line with a NUL and the exit code follows what each prints."""

    _SOURCE = """
import sys, traceback
names = {"__name__": "__main__"}
while length := sys.stdin.buffer.readline():
    code = 0
    try:
        exec(compile(sys.stdin.buffer.read(int(length)), "<block>", "exec"), names)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    print(f"\\0{code}", flush=True)
"""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._SOURCE], cwd=folder, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, source: str) -> tuple[int, str]:
        """The exit code that a block would end with, and what it printed."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None and answered is not None
        asked.write(f"{len(source.encode())}\n{source}".encode())
        asked.flush()
        printed = ""
        for line in answered:
            text, end, code = line.decode().partition("\0")
            printed += text
            if end:
                return int(code), printed
        return self._process.wait(), printed

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

"""What commands of the tutorials print, run one after another as a reader would.

A block that is run stands under a comment, invisible to readers:

    <!-- run -->
    ```console
    $ wastenot kernel workloads
    workload     layers   width ...
    […]
    ```

    <!-- file: step.py -->      a file that later commands find
    <!-- run: on an H200 -->    NVML is the stand-in's, in virtual time: a simulated H200 that looks like a real one
    <!-- run: on an H200 as an ordinary user -->
    <!-- run: on an H200 in real time -->    where ``python`` runs what a program would that uses CUDA
    <!-- run: numbers vary -->  only the words are compared
    <!-- run: exit 2 -->        the command must fail
    <!-- not run: needs CUDA -->

    <!-- run: cut after "Applicable today" -->             ``[…]`` stands for what follows the first line with these words
    <!-- run: cut after "Next:", resume at "Kernel" -->    ... up to the first line with those

A test runs the same (``tests/test_tutorials.py``): words must be those printed, and numbers equal within 2 %.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kept import ROOT
from docs.make.page import Page
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.program import USER_VARIABLE, WALL_VARIABLE

CUT = "[…]"
COLUMNS = 100

_BLOCK = re.compile(r"<!-- (run|file|not run)(?:: ([^\n]*?))? -->\n```(\w*)\n(.*?)```\n", re.DOTALL)
_CONSOLE = re.compile(r"^```console$", re.MULTILINE)
_OF_THE_RUN = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?|(?<=here it takes ).*"
)  # when, and how fast the machine is
_PROGRESS = re.compile(r": [\d,]+ of [\d,]+, .* left\b")  # where no terminal shows a bar
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page.

    Attributes:
        typed: what the reader types, without the prompt.
        shown: the lines below it.
        on: name of the stand-in's preset, or nothing where no GPU is there.
        wall: in real time.
        user: by an ordinary user rather than root.
        numbers_vary: whether only words are compared.
        exit_code: with which it must end.
        cut_after: words of the last line shown; ``None`` where all are.
        resume_at: words of the line from which lines are shown again.
    """

    typed: str
    shown: tuple[str, ...]
    on: str | None = None
    wall: bool = False
    user: bool = False
    numbers_vary: bool = False
    exit_code: int = 0
    cut_after: str | None = None
    resume_at: str | None = None

    def cut(self, printed: list[str]) -> list[str]:
        """What was printed, shortened where the page shortens it; as it is where the words do not occur."""
        last = _line_with(self.cut_after, printed, 0)
        if last is None:
            return printed
        again = _line_with(self.resume_at, printed, last + 1)
        return [*printed[: last + 1], CUT, *([] if again is None else printed[again:])]


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


def blocks_not_marked(page: Path) -> int:
    """How many console blocks of a page say neither that they are run nor why not."""
    text = page.read_text()
    return len(_CONSOLE.findall(text)) - sum(found[3] == "console" for found in _BLOCK.finditer(text))


def steps_of(page: Path) -> list[Command | File]:
    """What a reader of the page does, in order."""
    steps: list[Command | File] = []
    for kind, option, _, body in _BLOCK.findall(page.read_text()):
        if kind == "file":
            steps.append(File(option, body))
        elif kind == "run":
            steps += _commands(option, body)
    return steps


def run_page(page: Path, folder: Path) -> Iterator[tuple[Command, int, list[str]]]:
    """Do in a folder what a reader of the page does; yields each command with its exit code and the lines it printed.

    Args:
        page: of the tutorials.
        folder: an empty one.
    """
    with _machine(folder.with_name(f"{folder.name}-machine")) as machine:
        for step in steps_of(page):
            if isinstance(step, File):
                (folder / step.name).write_text(step.text)
                continue
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", step.typed],
                cwd=folder, env=machine.environment(step), check=False, text=True, encoding="utf-8",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            lines = [line.rstrip() for line in done.stdout.replace(str(folder), "~").splitlines()]
            kept = [line for line in lines if not _PROGRESS.search(line)]
            if step.numbers_vary:  # a note may or may not stand below them
                kept = [line for line in kept if not line.startswith("  note:")]
            yield step, done.returncode, kept


def differences(command: Command, printed: list[str]) -> list[Difference]:
    """Lines of a command that the page shows otherwise."""
    shown, lines = list(command.shown), command.cut(printed)
    if [_words(line) for line in shown] != [_words(line) for line in lines]:
        length = max(len(shown), len(lines))
        pairs = zip(shown + [""] * (length - len(shown)), lines + [""] * (length - len(lines)), strict=True)
        return [Difference(command.typed, *pair) for pair in pairs if _words(pair[0]) != _words(pair[1])]
    if command.numbers_vary:
        return []
    return [Difference(command.typed, *pair) for pair in zip(shown, lines, strict=True) if not _near(*pair)]


def renewed(page: Path) -> str:
    """Its commands, with what they print now below them.

    Raises:
        ValueError: a command ended with another exit code than the page says.
    """
    with tempfile.TemporaryDirectory() as folder:
        printed = iter(_checked(run_page(page, Path(folder))))

        def block(found: re.Match[str]) -> str:
            kind, option, language, body = found.groups()
            if kind != "run":
                return found[0]
            text = ""
            for command in _commands(option, body):
                text += "".join(f"{line}\n" for line in (f"$ {command.typed}", *command.cut(next(printed))))
            head = f"<!-- run{f': {option}' if option else ''} -->"
            return f"{head}\n```{language}\n{text}```\n"

        return _BLOCK.sub(block, page.read_text())


def _checked(ran: Iterator[tuple[Command, int, list[str]]]) -> Iterator[list[str]]:
    for command, code, lines in ran:
        if code != command.exit_code:
            raise ValueError(f"$ {command.typed}\nended with {code}:\n" + "\n".join(lines))
        yield lines


def _commands(option: str, body: str) -> list[Command]:
    """The commands of a block, with what is shown below each."""
    option = option or ""
    code = re.search(r"exit (\d+)", option)
    commands: list[Command] = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        typed, *shown = _continued(part)
        commands.append(
            Command(
                typed,
                tuple(shown),
                on="h200" if "on an H200" in option else None,
                wall="in real time" in option,
                user="as an ordinary user" in option,
                numbers_vary="numbers vary" in option,
                exit_code=0 if code is None else int(code[1]),
                cut_after=_quoted("cut after", option),
                resume_at=_quoted("resume at", option),
            )
        )
    return commands


def _quoted(what: str, option: str) -> str | None:
    """The words in quotation marks after an option."""
    found = re.search(rf'{what} "([^"]*)"', option)
    return None if found is None else found[1]


def _line_with(words: str | None, lines: list[str], first: int) -> int | None:
    """The place of the first line with words."""
    if words is None:
        return None
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

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
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
            python_path = os.pathsep.join(filter(None, [str(ROOT / "src"), inherited.get("PYTHONPATH")]))
            return inherited | own | {"PATH": path, "PYTHONPATH": python_path, "CUDA_VISIBLE_DEVICES": ""}
        key = command.on, command.wall
        if key not in self._servers:
            self._servers[key] = self._start(*key)
        user = {USER_VARIABLE: "1"} if command.user else {}
        return inherited | own | user | self._servers[key] | {"PATH": f"{self._faked}{os.pathsep}{path}"}

    def _start(self, preset: str, wall: bool) -> dict[str, str]:
        stand_in = self._stack.enter_context(start_stand_in(preset, wall=wall))
        found = stand_in.environment(**({WALL_VARIABLE: "1"} if wall else {}))
        found.pop("CUDA_VISIBLE_DEVICES", None)
        return {name: value for name, value in found.items() if os.environ.get(name) != value}


@contextmanager
def _machine(folder: Path) -> Iterator[_Machine]:
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield _Machine(folder, stack)


PAGES = tuple(
    Page(name, renew=renewed)
    for name in (
        "tutorials/no-gpu",
        "tutorials/read-only",
        "tutorials/rehearse",
        "tutorials/set-clocks",
        "tutorials/jobs",
        "coming-from",
    )
)

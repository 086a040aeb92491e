"""Pictures and tables that commands make: what a reader could type, run in a folder of its own."""

from __future__ import annotations

import lzma
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.make.page import Page

CHROMIUM = (
    "chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --virtual-time-budget=8000 --user-data-dir=browser --window-size=1280,1900 "
    "--screenshot=drawn.png"
)


@dataclass(frozen=True)
class Commands:
    """Commands, one after another.

    Attributes:
        typed: each as it is typed.
        inputs: names of files that they find in their folder, and where these are; compressed ones are unpacked.
    """

    typed: tuple[str, ...]
    inputs: tuple[tuple[str, Path], ...] = ()

    def __str__(self) -> str:
        """The commands, for the list of recipes."""
        return "; ".join(self.typed)


def file_by(name: str, commands: Commands) -> bytes:
    """A file that commands write."""
    return (Path(_ran(commands).name) / name).read_bytes()


@cache
def _ran(commands: Commands) -> TemporaryDirectory[str]:
    """The folder in which commands were run, which is there until the end of this process."""
    folder = TemporaryDirectory()
    for name, path in commands.inputs:
        if path.suffix == ".xz":
            (Path(folder.name) / name).write_bytes(lzma.decompress(path.read_bytes()))
        else:
            shutil.copy(path, Path(folder.name) / name)
    for typed in commands.typed:
        program, *arguments = shlex.split(typed)
        start = [sys.executable, "-m", "wastenot"] if program == "wastenot" else [program]
        subprocess.run([*start, *arguments], cwd=folder.name, check=True, stdout=subprocess.DEVNULL)
    return folder


def pictures_by(commands: Commands, drawn: Iterable[tuple[str, str]]) -> dict[str, partial[bytes]]:
    """Recipes of pictures, by their names in the docs, from the files that commands write."""
    return {name: partial(file_by, file, commands) for name, file in drawn}


REPORT = Commands(("wastenot demo --out demo", f"{CHROMIUM} demo/report.html"))
PROFILE = Commands(("wastenot profile run gemm:8192 --device sim:mi300x --figures figures",))
APPLIED = Commands(
    (
        "wastenot kernel sweep gpt3-small --device sim:rtx-3080-ti --study small.db",
        "wastenot kernel plan --study small.db --max-slowdown 2% --out plan.json",
        "wastenot apply plan.json --device sim:rtx-3080-ti --iterations 600 --out run.json",
        "wastenot report run.json --page run.html --figures figures",
    )
)
REPRODUCED = Commands(("wastenot reproduce --out paper",))


def reproduction_tables(_: Path) -> str:
    """All tables of the paper beside ours."""
    return (
        f"<!-- made by: wastenot reproduce; SIMULATED numbers -->\n{file_by('paper/reproduction.md', REPRODUCED).decode()}"
    )


PAGES = (
    Page("index", pictures=pictures_by(REPORT, [("report.png", "drawn.png")])),
    Page("power-inside", pictures=pictures_by(PROFILE, [("profile.png", "figures/profile-run.png")])),
    Page("apply", pictures=pictures_by(APPLIED, [("apply-close-up.png", "figures/applied-close-up.png")])),
    Page("reproduction-tables", renew=reproduction_tables),
    Page(
        "reproduction",
        pictures=pictures_by(
            REPRODUCED,
            [
                ("fig3-4-settings.png", "paper/rtx-3080-ti/figures/settings-coarse.png"),
                ("fig6-relaxed-waste.png", "paper/rtx-3080-ti/figures/relaxed-waste.png"),
                ("fig7-batch.png", "paper/fig7-batch.png"),
                ("fig8-tensor-parallel.png", "paper/fig8-tensor-parallel.png"),
            ],
        ),
    ),
)

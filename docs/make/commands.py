"""The picture of the demo's report: what a reader could type, run in a folder of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.make.page import Page

CHROMIUM = (
    "chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --virtual-time-budget=8000 --user-data-dir=browser --window-size=1280,1900 "
    "--screenshot=drawn.png"
)


def file_by(name: str, *commands: str) -> bytes:
    """A file that commands write."""
    with TemporaryDirectory() as folder:
        for typed in commands:
            program, *arguments = shlex.split(typed)
            start = [sys.executable, "-m", "wastenot"] if program == "wastenot" else [program]
            subprocess.run([*start, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return (Path(folder) / name).read_bytes()


PAGES = (
    Page(
        "index",
        pictures={"report.png": partial(file_by, "drawn.png", "wastenot demo --out demo", f"{CHROMIUM} demo/report.html")},
    ),
)

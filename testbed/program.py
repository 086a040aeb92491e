"""Running the program as a user does."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import typer

from testbed.printed import printed
from wastenot.cli.help_text import leaves
from wastenot.cli.main import app, run

COMMANDS: dict[str, Any] = leaves(typer.main.get_command(app))
"""Every command, by the words that follow ``wastenot``."""

SWEEP = """kernel,count,core_mhz,memory_mhz,time_s,energy_j,pass,block,time_se_s,energy_se_j
gemm,24,,,0.01,3.0,forward,layer,0.0001,0.01
gemm,24,1500,9501,0.0101,2.5,forward,layer,0.0001,0.01
gemm,24,1500,5001,0.0099,2.8,forward,layer,0.0001,0.01
softmax,24,,,0.004,1.0,forward,layer,0.0001,0.01
softmax,24,1500,9501,0.0039,0.7,forward,layer,0.0001,0.01
loss,1,,,0.02,5.0,loss,,0.0001,0.01
loss,1,1500,9501,0.021,4.0,loss,,0.0001,0.01
loss,1,900,9501,0.019,4.5,loss,,0.0001,0.01
"""


_DOCUMENTS = Path(__file__).parents[1] / "docs" / "json.md"
SCHEMAS: dict[str, set[str]] = {}
"""The schemas of each command's documents, as they are documented."""
for _words, _schema in re.findall(r"^\| `([\w -]+)`[^|]*\| \[`(wastenot\.[\w-]+/\d+)`\]", _DOCUMENTS.read_text(), re.M):
    SCHEMAS.setdefault(_words, set()).add(_schema)


ESTIMATE = "wastenot.estimate/1"
"""The schema of what a dry run returns, whichever command it is of."""


def words_of(arguments: Sequence[str]) -> str:
    """The command that arguments call."""
    return next((words for words in (" ".join(arguments[:2]), arguments[0]) if words in COMMANDS), "")


def check_document(command: str, text: str, *, dry_run: bool = False) -> None:
    """One JSON object and nothing else, whose first key names the schema that is documented."""
    name, schema = next(iter(json.loads(text).items()))
    assert name == "schema" and schema in ({ESTIMATE} if dry_run else SCHEMAS[command]), schema


@dataclass(frozen=True)
class Ran:
    """What a run of the program gave."""

    code: int
    out: str
    err: str


class Program:
    """The program in a folder of its own, run inside the test's process, or as a process where that makes a difference."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, **environment: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with (
            chdir(self.folder),
            redirect_stdout(out),
            redirect_stderr(err),
            mock.patch.dict(os.environ, {"COLUMNS": "120"} | environment),
            mock.patch.object(sys, "argv", ["wastenot", *arguments]),
        ):
            code = run(list(arguments))
        ran = Ran(code, out.getvalue(), err.getvalue())
        if "--json" in arguments and code == 0:
            check_document(words_of(arguments), ran.out, dry_run="--dry-run" in arguments)
        return ran

    def process(self, *arguments: str, stdin: str | None = None, **environment: str) -> Ran:
        """Run as a user does, in a process."""
        done = subprocess.run(
            [sys.executable, "-m", "wastenot", *arguments],
            cwd=self.folder, input=stdin, capture_output=True, text=True, encoding="utf-8", check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "120"} | environment,
        )  # fmt: skip
        if "--json" in arguments and done.returncode == 0:
            printed.append(json.loads(done.stdout))
        return Ran(done.returncode, done.stdout, done.stderr)

    def refuse(self, *arguments: str) -> str:
        """Run what must be refused; returns the one line it says."""
        ran = self(*arguments)
        assert (ran.code, ran.out) == (2, ""), ran
        assert ran.err.startswith("error: ") and ran.err.count("\n") == 1, ran.err
        return ran.err

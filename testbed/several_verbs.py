"""Runs several commands in one process: ``python -m testbed.several_verbs COMMANDS.json``."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

from wastenot.cli.main import run


def main(commands: list[list[str]]) -> None:
    """What each prints goes to a file of its own, in the working folder."""
    for number, command in enumerate(commands):
        sys.argv = ["wastenot", *command]
        with Path(f"{number:02d}-{command[0]}.json").open("w", encoding="utf-8") as out, redirect_stdout(out):
            code = run(command)
        if code != 0:
            sys.exit(f"{command}: exit code {code}")


if __name__ == "__main__":  # verbs with processes of their own import this module again
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))

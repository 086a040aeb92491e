"""``wastenot apply`` with a pipeline's plan: the ranks that run on this machine, each at its own clocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from wastenot.cli.watched_run import ShownOptions
    from wastenot.control.status import Summary


def apply_pipeline(
    plan: Path,
    command: Sequence[str] | None,
    names: Sequence[str] | None,
    *,
    dry_run: bool,
    seed: int,
    patience_s: float | None,
    shown: ShownOptions,
    as_json: bool,
) -> tuple[Summary, int] | None:
    """Run a program under a pipeline's plan; what became of it and its exit code, or nothing where none was to run.

    Raises:
        BadInputError: the plan was edited, is for another kind of card, or no program is to run.
    """
    from wastenot.cli.watched_run import run_command, say_wastenot
    from wastenot.control.session import PATIENCE_S
    from wastenot.core.errors import BadInputError
    from wastenot.pipelines.run.application import prepare_pipeline, would_be_set_in_pipeline

    if not command and not dry_run:
        raise BadInputError(
            "what is to run? wastenot apply pipeline.json -- torchrun train.py (or --dry-run to see what is set); "
            "docs/pipelines-recipes.md says what the program must tell"
        )
    application = prepare_pipeline(plan, names, dry_run=dry_run, seed=seed)
    for note in application.notes:
        say_wastenot(note)
    if dry_run and not as_json:
        for line in would_be_set_in_pipeline(application):
            typer.echo(line)
    if not command:
        if as_json:
            from wastenot.terminal.output import print_json

            print_json("apply", application.controller(dry_run=True).end().model_dump(mode="json", by_alias=True))
        return None
    session = application.session(dry_run=dry_run, patience_s=PATIENCE_S if patience_s is None else patience_s)
    return run_command(session, list(command), shown, as_json, pipeline=True)

"""Simulated runs of clusters in a study as a table of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from wastenot.serving.tables.cluster_rows import ClusterRunSummary


def cluster_runs_text(runs: Sequence[ClusterRunSummary]) -> list[RenderableType]:
    """The simulated clusters of a study, a run in each line; nothing where there are none."""
    from rich.markup import escape

    from wastenot.pages.formatting import percent, quantity
    from wastenot.terminal.tables import plain_table

    if not runs:
        return []
    table = plain_table(
        ("simulated cluster", "traffic", "policy", "kept (UTC)"),
        ("seed", "requests", "energy", "worst class"),
        less_important=("requests", "kept (UTC)", "seed"),
    )
    for run in runs:
        table.add_row(
            escape(run.scenario),
            escape(run.traffic),
            escape(run.policy),
            f"{run.recorded_at:%Y-%m-%d %H:%M}",
            f"{run.seed}",
            f"{run.requests:,}",
            quantity(run.energy_j, "J", 4),
            percent(run.worst_class, 2) + (" failed" if run.failed else ""),
        )
    return ["", table]

"""What a study keeps of servers and simulated clusters, in brief."""

from __future__ import annotations

from sqlalchemy import Connection

from wastenot.serving.tables.cluster_store import summarise_cluster_runs
from wastenot.serving.tables.store import stored_runs, summarise_servers


def in_brief(connection: Connection) -> dict[str, tuple[object, ...]]:
    """Servers in the order of their first point, what was measured or imported together, and simulated clusters.

    Raises:
        ValueError: what is stored cannot be.
    """
    return {
        "servers": summarise_servers(connection),
        "serving_runs": stored_runs(connection),
        "cluster_runs": summarise_cluster_runs(connection),
    }

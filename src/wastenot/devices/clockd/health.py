"""Whether the daemon of this machine is well, for probes, and what it counts, for Prometheus."""

from __future__ import annotations

from wastenot.core.errors import WastenotError
from wastenot.devices.common.daemon_connection import BusyError, Connection


def health(patience_s: float) -> tuple[bool, str]:
    """Whether wastenotd answers, and what it says in a line.

    GPUs that it cannot restore, or that do not answer, are named, but do not make it ill: it tries again, and would after a
    new start. Nor does being busy: otherwise whoever takes all connections of root could have it restarted.

    Args:
        patience_s: to wait for it.
    """
    try:
        connection = Connection(patience_s)
        connection.close()
    except BusyError as error:
        return True, str(error)
    except WastenotError as error:
        return False, str(error)
    leases = connection.welcome.leases
    unrestored = sorted(uuid for uuid, lease in leases.items() if lease.get("unrestored"))
    said = f"wastenotd answers: {len(leases) - len(unrestored)} leases"
    named = {"not restored yet": unrestored, "not answering": connection.welcome.missing}
    return True, said + "".join(f", {what}: {', '.join(gpus)}" for what, gpus in named.items() if gpus)


def metrics_text(patience_s: float) -> tuple[bool, str]:
    """Whether wastenotd told its metrics in time, and these in Prometheus' text format; else a comment that says why not."""
    try:
        connection = Connection(patience_s)
        text = str(connection.ask("metrics").get("text", ""))
        connection.close()
    except WastenotError as error:
        return False, f"# {error}"
    return True, text.rstrip("\n")

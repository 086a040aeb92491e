"""Several processes of one run (torchrun): the first rank decides, and the others are told, through the study.

Nothing of the program's own communication is used: a program may report epochs from its first rank alone, and then nothing
waits for the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from wastenot.core.errors import BadInputError, StudyUnreachableError
from wastenot.core.processes import number_in_environment, process_space, start_of, started_unix_s
from wastenot.jobs.run.outages import OUTAGE_S
from wastenot.jobs.tables.records import JobRun
from wastenot.jobs.tables.store import JobStore

_FIRST_RANK_S = 120.0  # for which the others wait until the first has begun
_CLOCKS_DIFFER_S = 60.0
_POLL_S = (0.005, 0.25)


@dataclass(frozen=True, slots=True)
class Seats:
    """The processes of a run.

    Attributes:
        key: what they have in common, and no other run has.
        first: whether this process decides.
        since_unix_s: before which no run of theirs began, as far as clocks agree.
        machines: that they are on.
        measures: whether this process measures the GPUs of its machine.
    """

    key: str
    first: bool
    since_unix_s: float
    machines: int
    measures: bool


def seats_of_this_process() -> Seats | None:
    """Of a program that torchrun started; ``None`` for one that runs alone."""
    ranks, rank = number_in_environment("WORLD_SIZE", 1), number_in_environment("RANK", 0)
    if ranks <= 1:
        return None
    machines = -(-ranks // max(number_in_environment("LOCAL_WORLD_SIZE", 1), 1))
    if machines == 1:
        parts = [process_space(), str(os.getppid()), start_of(os.getppid())]  # of the launcher, on this machine
    else:
        parts = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")]
    measures = rank == 0 or (machines > 1 and number_in_environment("LOCAL_RANK", 0) == 0)
    parts.append(os.environ.get("TORCHELASTIC_RESTART_COUNT", ""))
    return Seats(" ".join(parts)[:255], rank == 0, started_unix_s() - _CLOCKS_DIFFER_S, machines, measures)


def polls() -> Iterator[None]:
    """Times to look at the study, at first soon after each other; whoever has seen enough leaves the loop."""
    wait_s = _POLL_S[0]
    while True:
        yield
        time.sleep(wait_s)
        wait_s = min(2.0 * wait_s, _POLL_S[1])


_followed: dict[str, int] = {}  # the run of each job that this process followed last: the next is a later one


def follow(store: JobStore, name: str, seats: Seats) -> tuple[JobRun, str]:
    """Find the run that the first rank has begun, and why its batch size was chosen, or wait for it.

    Raises:
        BadInputError: there is none for too long.
    """
    patience_s, began_s = _FIRST_RANK_S, time.monotonic()
    for _ in polls():
        last = _followed.get(f"{store.study} {name}", 0)
        try:
            found = store.find(name, seats.key, after=last, since_unix_s=seats.since_unix_s)
        except StudyUnreachableError:  # the first rank waits for the server, too
            found, patience_s = None, _FIRST_RANK_S + OUTAGE_S
            if time.monotonic() - began_s >= patience_s:
                raise
        if found is not None:
            _followed[f"{store.study} {name}"] = found[0].number
            return found
        if time.monotonic() - began_s >= patience_s:
            break
    raise BadInputError(
        f"{store.study}: `name` '{name}': the first rank has not started a run within {_FIRST_RANK_S:.0f} s; ranks on "
        "several machines need a study that all of them reach: a database URL"
    )

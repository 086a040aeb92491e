"""Studies whose server does not answer for a while: what is done with them is tried again, and no job fails for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from wastenot.core.errors import StudyUnreachableError
from wastenot.jobs.run.training_run import say

OUTAGE_S = 600.0
"""How long a run that begins waits for the server of its study."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_Found = TypeVar("_Found")


def through_outage(name: str, do: Callable[[], _Found]) -> _Found:
    """Do something with a study, again and again while its server does not answer, for ten minutes at most.

    Args:
        name: of the job, for what is said.
        do: what is to be done.

    Raises:
        StudyUnreachableError: it did not answer in all this time.
    """
    end_s, wait_s = time.monotonic() + OUTAGE_S, _FIRST_WAIT_S
    while True:
        try:
            return do()
        except StudyUnreachableError as error:
            if time.monotonic() + wait_s > end_s:
                raise
            if wait_s == _FIRST_WAIT_S:
                say(name, f"{error}; trying again for up to {OUTAGE_S / 60:g} min")
        time.sleep(wait_s)
        wait_s = min(2.0 * wait_s, _LONGEST_WAIT_S)

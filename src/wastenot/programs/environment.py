"""What the environment of programs needs to be instrumented and to report to a session."""

from __future__ import annotations

import os
from pathlib import Path

from wastenot.control.session import Session
from wastenot.control.wire import PIPELINE, VARIABLE
from wastenot.programs import startup


def socket_of(session: Session, *, pipeline: bool = False) -> dict[str, str]:
    """What the environment of programs needs to report to a session.

    Args:
        session: to report to.
        pipeline: the programs are ranks of a pipeline, and mark its instructions.
    """
    folder = str(Path(startup.__path__[0]))
    already = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([folder, *([already] if already else [])])
    return {VARIABLE: str(session.path), "PYTHONPATH": path} | ({PIPELINE: "1"} if pipeline else {})

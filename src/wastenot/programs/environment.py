"""What the environment of programs needs to be instrumented and to report to a session, and what is said if they did not."""

from __future__ import annotations

import os
from pathlib import Path

from wastenot.control.session import Session
from wastenot.control.wire import PIPELINE, VARIABLE
from wastenot.programs import startup


def why_cut_short(session: Session) -> str | None:
    """What kept a session that has ended from controlling the clocks until its program ended; ``None`` for nothing."""
    if session.problem is not None:
        return f"the plan ended early, and the program continued at the default clocks: {session.problem}"
    if not session.ranks and session.status().proxy is None:
        return (
            "no iterations were seen: the program does not train with PyTorch, or its Python ignores PYTHONPATH; mark them "
            "with wastenot.apply in the program"
        )
    return None


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

"""What a plan was chosen from, in words: all of a grid, the points measured so far, or those of a search."""

from __future__ import annotations

from wastenot.core.wording import counted
from wastenot.study.coverage import Coverage


def among(coverage: Coverage | None) -> str:
    """The points that a plan is the best of; completes "among ...".

    Args:
        coverage: of the plan; ``None`` in plans of earlier versions.
    """
    if coverage is None:
        return "the points measured"
    some = f"the {coverage.measured:,}"
    by_kind = {
        "given": f"the {counted(coverage.measured, 'point')} given",
        "auto": "the default clocks alone",
        "refine": f"the {counted(coverage.measured, 'point')} measured, a plan's finalists",
        "natural": "caps within the clocks that each kernel was seen at",
    }
    if coverage.kind in by_kind:
        return by_kind[coverage.kind]
    assert coverage.of is not None
    if coverage.complete:
        return f"all {coverage.measured:,} points of the grid"
    return f"{some} of {coverage.of:,} points measured"


def coverage_note(coverage: Coverage | None) -> str | None:
    """What a reader must know of points that were not measured; ``None`` where there is nothing to say."""
    if coverage is None or coverage.complete or coverage.kind == "given":
        return None
    if coverage.kind == "refine":
        return "Only the finalists of a plan were measured here; other settings may be better. Sweep this card to know."
    assert coverage.of is not None
    if coverage.kind == "natural":
        command = f": {coverage.command}" if coverage.command else " by starting it again as before"
        return f"Incomplete: {coverage.measured:,} of {coverage.of:,} kernels are measured. Resume the sweep{command}"
    measured = f"{coverage.measured:,} of the {coverage.of:,} points intended are measured"
    better = "a point that was not measured may be better"
    if not coverage.finished:
        command = f": {coverage.command}" if coverage.command else " by starting it again as before"
        what = "search" if coverage.kind == "search" else "sweep"
        return f"Incomplete: the {what} was broken off or is under way; {measured}, and {better}. Resume it{command}"
    if coverage.kind == "search":
        return f"Found by a search: {measured}, those that promised most; {better}. Sweep without --search to measure all."
    return f"Incomplete: {measured}; {better}. The sweep came to its end without the others."

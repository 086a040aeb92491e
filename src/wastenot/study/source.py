"""What may stand for a sweep where one is needed: a study, its file or URL, or the sweep itself."""

from __future__ import annotations

import os

from wastenot.errors import BadInputError
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import EnergyState, Granularity

Source = str | os.PathLike[str] | Study | Sweep
"""A study's file name or database URL, an open study, or a sweep."""


def sweep_of(
    source: Source,
    workload: str | None = None,
    state: EnergyState | None = None,
    granularity: Granularity | None = None,
) -> Sweep:
    """The sweep of a workload.

    Args:
        source: where it is.
        workload: its name; may be left out where the study holds only one.
        state: that its energies were measured in; by default steady power.
        granularity: that a plan is wanted of: measurements by it if there are any, otherwise finer ones.

    Raises:
        BadInputError: there is no such workload, or there are several and none is named.
        StudyError: the study cannot be read.
    """
    if not isinstance(source, Sweep):
        study = source if isinstance(source, Study) else open_study(source)
        return study.read(workload, state, granularity, finer=True)
    if workload not in (None, source.workload):
        raise BadInputError(
            f"`workload` '{workload}': the sweep is of workload '{source.workload}'; leave it out or read another"
        )
    return source

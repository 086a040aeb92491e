"""What tuning a running job found, as a plan that ``wastenot apply`` puts to work again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wastenot.control.setting_search import Candidate
from wastenot.control.tuner import Tuner
from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Plan, Tuned
from wastenot.planning.planner import Planner, plan
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.identity import ModelRun

_ROUNDED = 1e-9  # by which a slowdown that was measured is kept by a plan that allows it


def tuned_plan(tuner: Tuner, *, run: ModelRun | None = None) -> Plan:
    """The setting that was found, or the default clocks, for whole iterations of the same job on the same card.

    Its numbers are those of the trials: what the plan keeps and saves when it is applied again is measured then.

    Args:
        tuner: that has ended its search.
        run: the model that ran, where it is known.

    Raises:
        BadInputError: not even the default clocks were measured.
    """
    if not tuner.defaults:
        raise BadInputError(
            "`out`: the job ended before its iterations at the default clocks were measured, so no plan was made"
        )
    winner, search = tuner.search.winner, tuner.search
    time_s, energy_j = tuner.default_iteration
    candidates: list[Candidate | None] = [None] if winner is None else [None, winner]
    settings = [AUTO if each is None else each.setting for each in candidates]
    changes = [(0.0, 0.0) if each is None else (search.time(each).mean, search.energy(each).mean) for each in candidates]
    errors = [
        (0.0, 0.0) if each is None else (search.time(each).half / search.sure, search.energy(each).half / search.sure)
        for each in candidates
    ]
    slowest = max(math.expm1(time) for time, _ in changes)  # which the plan has to allow, as the search held it
    slowdown = tuner.max_slowdown if slowest <= tuner.max_slowdown else slowest + _ROUNDED
    rows = len(settings)
    absent = np.full(rows, np.nan)
    identity = tuner.gpus[0].identity
    measured_s = np.array([time_s * math.exp(time) for time, _ in changes])
    measured_j = np.array([energy_j * math.exp(energy) for _, energy in changes])
    sweep = Sweep(
        (Kernel("iteration", 1, None, None),),
        np.zeros(rows, dtype=np.int64),
        core_mhz=_column([each.core_mhz for each in settings]),
        memory_mhz=_column([each.memory_mhz for each in settings]),
        power_limit_w=_column([each.power_limit_w for each in settings]),
        profile=_column([each.numbers[-1] for each in settings]),
        time_s=measured_s,
        energy_j=measured_j,
        time_se_s=measured_s * np.array([time for time, _ in errors]),
        energy_se_j=measured_j * np.array([energy for _, energy in errors]),
        effective_core_mhz=absent,
        effective_memory_mhz=absent,
        calls=absent,
        temperature_c=absent,
        workload=tuner.subject.workload,
        device=identity.label,
        origin=identity.origin,
        granularity="iteration",
        run=run,
    )
    planner = Planner(sweep, "iteration", with_profiles=True)
    made = plan(planner, Objective("waste", slowdown, as_measured=True), granularity="iteration")
    schedule = tuner.schedule if winner is None else tuner.schedule_of(winner)
    tuned = Tuned(
        settings=len(search.candidates),
        trials=sum(len(each.energy) for each in search.candidates),
        iterations=tuner.iterations,
        regret=math.expm1(search.regret),
        proxy_error=search.error or None,
    )
    return made.model_copy(update={"schedule": schedule if winner else made.schedule, "tuned": tuned}).sealed()


def _column(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

"""Policies beside each other on one load: energy, with what became of the deadlines beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.simulation.served import GAP_EDGES_S, Served


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """How a policy did.

    Attributes:
        policy: its name.
        energy_j: of the run.
        energy_per_token_j: for each token made.
        attainment: share of the requests that kept all of their deadlines.
        ttft_p99_s: 99th percentile of the time to the first token for each class of prompts; ``nan`` for an empty class.
        tbt_p99_s: 99th percentile of the time between two tokens, of all requests together.
        mean_core_mhz: ceiling of the core clock, over the time of the run; where the driver chooses, the greatest there is.
            ``None`` where no setting has one.
        power_w: mean of the run.
        switches: of the clock.
        preemptions: of requests, for want of cache.
    """

    policy: str
    energy_j: float
    energy_per_token_j: float
    attainment: float
    ttft_p99_s: tuple[float, ...]
    tbt_p99_s: float
    mean_core_mhz: float | None
    power_w: float
    switches: int
    preemptions: int


def result_of(policy: str, served: Served, engine: Engine, deadlines: Deadlines) -> PolicyResult:
    """A run in numbers."""
    requests = served.requests
    waited = served.first_token_s - requests.arrival_s
    kind = np.searchsorted(deadlines.prompt_below, requests.prompt_tokens, side="right")
    clocks = core_clocks_mhz(engine)
    mean = None if clocks is None else float(np.dot(served.setting_s, clocks) / served.setting_s.sum())
    return PolicyResult(
        policy,
        float(served.total_energy_j),
        float(served.energy_per_token_j),
        served.attainment(deadlines),
        tuple(
            float(np.percentile(waited[kind == each], 99)) if (kind == each).any() else float("nan")
            for each in range(len(deadlines.ttft_s))
        ),
        gap_percentile_s(served, 0.99),
        mean,
        float(served.total_energy_j / served.end_s),
        int(served.switches),
        int(served.preemptions.sum()),
    )


def core_clocks_mhz(engine: Engine) -> FloatArray | None:
    """Ceilings of the core clock by setting, the greatest where it is automatic; ``None`` where no setting has one."""
    known = [each.core_mhz for each in engine.tables.settings if each.core_mhz is not None]
    if not known:
        return None
    return np.array([max(known) if each.core_mhz is None else each.core_mhz for each in engine.tables.settings])


def gap_percentile_s(served: Served, share: float) -> float:
    """A time between two tokens that a share of all does not exceed: the upper edge of its bin, 2.3 % wide."""
    within = np.cumsum(served.gap_counts)
    if not within[-1]:
        return 0.0
    bin_ = int(np.searchsorted(within, share * within[-1], side="left"))
    return float(GAP_EDGES_S[min(bin_, len(GAP_EDGES_S) - 1)])

"""Random work for schedules: iterations like those of models on a synthetic GPU, and work without any order."""

from __future__ import annotations

import numpy as np

from testbed.synthetic_gpu import CORE_MHZ, MEMORY_MHZ, costs
from wastenot.frontiers.switched_work import SwitchedWork

JITTER = 0.3
"""Standard deviation of the logarithm of a switch's latency, where it varies."""


def instance(
    rng: np.random.Generator,
    calls: int,
    settings: int,
    switch_s: float,
    *,
    ordered: bool = True,
    jitter: float = 0.0,
    stall_s: float = 0.0,
) -> SwitchedWork:
    """An iteration of layers, with what comes before and after them, or calls in any order.

    It takes 0.1 to 10 s; there are 1 to 3 memory clocks, which take up to ten times as long to change to. Setting 0 is the
    highest of both clocks.

    Args:
        rng: what is drawn from.
        calls: of an iteration, about.
        settings: how many.
        switch_s: latency of the core clock.
        ordered: whether the calls are those of layers that repeat.
        jitter: of latencies.
        stall_s: of a switch.
    """
    kinds = int(rng.integers(10, 60))
    scale = 10.0 ** rng.uniform(-1.5, 0.0, (kinds, 1))
    bound = 10.0 ** rng.uniform(-0.9, 0.9, (kinds, 1))
    core, memory = scale * np.minimum(1.0, bound), scale * np.minimum(1.0, 1.0 / bound)
    memories = rng.choice(np.array(MEMORY_MHZ[1:]), int(rng.integers(1, 4)), replace=False)
    pairs = [(c, m) for m in memories for c in np.linspace(CORE_MHZ[0] * rng.uniform(1.0, 4.0), CORE_MHZ[-1], settings)]
    chosen = rng.choice(len(pairs) - 1, settings - 1, replace=False)
    core_mhz, memory_mhz = np.array([max(pairs), *(sorted(pairs)[index] for index in sorted(chosen))]).T
    swept = costs(core, memory, rng.uniform(0.3, 1.0, (kinds, 1)), core_mhz, memory_mhz)
    time_s = swept.time_s * np.exp(0.003 * rng.standard_normal(swept.time_s.shape))
    power_w = swept.power_w * np.exp(0.005 * rng.standard_normal(time_s.shape))
    order = _layers(rng, kinds, calls) if ordered else rng.integers(0, kinds, calls)
    time_s *= 10.0 ** rng.uniform(-1.0, 1.0) / time_s[order, 0].sum()
    slow_s = switch_s * 10.0 ** rng.uniform(0.0, 1.0)
    late = np.exp(1.645 * jitter)
    return SwitchedWork.of(
        time_s[order],
        (time_s * power_w)[order],
        stay_s=late * switch_s,
        slow_stay_s=late * slow_s,
        slow=memory_mhz[:, None] != memory_mhz,
        switch_s=stall_s,
        switch_j=stall_s * float(power_w.mean()),
        off_s=0.8 * jitter * switch_s,
        slow_off_s=0.8 * jitter * slow_s,
    )


def _layers(rng: np.random.Generator, kinds: int, calls: int) -> np.ndarray:
    """A few calls, layers of the forward pass, a few calls, layers of the backward pass, a few calls."""
    forward, backward = rng.permutation(kinds)[: max(2, kinds // 3)], rng.permutation(kinds)[: max(3, kinds // 2)]
    layers = max(1, round(calls / (len(forward) + len(backward))))
    ends = [rng.integers(0, kinds, int(rng.integers(1, 6))) for _ in range(3)]
    return np.concatenate([ends[0], np.tile(forward, layers), ends[1], np.tile(backward, layers), ends[2]])

"""What becomes of a job's trace when its data change, or when it moves to another GPU."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import Setting
from wastenot.jobs.judge.trace import JobTrace

_STEP = 0.5  # octaves between the shifts that are tried
_FURTHEST = 8.0  # octaves
_LEAST_CLOCK = 0.35  # of the full clock, below which no limit pushes a device


def shifted(trace: JobTrace, octaves: float, *, harder: float = 1.0) -> JobTrace:
    """The same job where each batch size needs the epochs that a smaller or larger one needed.

    It is what a change of the critical batch size does. Beyond the batch sizes of the trace, smaller ones need as many
    epochs as the smallest, larger ones as many more as they are larger.

    Args:
        trace: of the job.
        octaves: by which the epochs move towards larger batch sizes.
        harder: times as many epochs on top.
    """
    sizes = trace.terms.batch_sizes
    place: FloatArray = np.log2(np.array(sizes, dtype=np.float64))
    typical = np.array([_typical(trace.epochs[size]) for size in sizes])
    moved: dict[int, tuple[float, ...]] = {}
    for at in place:
        seen = at - octaves
        nearest = int(np.abs(place - seen).argmin())
        epochs = np.array(trace.epochs[sizes[nearest]])
        between = _interpolate(seen, place, typical) - typical[nearest] if np.isfinite(typical[nearest]) else 0.0
        scale = harder * 2.0 ** (between + max(seen - place[-1], 0.0))
        moved[round(2.0**at)] = tuple(float(max(each, 1.0)) for each in np.round(epochs * scale))
    return replace(trace, epochs=moved)


def best_moved(trace: JobTrace, factor: float, *, worse: float = 1.1, harder: float = 1.0) -> JobTrace | None:
    """The same job after its best batch size moved by a factor.

    Args:
        trace: of the job.
        factor: by which the best batch size moves, up if above one.
        worse: cost of the batch size that was best, at least, in terms of the new best.
        harder: times as many epochs on top.

    Returns:
        The trace with the least shift that does it; ``None`` where none does.
    """
    before = _best(trace)
    for distance in np.arange(_STEP, _FURTHEST + _STEP, _STEP):
        after = shifted(trace, math.copysign(distance, math.log2(factor)), harder=harder)
        costs = after.mean_cost().min(axis=1)
        if not np.isfinite(costs.min()):
            continue
        ratio = trace.terms.batch_sizes[_best(after)] / trace.terms.batch_sizes[before]
        if abs(math.log2(ratio / factor)) < 0.5 and costs[before] >= worse * costs.min():
            return after
    return None


def on_another_device(trace: JobTrace, seed: int) -> JobTrace:
    """The same job on another GPU, drawn: as many epochs, but other times, powers and power limits.

    It is between a third as fast and three times as fast, fills up at a batch size between a quarter and four times as
    large, draws other powers, and has limits of its own.

    Args:
        trace: of the job.
        seed: of what is drawn.
    """
    rng = np.random.default_rng((seed, 20_261_122))
    place: FloatArray = np.log2(np.array(trace.terms.batch_sizes, dtype=np.float64))
    full_s = trace.epoch_time_s[:, 0] * 3.0 ** rng.uniform(-1.0, 1.0)
    filled = float(np.median(place)) + rng.uniform(-5.0, 1.0)
    by = rng.uniform(-2.0, 2.0)
    full_s *= (1.0 + 2.0 ** (filled + by - place)) / (1.0 + 2.0 ** (filled - place))
    full_s *= np.exp(rng.normal(0.0, 0.03, place.size))
    most_w = rng.uniform(70.0, 700.0)
    limits = most_w * np.linspace(1.0, rng.uniform(0.35, 0.6), int(rng.integers(4, 10)))
    drawn_w = trace.power_w[:, 0] / trace.power_w[:, 0].max()
    idle_w = most_w * rng.uniform(0.1, 0.3)
    active_w = (most_w * rng.uniform(0.5, 1.1) * drawn_w ** rng.uniform(0.5, 1.5))[:, None]
    exponent = rng.uniform(2.0, 3.0)
    clock = np.clip((limits - idle_w) / active_w, 0.0, 1.0) ** (1.0 / exponent)
    clock = np.maximum(clock, _LEAST_CLOCK)
    bound = rng.uniform(0.4, 1.0)
    return replace(
        trace,
        terms=replace(
            trace.terms,
            settings=tuple(Setting(power_limit_w=float(limit)) for limit in limits),
            max_power_w=float(limits[0]),
        ),
        device="another made-up device",
        epoch_time_s=full_s[:, None] * (bound / clock + 1.0 - bound),
        power_w=idle_w + active_w * clock**exponent,
    )


def _best(trace: JobTrace) -> int:
    return int(trace.mean_cost().min(axis=1).argmin())


def _typical(epochs: tuple[float, ...]) -> float:
    """Mean of log2 of the epochs of runs that reached the target; not a number where none did."""
    reached = [math.log2(each) for each in epochs if math.isfinite(each)]
    return math.fsum(reached) / len(reached) if reached else math.nan


def _interpolate(at: float, place: FloatArray, typical: FloatArray) -> float:
    known = np.isfinite(typical)
    return float(np.interp(at, place[known], typical[known]))

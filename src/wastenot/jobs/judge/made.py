"""Made-up jobs to shape and try policies on, so that the traces of real ones are left to judge them.

Epochs follow what is known of batch sizes: about level up to a critical batch size and rising in proportion above it
(McCandlish et al., "An Empirical Model of Large-Batch Training", 2018), more epochs or none at all at either end, noise
from run to run. Times follow a device that fills up with the batch size, powers one whose clock gives way to a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import Setting
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.tables.records import JobTerms

_RUNS = 24  # seen of each batch size
_EDGE = 6.0  # how fast the chance of reaching the target falls, by log2 of the batch size
_LEAST_CLOCK = 0.35  # of the full clock, below which no limit pushes a device
_POWER_EXPONENT = 2.5  # of dynamic power in the clock


@dataclass(frozen=True, slots=True)
class _Shape:
    """How the epochs of a made-up job depend on log2 of the batch size.

    Attributes:
        least_epochs: to the target, at the best batch size.
        critical: log2 of the batch size where epochs begin to rise in proportion.
        small: log2 of the batch size where they begin to rise towards small ones.
        small_slope: of log2 epochs below that, for each halving.
        fails_below: log2 of the batch size where half of the runs never get there; none does far below.
        fails_above: likewise, far above.
        roughness: standard deviation of log epochs between one batch size and another.
        noise: standard deviation of log epochs between runs.
        unevenness: standard deviation of the logarithm of that between one batch size and another.
    """

    least_epochs: float
    critical: float
    small: float
    small_slope: float
    fails_below: float
    fails_above: float
    roughness: float
    noise: float
    unevenness: float = 0.0


def made_job(family: str, seed: int) -> JobTrace:
    """A made-up job.

    Args:
        family: one of :data:`FAMILIES`.
        seed: of what is drawn.
    """
    rng = np.random.default_rng((seed, sorted(FAMILIES).index(family)))
    count = int(rng.integers(3, 21))
    step = rng.choice([0.5, 1.0, 1.0]) if count <= 12 else 0.5
    first = rng.uniform(2.0, 7.0)
    sizes = np.unique(np.round(2.0 ** (first + step * np.arange(count))).astype(int))
    octaves: FloatArray = np.log2(sizes)
    shape = FAMILIES[family](rng, octaves)
    relative = np.logaddexp2(0.0, octaves - shape.critical)
    relative += shape.small_slope * np.logaddexp2(0.0, 2.0 * (shape.small - octaves)) / 2.0
    typical = np.log(shape.least_epochs) + math.log(2.0) * (relative - relative.min())
    typical += rng.normal(0.0, shape.roughness, typical.size)
    beyond = np.maximum(shape.fails_below - octaves, octaves - shape.fails_above)
    lasting = 1.0 / (1.0 + np.exp(np.minimum(_EDGE * beyond, 50.0)))
    most = math.ceil(shape.least_epochs * rng.uniform(4.0, 10.0)) + 1
    scatter = shape.noise * rng.standard_normal((sizes.size, _RUNS))
    if shape.unevenness > 0.0:
        scatter *= np.exp(rng.normal(0.0, shape.unevenness, (sizes.size, 1)))
    needed = np.ceil(np.exp(typical[:, None] + scatter))
    needed[rng.random(needed.shape) > lasting[:, None]] = math.inf
    reaching = np.mean(needed <= most, axis=1)
    good = np.flatnonzero(reaching >= 0.9)
    if good.size == 0:
        return made_job(family, seed + 1_000_003)  # there is none that a user would run by default
    default = int(sizes[rng.choice(good)])
    epoch_time_s, power_w, limits = _device(rng, octaves)
    terms = JobTerms(
        name=f"made-up {family} {seed}",
        batch_sizes=tuple(int(size) for size in sizes),
        default=default,
        target=1.0,
        max_epochs=most,
        settings=tuple(Setting(power_limit_w=float(limit)) for limit in limits),
        max_power_w=float(limits[0]),
    )
    epochs = {int(size): tuple(map(float, row)) for size, row in zip(sizes, needed, strict=True)}
    return JobTrace(terms, "made-up", epochs, epoch_time_s, power_w)


def made_jobs(seeds: range, *, families: tuple[str, ...] | None = None) -> tuple[JobTrace, ...]:
    """Made-up jobs of every family.

    Args:
        seeds: a job of each family for each.
        families: some of :data:`FAMILIES`; all by default.
    """
    return tuple(made_job(family, seed) for seed in seeds for family in families or tuple(FAMILIES))


def _device(rng: np.random.Generator, octaves: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Times of an epoch and powers, shape (batch sizes, limits), and the limits, the greatest first."""
    most_w = rng.uniform(70.0, 700.0)
    limits: FloatArray = most_w * np.linspace(1.0, rng.uniform(0.35, 0.6), int(rng.integers(4, 10)))
    idle_w, dynamic_w = most_w * rng.uniform(0.1, 0.3), most_w * rng.uniform(0.5, 1.1)
    filled = octaves.mean() + rng.uniform(-6.0, 2.0)  # log2 of the batch size that half fills the device
    full_s = 10.0 ** rng.uniform(0.5, 3.5) * (1.0 + 2.0 ** (filled - octaves))
    full_s *= np.exp(rng.normal(0.0, 0.03, octaves.size))
    use = 1.0 / (1.0 + 2.0 ** (filled - octaves))
    active_w = (dynamic_w * use**0.5)[:, None]
    clock = np.clip(np.maximum(limits - idle_w, 1.0) / active_w, 0.0, 1.0) ** (1.0 / _POWER_EXPONENT)
    clock = np.maximum(clock, _LEAST_CLOCK)
    bound = rng.uniform(0.4, 1.0)  # share of the time that scales with the clock
    return full_s[:, None] * (bound / clock + 1.0 - bound), idle_w + active_w * clock**_POWER_EXPONENT, limits


def _inside(rng: np.random.Generator, octaves: FloatArray, low: float = 0.1, high: float = 0.9) -> float:
    """A place among the batch sizes, as log2."""
    return float(octaves[0] + (octaves[-1] - octaves[0]) * rng.uniform(low, high))


def _smooth(rng: np.random.Generator, octaves: FloatArray) -> _Shape:
    small = octaves[0] + rng.uniform(-4.0, 1.0)
    return _Shape(
        least_epochs=float(np.exp(rng.uniform(np.log(4.0), np.log(60.0)))),
        critical=_inside(rng, octaves, 0.3, 1.3),
        small=float(small),
        small_slope=rng.uniform(0.0, 0.7),
        fails_below=-math.inf,
        fails_above=math.inf,
        roughness=rng.uniform(0.0, 0.1),
        noise=float(np.exp(rng.uniform(np.log(0.02), np.log(0.2)))),
    )


def _changed(**changes: Callable[[np.random.Generator, FloatArray], float]) -> Callable[..., _Shape]:
    def shape(rng: np.random.Generator, octaves: FloatArray) -> _Shape:
        base = _smooth(rng, octaves)
        values = {name: getattr(base, name) for name in _Shape.__dataclass_fields__}
        return _Shape(**(values | {name: change(rng, octaves) for name, change in changes.items()}))

    return shape


FAMILIES: dict[str, Callable[[np.random.Generator, FloatArray], _Shape]] = {
    "smooth": _smooth,
    "large ones fail": _changed(
        fails_above=lambda rng, octaves: _inside(rng, octaves, 0.3, 0.9),
        critical=lambda rng, octaves: _inside(rng, octaves, 0.1, 0.8),
    ),
    "small ones fail": _changed(
        fails_below=lambda rng, octaves: _inside(rng, octaves, 0.1, 0.6),
        critical=lambda rng, octaves: _inside(rng, octaves, 0.6, 1.5),
    ),
    "both ends fail": _changed(
        fails_below=lambda rng, octaves: _inside(rng, octaves, 0.05, 0.35),
        fails_above=lambda rng, octaves: _inside(rng, octaves, 0.6, 0.95),
    ),
    "largest is best": _changed(critical=lambda rng, octaves: float(octaves[-1] + rng.uniform(1.0, 5.0))),
    "smallest is best": _changed(
        critical=lambda rng, octaves: float(octaves[0] + rng.uniform(-4.0, 0.0)),
        small=lambda rng, octaves: float(octaves[0] - 4.0),
    ),
    "flat": _changed(
        critical=lambda rng, octaves: float(octaves[-1] + rng.uniform(0.0, 2.0)),
        small=lambda rng, octaves: float(octaves[0] - 2.0),
        small_slope=lambda rng, octaves: 0.0,
        roughness=lambda rng, octaves: 0.02,
    ),
    "noisy": _changed(noise=lambda rng, octaves: float(rng.uniform(0.2, 0.35))),
    "few epochs": _changed(least_epochs=lambda rng, octaves: float(rng.uniform(1.0, 4.0))),
    "rough": _changed(roughness=lambda rng, octaves: float(rng.uniform(0.15, 0.35))),
    "steep": _changed(
        critical=lambda rng, octaves: _inside(rng, octaves, -0.2, 0.4),
        small_slope=lambda rng, octaves: float(rng.uniform(0.7, 1.5)),
        small=lambda rng, octaves: _inside(rng, octaves, 0.3, 0.7),
    ),
    "uneven noise": _changed(
        least_epochs=lambda rng, octaves: float(np.exp(rng.uniform(np.log(3.0), np.log(30.0)))),
        noise=lambda rng, octaves: float(rng.uniform(0.05, 0.2)),
        unevenness=lambda rng, octaves: float(rng.uniform(0.4, 1.0)),
    ),
}
"""Kinds of made-up jobs, each with how it is drawn."""

"""The linear problem of power by clock: what each reading is a sum of, and what is expected of the unknowns beforehand.

    reading = kernel's power at knots + how much more loads draw in this run + what the delay is still off
              + products' power at knots + idle + what a degree more adds

The first line is of the kernel's own unknowns, the second of those that all kernels share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.kernels.natural.readings import Response
from wastenot.kernels.natural.seen import Load

IDLE: Load = ("", "idle")
"""In place of a load: the GPU rests."""

IDLE_W, IDLE_ERROR_W = 90.0, 40.0
"""Power at rest between phases, before anything is seen, and its standard error."""

REFERENCE_ERROR = 0.002
"""Standard deviation of the relative change of power with a degree: leakage."""

_SLOPE, _SLOPE_ERROR = 1.0, 0.7  # of log power over log clock, before anything is seen
_CURVATURE, _CURVATURE_ERROR = 1.0, 2.0  # change of that slope over a unit of log clock
_LEVEL_ERROR = 1.0  # relative


@dataclass(frozen=True, slots=True)
class PowerSpread:
    """How readings and runs scatter.

    Attributes:
        noise_w: standard deviation of a reading.
        fluctuation: the same relative to the part of power that other loads than the kernel of interest draw.
        run: relative standard deviation of a load's power in a run.
        delay_s: standard deviation of what is left of the delay's error in a segment, and again in each reading of it.
    """

    noise_w: float = 5.0
    fluctuation: float = 0.01
    run: float = 0.005
    delay_s: float = 5e-4


@dataclass(frozen=True, slots=True, eq=False)
class Sensed:
    """Readings of one run and their response, at the delays known so far.

    Attributes:
        own: the kernel of interest, among the loads.
        response: of the run.
        delay_s: of each reading; shape (readings,).
        segment: index of the stretch of time with a delay in common; shape (readings,).
    """

    own: Load
    response: Response
    delay_s: FloatArray
    segment: IndexArray


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The linear problem of one kernel of interest: columns are its own unknowns, then the shared ones."""

    matrix: FloatArray
    power_w: FloatArray
    noise_w: FloatArray  # standard deviation of each reading
    others_w: FloatArray  # what other loads than the kernel of interest add to each
    prior: FloatArray  # precision, own unknowns only
    wanted: FloatArray  # prior precision × prior mean, own unknowns only
    own: int  # number of own unknowns
    of_knots: Mapping[Load, slice]  # among the own unknowns
    of_factors: slice
    runs: tuple[slice, ...]  # rows of each run


def rows_of(
    runs: Sequence[Sensed],
    shared: Sequence[Load],
    log_knots: Mapping[Load, FloatArray],
    power_w: Mapping[Load, FloatArray],
    reference_c: float,
    spread: PowerSpread,
) -> Rows:
    """All readings of one kernel of interest."""
    own_loads = list(dict.fromkeys(load for run in runs for load in run.response.loads if load not in shared))
    of_knots: dict[Load, slice] = {}
    number = 0
    for load in own_loads:
        of_knots[load] = slice(number, number + len(log_knots[load]))
        number += len(log_knots[load])
    factors = sum(len(run.response.loads) for run in runs)
    segments = sum(int(run.segment.max(initial=-1)) + 1 for run in runs)
    of_factors = slice(number, number + factors)
    own = number + factors + segments
    of_shared, first = {}, own
    for load in shared:
        of_shared[load] = slice(first, first + len(log_knots[load]))
        first += len(log_knots[load])
    matrices, powers, noises, others, slices = [], [], [], [], []
    factor, segment, begin = number, number + factors, 0
    for run in runs:
        response = run.response
        seen = response.at(run.delay_s)
        matrix = np.zeros((len(seen), first + 1))
        others_w, all_w = np.zeros(len(seen)), seen[:, -1] * power_w[IDLE][0]
        later, earlier = response.at(run.delay_s + 5e-4), response.at(run.delay_s - 5e-4)
        slope_w = (later[:, -1] - earlier[:, -1]) * power_w[IDLE][0]
        for load, where in zip(response.loads, response.columns, strict=True):
            column = of_shared.get(load, of_knots.get(load))
            assert column is not None
            matrix[:, column] = seen[:, where]
            its_w = seen[:, where] @ power_w[load]
            matrix[:, factor] = its_w
            factor += 1
            all_w = all_w + its_w
            others_w += its_w * (load != run.own)
            slope_w += (later[:, where] - earlier[:, where]) @ power_w[load]
        matrix[:, of_shared[IDLE]] = seen[:, -1:]
        matrix[np.arange(len(seen)), segment + run.segment] = slope_w / 1e-3  # W/s
        segment += int(run.segment.max(initial=-1)) + 1
        if np.isfinite(response.temperature_c):
            matrix[:, -1] = all_w * (response.temperature_c - reference_c)
        matrices.append(matrix)
        powers.append(response.power_w)
        # A reading just after power changed shows what followed demand more slowly, too.
        noises.append(
            np.sqrt(spread.noise_w**2 + (spread.fluctuation * others_w) ** 2 + (spread.delay_s * slope_w / 1e-3) ** 2)
        )
        others.append(others_w)
        slices.append(slice(begin, begin + len(seen)))
        begin += len(seen)
    prior, wanted = np.zeros((own, own)), np.zeros(own)
    for load, where in of_knots.items():
        prior[where, where], wanted[where] = _smoothness(log_knots[load], power_w[load])
    at = np.arange(number, own)
    prior[at, at] = np.concatenate([np.full(factors, spread.run), np.full(segments, spread.delay_s)]) ** -2.0
    return Rows(
        np.concatenate(matrices), np.concatenate(powers), np.concatenate(noises), np.concatenate(others), prior, wanted, own,
        of_knots, of_factors, tuple(slices),
    )  # fmt: skip


def shared_prior(
    shared: Sequence[Load], log_knots: Mapping[Load, FloatArray], power_w: Mapping[Load, FloatArray]
) -> tuple[dict[Load, slice], FloatArray, FloatArray]:
    """Where shared unknowns stand, their prior precision, and that × their prior mean; the last is what a degree adds."""
    number = sum(len(log_knots[load]) for load in shared) + 1
    prior, wanted = np.zeros((number, number)), np.zeros(number)
    where, first = {}, 0
    for load in shared:
        where[load] = slice(first, first + len(log_knots[load]))
        first += len(log_knots[load])
        if load == IDLE:  # hardly seen where nothing rests
            prior[where[load], where[load]], wanted[where[load]] = IDLE_ERROR_W**-2, IDLE_W * IDLE_ERROR_W**-2
        else:
            prior[where[load], where[load]], wanted[where[load]] = _smoothness(log_knots[load], power_w[load])
    prior[-1, -1] = REFERENCE_ERROR**-2
    return where, prior, wanted


def _smoothness(log_knots: FloatArray, power_w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Precision, and precision × mean, of powers at knots: a slope and a curvature as usual, a level hardly known."""
    knots = len(log_knots)
    level_w = max(float(np.mean(power_w)), 1.0)
    rows, means, errors = [np.full(knots, 1.0 / knots)], [level_w], [_LEVEL_ERROR * level_w]
    if knots > 1:
        span = float(log_knots[-1] - log_knots[0])
        difference = np.zeros(knots)
        difference[0], difference[-1] = -1.0, 1.0
        rows.append(difference)
        means.append(_SLOPE * span * level_w)
        errors.append(_SLOPE_ERROR * span * level_w)
    step = np.diff(log_knots)
    for index in range(knots - 2):
        bend = np.zeros(knots)
        bend[index : index + 3] = 1.0 / step[index], -1.0 / step[index] - 1.0 / step[index + 1], 1.0 / step[index + 1]
        width = 0.5 * (step[index] + step[index + 1])
        rows.append(bend)
        means.append(_CURVATURE * width * level_w)
        errors.append(_CURVATURE_ERROR * np.sqrt(width) * level_w)
    matrix = np.array(rows)
    certain = np.array(errors) ** -2.0
    return (matrix.T * certain) @ matrix, (matrix.T * certain) @ np.array(means)

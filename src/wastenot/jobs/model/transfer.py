"""What carries over when a curve by batch size has moved: to other data, or to another GPU.

A job's critical batch size and the batch size that fills a GPU both only shift a curve along the batch sizes (epochs are
E₀·(1 + B / B_critical), the time of an epoch t₀·(1 + B_full / B)), and raise or lower it as a whole. What was known
therefore is a shape again, at several shifts, where a curve of which nothing was known had those of theory.
"""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.model.curve import Belief, Curve, Roughness

_SHIFTS, _SHIFT_SD = np.linspace(-3.0, 3.0, 7), 1.5  # of the batch size that fills a device, in octaves


def shifted_shapes(
    log_values: FloatArray,
    octaves: FloatArray,
    shifts: FloatArray,
    *,
    below: tuple[float, float],
    above: tuple[float, float],
) -> FloatArray:
    """A curve at several shifts along the batch sizes.

    Args:
        log_values: logarithm of the curve; shape (batch sizes,).
        octaves: log2 of the batch sizes, ascending; same shape.
        shifts: in octaves, towards larger batch sizes; shape (shifts,).
        below: least and greatest slope of log2 of the curve by octave, below the smallest batch size.
        above: likewise, above the largest one.

    Returns:
        Shape (shifts, batch sizes).
    """
    at = octaves[None, :] - shifts[:, None]
    inside = np.interp(at, octaves, log_values)
    if octaves.size == 1:
        return inside
    slopes = np.diff(log_values) / np.diff(octaves) / math.log(2.0)
    low, high = (float(np.clip(slopes[end], *bounds)) for end, bounds in ((0, below), (-1, above)))
    outside = low * np.minimum(at - octaves[0], 0.0) + high * np.maximum(at - octaves[-1], 0.0)
    shapes: FloatArray = inside + math.log(2.0) * outside
    return shapes


def on_another_device(belief: Belief, octaves: FloatArray) -> Curve:
    """Cost of an epoch by batch size on a device of which nothing is known, from what is believed of it on another.

    Args:
        belief: of the logarithm of the cost of an epoch on the other device.
        octaves: log2 of the batch sizes, ascending.
    """
    return Curve(
        shifted_shapes(belief.mean, octaves, _SHIFTS, below=(-1.0, 0.0), above=(-1.0, 0.0)),
        octaves,
        roughness=(Roughness(0.05, 0.02), Roughness(0.15, 0.05)),
        noise=(0.01,),
        length=4.0,
        base=belief.covariance,
        likely=np.exp(-0.5 * (_SHIFTS / _SHIFT_SD) ** 2),
    )

"""What is learned of the cost of an epoch by batch size on a device, from this one and from others."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import Setting
from wastenot.jobs.model.curve import Belief, Curve, Roughness, Seen
from wastenot.jobs.model.objective import cost
from wastenot.jobs.model.transfer import on_another_device
from wastenot.jobs.tables.records import JobTerms, Speed

_FULL = np.array([-6.0, -4.0, -2.0, 0.0, 2.0, 4.0])
"""Batch size that half fills a device, in octaves above the default, a priori."""

_Speeds = dict[int, dict[Setting, Speed]]
"""By batch size and setting."""


class EpochCosts:
    """Learns what an epoch costs, each batch size with the best of its settings.

    What was measured on other devices tells how the cost goes with the batch size, but not how high it is.

    Args:
        terms: of the job.
        device: that costs are wanted of.
    """

    def __init__(self, terms: JobTerms, device: str) -> None:
        self._terms, self._device = terms, device
        self._octaves: FloatArray = np.log2(np.array(terms.batch_sizes, dtype=np.float64))
        self._place = {size: place for place, size in enumerate(terms.batch_sizes)}
        self._generic = _curve(self._octaves, math.log2(terms.default))
        self._speeds: dict[str, _Speeds] = {}
        self._curve: Curve | None = None
        self._belief: Belief | None = None

    def measured(self, speed: Speed) -> None:
        """Take note of how fast the job runs at a batch size and setting, which another device may have alone."""
        if speed.device == self._device and speed.setting not in self._terms.settings:
            return
        self._speeds.setdefault(speed.device, {}).setdefault(speed.batch_size, {})[speed.setting] = speed
        self._belief = None
        if speed.device != self._device:
            self._curve = None

    @property
    def known(self) -> bool:
        """Whether anything was measured on any device."""
        return bool(self._speeds)

    def setting(self, batch_size: int) -> Setting | None:
        """The best known setting for a batch size; ``None`` where none was measured on the device."""
        known = self._speeds.get(self._device, {}).get(batch_size, {})
        return min(known, key=lambda setting: _epoch_cost(self._terms, known[setting]), default=None)

    def belief(self) -> Belief:
        """What is believed of the logarithm of the cost of an epoch."""
        if self._belief is None:
            if self._curve is None:
                self._curve = self._from_elsewhere()
            here = self._seen(self._speeds.get(self._device, {}), self._terms)
            if not here.count.any():
                # Nothing tells how high the curve lies here, and nothing that is to be decided depends on it.
                here.count[self._octaves.size // 2] = 1.0
            self._belief = self._curve.learn(here)
        return self._belief

    def _from_elsewhere(self) -> Curve:
        """As on the other device of which most is known, but for where the curve lies; generic where there is none."""
        others = [speeds for device, speeds in self._speeds.items() if device != self._device]
        if not others:
            return self._generic
        there = max(others, key=len)
        powers = (speed.power_w for by_setting in there.values() for speed in by_setting.values())
        terms = replace(self._terms, max_power_w=max((each for each in powers if each is not None), default=None))
        return on_another_device(self._generic.learn(self._seen(there, terms)), self._octaves)

    def _seen(self, speeds: _Speeds, terms: JobTerms) -> Seen:
        known, value, nothing = (np.zeros(self._octaves.size) for _ in range(3))
        for size, by_setting in speeds.items():
            if size in self._place:
                known[self._place[size]] = 1.0
                value[self._place[size]] = math.log(min(_epoch_cost(terms, speed) for speed in by_setting.values()))
        return Seen(known, value, nothing, nothing, nothing)


def _epoch_cost(terms: JobTerms, speed: Speed) -> float:
    energy_j = 0.0 if speed.power_w is None else speed.power_w * speed.epoch_time_s
    return float(cost(terms, speed.epoch_time_s, energy_j))


def _curve(octaves: FloatArray, default: float) -> Curve:
    """An epoch's time falls with the batch size until the device is full."""
    full = default + _FULL
    shapes = math.log(2.0) * np.logaddexp2(0.0, full[:, None] - octaves[None, :])
    return Curve(shapes, octaves, roughness=(Roughness(0.1, 0.02), Roughness(0.2, 0.06)), noise=(0.01,), length=4.0)

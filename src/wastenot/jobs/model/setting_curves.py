"""How time and power of a training job follow a power limit or a clock: curves of physics, with what is not known drawn.

    time  │╲                        power  │        ╭──────  the job's own power: the limit is not felt above it
          │ ╲__                            │      ╱
          │    ╲______________             │    ╱
          └───────────────────▶ limit      └──────────────▶ limit

At a clock f (1 at its highest) a GPU at work needs q·(s + (1 − s)·f^γ) of its greatest power, and 1 − κ + κ/f of its
time. A limit below q is met by a lower clock, down to the lowest there is. For a fraction of the time it may wait for its
data, at a power near that of an idle card.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.tables.records import JobTerms

_JITTER = 0.35  # in logits, of a batch size twice another
_OWN = 0.15  # of the curves that know nothing of other batch sizes, in case this one is unlike them

_LEAST_CURVES = 20.0  # that count

# Bounds of what is drawn, wide enough for every GPU known: own power q as a fraction of the greatest, fraction κ of
# the time that goes with the core's clock, static fraction s of the own power, exponent γ of the rest, fraction of the time
# spent working, lowest clock, and power while it waits as a fraction of the greatest.
_LOW = np.array([0.12, 0.0, 0.15, 1.2, 0.4, 0.08, 0.08])
_HIGH = np.array([1.3, 1.0, 0.7, 3.5, 1.0, 0.4, 0.3])
_TOWARDS = np.array([1.0, 1.0, 1.0, 1.0, 0.3, 1.0, 1.0])  # most jobs hardly wait


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Drawn curves.

    Attributes:
        drawn: what is not known, each from 0 to 1 between its bounds; shape (curves, numbers).
        time: logarithm of the time of a piece of work, up to ``offset``; shape (curves, settings).
        power: logarithm of the power as a fraction of the greatest; shape (curves, settings).
        weights: of the curves, which sum to 1; shape (curves,).
        offset: of each curve's times; shape (curves,).
    """

    drawn: FloatArray
    time: FloatArray
    power: FloatArray
    weights: FloatArray
    offset: FloatArray

    def fitted(
        self,
        places: Sequence[int],
        time: FloatArray,
        time_variance: FloatArray,
        power: FloatArray | None,
        power_variance: FloatArray,
    ) -> Curves:
        """The same curves, weighted by how well they fit.

        Args:
            places: indices of the settings that were measured.
            time: logarithms of the times measured; shape (places,).
            time_variance: of these, what curves may miss included.
            power: logarithms of the powers, as fractions of the greatest; ``None`` where none is known.
            power_variance: of these.
        """
        where = list(places)
        trust = 1.0 / time_variance
        apart = time - self.time[:, where]
        offset = apart @ trust / trust.sum()
        misfit = ((apart - offset[:, None]) ** 2) @ trust
        if power is not None:
            misfit = misfit + ((power - self.power[:, where]) ** 2) @ (1.0 / power_variance)
        return replace(self, weights=_tempered(self.weights, 0.5 * (misfit - misfit.min())), offset=offset)


def drawn_curves(terms: JobTerms, count: int) -> Curves:
    """Curves of a job of which nothing is known."""
    return _curves(terms, np.random.default_rng(3).random((count, len(_LOW))))


def resampled_curves(terms: JobTerms, curves: Curves, octaves: float, count: int) -> Curves:
    """Curves like those of another batch size.

    Args:
        terms: of the job.
        curves: of the other batch size.
        octaves: how far apart the two are.
        count: of curves.
    """
    rng = np.random.default_rng(7)
    own = round(_OWN * count)
    chosen = curves.drawn[rng.choice(len(curves.weights), count - own, p=curves.weights)]
    inside = np.clip(chosen, 1e-3, 1.0 - 1e-3)
    moved = np.log(inside / (1.0 - inside)) + _JITTER * max(octaves, 0.5) * rng.standard_normal(chosen.shape)
    return _curves(terms, np.concatenate([1.0 / (1.0 + np.exp(-moved)), rng.random((own, len(_LOW)))]))


def _tempered(weights: FloatArray, misfit: FloatArray) -> FloatArray:
    """Weights times the likelihood, of which as much is taken as leaves enough curves that count."""
    share = 1.0
    while True:
        new = weights * np.exp(-share * misfit)
        new /= new.sum()
        if 1.0 / float(new @ new) >= _LEAST_CURVES:
            return new
        share *= 0.7


def _curves(terms: JobTerms, drawn: FloatArray) -> Curves:
    """Time and power at every setting of the job."""
    own, core, static, exponent, working, lowest, waiting = (_LOW + (_HIGH - _LOW) * drawn**_TOWARDS).T[:, :, None]
    limits = [each.power_limit_w for each in terms.settings if each.power_limit_w is not None]
    highest_w = max(limits, default=1.0)
    if limits and terms.max_power_w is not None:  # that of all GPUs of the job, where it has several
        highest_w = terms.max_power_w / max(math.floor(terms.max_power_w / highest_w + 1e-6), 1)
    highest_mhz = max((each.core_mhz for each in terms.settings if each.core_mhz is not None), default=1.0)
    fastest_mhz = max((each.memory_mhz for each in terms.settings if each.memory_mhz is not None), default=1.0)
    limit = np.array([1.0 if each.power_limit_w is None else each.power_limit_w / highest_w for each in terms.settings])
    clock = np.array([1.0 if each.core_mhz is None else each.core_mhz / highest_mhz for each in terms.settings])
    memory = np.array([1.0 if each.memory_mhz is None else each.memory_mhz / fastest_mhz for each in terms.settings])
    room = np.maximum((limit / own - static) / (1.0 - static), 0.0)
    held = np.clip(np.minimum(room ** (1.0 / exponent), clock), lowest, 1.0)
    takes = (1.0 - core) / memory + core / held
    uses = own * (static + (1.0 - static) * held**exponent)
    time = working * takes + 1.0 - working
    energy = working * takes * np.minimum(uses, 1.0) + (1.0 - working) * np.minimum(waiting, own)
    count = len(drawn)
    return Curves(drawn, np.log(time), np.log(energy / time), np.full(count, 1.0 / count), np.zeros(count))

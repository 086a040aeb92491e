"""A profile corrected by the steps of a server that runs: what its tables say of times is scaled until both agree.

    time = overhead + (prefill scale, decode scale) x what the tables say

Three numbers, so that what the tables know of clocks, sizes and contexts is kept, and steps of few sizes are enough. Power
is kept, so energy is scaled as time is. The server's steps alternate in blocks between those that are fitted and those that
judge the fit; a profile that it brings no nearer to those is left as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.profile_file import EngineProfile, Quantity, StatedError
from wastenot.serving.model.step_costs import StepCosts
from wastenot.serving.model.step_records import StepRecords

LEAST_STEPS = 40
"""That a profile is corrected by."""
_BLOCKS = 20  # that the records are divided into; every second one is held out
_OUTLYING = 0.1  # relative differences beyond count less than in least squares
_FARTHEST = 1e4  # that a scale may be from 1


@dataclass(frozen=True, slots=True)
class Off:
    """How far predicted step times were from those of a server, on steps held out.

    Attributes:
        quantity: of which steps.
        steps: how many.
        before_mean: of absolute relative differences, of the profile as it was.
        before_worst: the largest.
        after_mean: of the profile corrected by the other steps.
        after_worst: the largest.
    """

    quantity: Quantity
    steps: int
    before_mean: float
    before_worst: float
    after_mean: float
    after_worst: float


@dataclass(frozen=True, slots=True, eq=False)
class Corrected:
    """A profile that was corrected.

    Attributes:
        profile: as it is now; as it was where the fit brings it no nearer to the steps held out.
        overhead_s: of each step on the host.
        prefill_scale: of times of prefill steps; 1 where there were too few.
        decode_scale: the same of decode steps.
        off: before and after.
        steps: that it was corrected by.
    """

    profile: EngineProfile
    overhead_s: float
    prefill_scale: float
    decode_scale: float
    off: tuple[Off, ...]
    steps: int


def corrected(profile: EngineProfile, records: StepRecords) -> Corrected:
    """Correct a profile by the steps of a server.

    Args:
        profile: of its model; the engine of the server's parallel degree is judged, and all are corrected alike.
        records: of its steps, at the default clocks where the clock was not read.

    Raises:
        BadInputError: the steps are too few, or the profile has no engine of the server's parallel degree.
    """
    if len(records) < LEAST_STEPS:
        raise BadInputError(f"{len(records)} steps are too few to correct a profile by; record at least {LEAST_STEPS}")
    engine = profile.engine(records.gpus)
    parts = _Parts.of(engine, records)
    held_out = (np.arange(len(records)) * _BLOCKS // len(records)) % 2 == 1
    judged = _fitted(parts, ~held_out)
    now = _fitted(parts, np.ones(len(records), dtype=bool))
    before = (engine.overhead_s, 1.0, 1.0)
    off = tuple(
        _off(quantity, parts, held_out & of, before, judged) for quantity, of in _kinds(records) if (held_out & of).any()
    )
    nearer = sum(each.steps * each.after_mean for each in off) < sum(each.steps * each.before_mean for each in off)
    if not nearer:
        now = before
    engines = tuple(_scaled(each, *now) for each in profile.engines) if nearer else profile.engines
    what = f"{'' if nearer else 'not '}corrected by {len(records):,} steps of {records.engine or 'a server'}"
    errors = tuple(
        StatedError(
            each.quantity,
            engine.gpus,
            each.after_mean if nearer else each.before_mean,
            each.after_worst if nearer else each.before_worst,
            each.steps,
            "steps of the server held out",
        )
        for each in off
    )
    notes = tuple(
        f"{what}: {each.quantity}s were {100 * each.before_mean:.0f} % off on average and "
        f"{'are' if nearer else 'would be'} {100 * each.after_mean:.0f} % off (at worst {100 * each.before_worst:.0f} % and "
        f"{100 * each.after_worst:.0f} %), on steps held out"
        for each in off
    )
    kept = tuple(each for each in profile.errors if each.quantity.endswith("power"))
    made = EngineProfile(engines, (*errors, *kept), (*profile.notes, *notes))
    return Corrected(made, *now, off, len(records))


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What the tables say of each step. Shape (steps,) each."""

    prefill: BoolArray
    decode: BoolArray
    together_s: FloatArray
    empty_s: FloatArray
    full_s: FloatArray
    time_s: FloatArray

    @classmethod
    def of(cls, engine: Engine, records: StepRecords) -> _Parts:
        costs, steps = StepCosts(engine.tables), np.arange(len(records))
        new, made = records.prefill_tokens, records.decode_tokens
        at = _settings(engine, records)
        least = np.full(len(records), engine.tables.context_tokens[0])
        batch = np.maximum(made, 1.0)
        return cls(
            new > 0,
            made > 0,
            costs.prefill(np.maximum(new + made, 1.0), 0.0 * new)[0][at, steps],
            costs.decode(batch, least)[0][at, steps],
            costs.decode(batch, records.context)[0][at, steps],
            records.time_s,
        )

    def times_s(self, overhead_s: float, prefill: float, decode: float) -> FloatArray:
        """Times of the steps by the rule of :meth:`EngineTables.mixed`, scaled."""
        both = np.maximum(prefill * self.together_s, decode * self.empty_s) + decode * (self.full_s - self.empty_s)
        mixed = np.where(self.decode, both, prefill * self.together_s)
        return np.asarray(overhead_s + np.where(self.prefill, mixed, decode * self.full_s), dtype=np.float64)


def _settings(engine: Engine, records: StepRecords) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
    """The setting of the tables that is nearest to the clock of each step; the default one where it was not read."""
    settings = engine.tables.settings
    clocks = np.array([np.inf if each.core_mhz is None else each.core_mhz for each in settings])
    nearest = np.abs(clocks[None, :] - np.nan_to_num(records.core_mhz, nan=0.0)[:, None]).argmin(axis=1)
    return np.where(np.isnan(records.core_mhz), len(settings) - 1, nearest).astype(np.intp)


def _fitted(parts: _Parts, used: BoolArray) -> tuple[float, float, float]:
    """Overhead and scales that agree best with some of the steps."""
    from scipy.optimize import least_squares  # takes a quarter of a second to import

    prefills, decodes = bool((used & parts.prefill).any()), bool((used & parts.decode).any())
    ratio = float(np.median(parts.time_s[used] / parts.times_s(0.0, 1.0, 1.0)[used]))
    shortest = float(parts.time_s[used].min())
    scale = np.array([shortest, ratio, ratio])
    free = np.flatnonzero([True, prefills, decodes])
    values = np.array([0.0, 1.0 if not prefills else ratio, 1.0 if not decodes else ratio])

    def parameters(of: FloatArray) -> FloatArray:
        full = values.copy()
        full[free] = of * scale[free]
        return full

    def residuals(of: FloatArray) -> FloatArray:
        said = np.maximum(parts.times_s(*parameters(of))[used], 1e-9)
        return np.asarray(np.log(said / parts.time_s[used]), dtype=np.float64)

    with single_threaded():
        start = np.array([0.5, 0.5, 0.5])[free]
        bounds = (np.array([0.0, 1.0 / _FARTHEST, 1.0 / _FARTHEST])[free], np.full(len(free), _FARTHEST))
        found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=_OUTLYING)
    overhead_s, prefill, decode = (float(each) for each in parameters(found.x))
    return overhead_s, prefill, decode


def _kinds(records: StepRecords) -> tuple[tuple[Quantity, BoolArray], ...]:
    prefills = records.prefill_tokens > 0
    return ("prefill time", prefills), ("decode time", ~prefills)


def _off(
    quantity: Quantity,
    parts: _Parts,
    of: BoolArray,
    before: tuple[float, float, float],
    after: tuple[float, float, float],
) -> Off:
    was, now = (np.abs(parts.times_s(*each)[of] / parts.time_s[of] - 1.0) for each in (before, after))
    return Off(quantity, int(of.sum()), float(was.mean()), float(was.max()), float(now.mean()), float(now.max()))


def _scaled(engine: Engine, overhead_s: float, prefill: float, decode: float) -> Engine:
    tables = engine.tables
    return replace(
        engine,
        overhead_s=overhead_s,
        tables=replace(
            tables,
            prefill_time_s=prefill * tables.prefill_time_s,
            prefill_energy_j=prefill * tables.prefill_energy_j,
            decode_time_s=decode * tables.decode_time_s,
            decode_energy_j=decode * tables.decode_energy_j,
        ),
    )

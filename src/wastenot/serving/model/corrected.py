"""A profile corrected by the steps of a server that runs: what its tables say of times is scaled until both agree.

    time = overhead + (prefill scale, decode scale) x what the tables say + wait for the launch of a step with prompts

Few numbers, so that what the tables know of clocks, sizes and contexts is kept, and steps of few sizes are enough. What a
step lasts longer or shorter, overhead included, is at half of its power (decode steps of an H100 at 470 to 690 W: 310 to 380
W), waits for a launch at idle power. Kernels by themselves were held at the power limit, which prompts among light decode
steps exceed for a while: those that are faster than in the tables take as many times more energy, until
:attr:`Engine.limit_w` slows them down. The server's steps alternate in blocks between those that are fitted and those that
judge the fit; a profile that it brings no nearer to those is left as it was.

With asynchronous scheduling the record of a decode step before one with prompts holds the launch of the latter
(:mod:`wastenot.serving.model.step_records`). Where it is longer than such a decode step, it *is* the launch: their median is
taken, by whether the tokens are few enough for CUDA graphs. Both steps, and all in such a row, are fitted as one sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
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
_LONGEST_SPAN = 32  # steps that are summed where each was launched in the time of the one before
_WITH_TIME = 0.5  # of the power of a step
_LEAST_LAUNCHES, _LONGER = 5, 1.3  # that a launch is told by, and times a decode step that they take


@dataclass(frozen=True, slots=True)
class Off:
    """How far predicted step times were from those of a server, on steps held out.

    Attributes:
        quantity: of which steps.
        steps: how many; those whose times cannot be told apart count as one.
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
        launch_s: of steps with prompts, as of :class:`Engine`; as before where it was too short to be seen.
        graph_launch_s: the same of those launched as CUDA graphs.
    """

    profile: EngineProfile
    overhead_s: float
    prefill_scale: float
    decode_scale: float
    off: tuple[Off, ...]
    steps: int
    launch_s: float = 0.0
    graph_launch_s: float = 0.0


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
    if len(parts.first) < LEAST_STEPS // 2:
        raise BadInputError("steps that follow one another are too few; record while the server has requests all the time")
    held_out = (parts.first * _BLOCKS // len(records)) % 2 == 1
    judged = _fitted(parts, ~held_out)
    now = _fitted(parts, np.ones(len(parts.first), dtype=bool))
    before = _Fit(engine.overhead_s, 1.0, 1.0, (engine.launch_s, engine.graph_launch_s))
    off = tuple(
        _off(quantity, parts, held_out & of, before, judged) for quantity, of in parts.kinds() if (held_out & of).any()
    )
    nearer = sum(each.steps * each.after_mean for each in off) < sum(each.steps * each.before_mean for each in off)
    if not nearer:
        now = before
    engines = tuple(_scaled(each, now, records) for each in profile.engines) if nearer else profile.engines
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
    return Corrected(made, now.overhead_s, now.prefill, now.decode, off, len(records), *now.launch_s)


class _Fit(NamedTuple):
    """What is fitted: overhead, scales, and launches without and with CUDA graphs."""

    overhead_s: float
    prefill: float
    decode: float
    launch_s: tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What the tables say of each step, shape (steps,), and spans of steps whose times belong together, shape (spans,)."""

    prefill: BoolArray
    decode: BoolArray
    together_s: FloatArray
    empty_s: FloatArray
    full_s: FloatArray
    step_s: FloatArray
    ahead: BoolArray  # steps launched in the time of the one before
    graph: BoolArray  # those that are launched as CUDA graphs
    begins: IndexArray  # of all spans
    known: BoolArray  # spans whose time is known; what follows is of these
    first: IndexArray  # their first steps
    time_s: FloatArray  # of all of their steps
    prompts: BoolArray  # whether they have any

    @classmethod
    def of(cls, engine: Engine, records: StepRecords) -> _Parts:
        costs, steps = StepCosts(engine.tables), np.arange(len(records))
        new, made = records.prefill_tokens, records.decode_tokens
        at = _settings(engine, records)
        least = np.full(len(records), engine.tables.context_tokens[0])
        batch, tokens = np.maximum(made, 1.0), np.maximum(new + made, 1.0)
        prompts = np.ones(len(records)) if records.prompts is None else np.maximum(records.prompts, 1.0)
        ahead = np.zeros(len(records), dtype=bool) if records.ahead is None else records.ahead
        begins = _spans(ahead)
        time_s = np.add.reduceat(records.time_s, begins)
        known = np.isfinite(time_s)
        return cls(
            new > 0,
            made > 0,
            costs.prefill(tokens, 0.5 * tokens * (1.0 / prompts - 1.0))[0][at, steps],
            costs.decode(batch, least)[0][at, steps],
            costs.decode(batch, records.context)[0][at, steps],
            records.time_s,
            ahead,
            new + made <= records.most_graph_tokens,
            begins,
            known,
            begins[known],
            time_s[known],
            np.logical_or.reduceat(new > 0, begins)[known],
        )

    def times_s(self, fit: _Fit) -> FloatArray:
        """Times of the spans by the rules of :meth:`EngineTables.mixed` and :class:`Engine`, scaled."""
        overhead_s, prefill, decode, launch_s = fit
        both = np.maximum(prefill * self.together_s, decode * self.empty_s) + decode * (self.full_s - self.empty_s)
        mixed = np.where(self.decode, both, prefill * self.together_s)
        steps_s = overhead_s + np.where(self.prefill, mixed, decode * self.full_s)
        until_s = np.where(self.prefill, np.where(self.graph, launch_s[1], launch_s[0]), 0.0)
        alone_s, before_s = steps_s, np.zeros(len(steps_s))  # since the host could begin to launch each
        for _ in range(3):  # steps with prompts, each launched in the time of the one before: more change nothing
            steps_s = np.maximum(alone_s, until_s - before_s)
            left_s = np.clip(before_s + steps_s - until_s, 0.0, steps_s)
            before_s = np.where(self.ahead, np.concatenate([[0.0], left_s[:-1]]), 0.0)
        return np.asarray(np.add.reduceat(steps_s, self.begins)[self.known], dtype=np.float64)

    def launch_s(self, used: BoolArray) -> tuple[float, float]:
        """How long the host launched steps with prompts for, without and with CUDA graphs; 0 where it is not to be seen."""
        span = np.repeat(np.arange(len(self.begins)), np.diff(self.begins, append=len(self.prefill)))
        among = np.zeros(len(self.begins), dtype=bool)
        among[np.flatnonzero(self.known)[used]] = True
        after_decode = self.ahead & np.concatenate([[False], ~self.prefill[:-1]])
        after = np.flatnonzero(after_decode & among[span])
        usual = self.decode & ~self.prefill & np.concatenate([~after_decode[1:], [True]]) & among[span]
        rate = float(np.median(self.step_s[usual] / self.full_s[usual])) if usual.any() else np.inf
        held_s = self.step_s[after - 1]

        def median_s(graph: bool) -> float:
            of = self.graph[after] == graph
            seen = of.sum() >= _LEAST_LAUNCHES and np.median(held_s[of] / self.full_s[after - 1][of]) > _LONGER * rate
            return float(np.median(held_s[of])) if seen else 0.0

        return median_s(False), median_s(True)

    def kinds(self) -> tuple[tuple[Quantity, BoolArray], ...]:
        return ("prefill time", self.prompts), ("decode time", ~self.prompts)


def _spans(ahead: BoolArray) -> IndexArray:
    """Where spans begin: with each step that was not launched in the time of the one before, or where one gets too long."""
    begins = np.flatnonzero(~ahead)
    begins = begins if len(begins) and begins[0] == 0 else np.concatenate([[0], begins])
    lengths = np.diff(begins, append=len(ahead))
    return np.concatenate([np.arange(at, at + length, _LONGEST_SPAN) for at, length in zip(begins, lengths, strict=True)])


def _settings(engine: Engine, records: StepRecords) -> IndexArray:
    """The setting of the tables that is nearest to the clock of each step; the default one where it was not read."""
    settings = engine.tables.settings
    clocks = np.array([np.inf if each.core_mhz is None else each.core_mhz for each in settings])
    nearest = np.abs(clocks[None, :] - np.nan_to_num(records.core_mhz, nan=0.0)[:, None]).argmin(axis=1)
    return np.where(np.isnan(records.core_mhz), len(settings) - 1, nearest).astype(np.intp)


def _fitted(parts: _Parts, used: BoolArray) -> _Fit:
    """Launches as some of the spans show them, overhead and scales that agree best with the same."""
    from scipy.optimize import least_squares  # takes a quarter of a second to import

    prefills, launch_s = bool((used & parts.prompts).any()), parts.launch_s(used)
    decodes = bool(np.logical_or.reduceat(parts.decode, parts.begins)[parts.known][used].any())
    ratio = float(np.median(parts.time_s[used] / parts.times_s(_Fit(0.0, 1.0, 1.0, (0.0, 0.0)))[used]))
    shortest = float(parts.time_s[used].min())
    scale = np.array([shortest, ratio, ratio])
    free = np.flatnonzero([True, prefills, decodes])
    values = np.array([0.0, 1.0 if not prefills else ratio, 1.0 if not decodes else ratio])

    def parameters(of: FloatArray) -> _Fit:
        full = values.copy()
        full[free] = of * scale[free]
        return _Fit(float(full[0]), float(full[1]), float(full[2]), launch_s)

    def residuals(of: FloatArray) -> FloatArray:
        said = np.maximum(parts.times_s(parameters(of))[used], 1e-9)
        return np.asarray(np.log(said / parts.time_s[used]), dtype=np.float64)

    with single_threaded():
        start = np.array([0.5, 0.5, 0.5])[free]
        bounds = (np.array([0.0, 1.0 / _FARTHEST, 1.0 / _FARTHEST])[free], np.full(len(free), _FARTHEST))
        found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=_OUTLYING)
    return parameters(found.x)


def _off(quantity: Quantity, parts: _Parts, of: BoolArray, before: _Fit, after: _Fit) -> Off:
    was, now = (np.abs(parts.times_s(each)[of] / parts.time_s[of] - 1.0) for each in (before, after))
    return Off(quantity, int(of.sum()), float(was.mean()), float(was.max()), float(now.mean()), float(now.max()))


def _scaled(engine: Engine, fit: _Fit, records: StepRecords) -> Engine:
    tables, overhead_s = engine.tables, fit.overhead_s
    idle_w = tables.idle_power_w[:, None, None]
    limit_w, by_clock = engine.limit_w or np.inf, min(fit.prefill, 1.0) if engine.limit_w else 1.0

    def energy_j(scale: float, was_s: FloatArray, was_j: FloatArray) -> FloatArray:
        """Of steps without their overhead, which is at idle power."""
        more_s = overhead_s + (scale - 1.0) * was_s
        return np.maximum(was_j + _WITH_TIME * was_j / was_s * more_s - overhead_s * idle_w, _WITH_TIME * was_j)

    most_j = limit_w * (overhead_s + fit.decode * tables.decode_time_s) - overhead_s * idle_w
    return replace(
        engine,
        overhead_s=overhead_s,
        launch_s=fit.launch_s[0],
        graph_launch_s=fit.launch_s[1],
        most_graph_tokens=max(records.most_graph_tokens, 1),
        tables=replace(
            tables,
            prefill_time_s=fit.prefill * tables.prefill_time_s,
            prefill_energy_j=energy_j(fit.prefill / by_clock, tables.prefill_time_s, tables.prefill_energy_j / by_clock),
            decode_time_s=fit.decode * tables.decode_time_s,
            decode_energy_j=np.minimum(energy_j(fit.decode, tables.decode_time_s, tables.decode_energy_j), most_j),
        ),
    )

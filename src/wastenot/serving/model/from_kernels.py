"""An engine's profile from kernels: steps that were never run, put together from the kernels that they are made of.

Each kernel is a curve over the core clock that is in effect, by its size; a step runs them one after another at one clock.
Where the power of the whole step would exceed the limit, the clock is what the limit leaves. That is another one than for
its kernels alone: a heavy one by itself is throttled, where between light ones it is not.

    kernel alone      clock ▄▄▄▄▄ held at the limit        its curve, at clocks where nothing held it
    step              clock ▆▆▆▆▆ the whole's power counts ──▶ time and power of the step at any clock
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator, RegularGridInterpolator

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.serving.model.engine_tables import EngineTables, Evidence
from wastenot.study.sweep import Sweep
from wastenot.workloads.serving_steps import Size, StepPart, part_of

_CLOCK_STEP_MHZ = 15.0
_PROFILE_STEP_MHZ = 60.0
_MISSED_MHZ = 20.0  # a clock so far below what was asked for was held by a limit
_SAME_MHZ = 8.0  # clocks in effect this close are one
_APART = 0.05  # of the clock, between two of which the slope is not mostly noise
_STEEPEST = 3.0  # exponent of the clock that power grows with, beyond clocks that were seen


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """One kernel of steps at all of its shapes, on a common grid of clocks."""

    count: int  # how often a step runs it
    knots: tuple[FloatArray, ...]  # its sizes, ascending, one array for each dimension
    time_s: FloatArray  # of all calls of a step; shape (clocks, *sizes)
    energy_j: FloatArray  # likewise
    # whether it is the attention of prompts, which grows with the square of the new tokens: between sizes, what it takes
    # beside a rate of scores is interpolated
    prompts: bool = False

    def at(self, *sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Time and energy of all calls of a step, at sizes of one shape; each of shape (clocks, *shape)."""
        of_sizes, of_knots = np.zeros(sizes[0].shape), np.zeros(tuple(map(len, self.knots)))
        if self.prompts:
            of_sizes, of_knots = _scores(*sizes), _scores(*np.meshgrid(*self.knots, indexing="ij"))
        spread = max(float(of_knots.flat[-1] - of_knots.flat[0]), 1.0)
        several = [axis for axis, knots in enumerate(self.knots) if len(knots) > 1]
        points = np.stack([sizes[axis] for axis in several], axis=-1)

        def interpolated(values: FloatArray) -> FloatArray:
            flat = values.reshape(len(values), -1)
            rate = (flat[:, -1] - flat[:, 0]) / spread
            values = values - np.multiply.outer(rate, of_knots)
            moved = np.moveaxis(values, 0, -1).reshape(*(len(self.knots[axis]) for axis in several), len(values))
            between = np.moveaxis(RegularGridInterpolator([self.knots[axis] for axis in several], moved)(points), -1, 0)
            return between + np.multiply.outer(rate, of_sizes)

        return interpolated(self.time_s), interpolated(self.energy_j)


@dataclass(frozen=True, slots=True, eq=False)
class StepKernels:
    """All kernels of a model's steps on a GPU, by clock.

    Attributes:
        core_mhz: clocks in effect, ascending; shape (clocks,).
        limit_w: power that nothing exceeds; infinity where no limit was met.
        automatic_mhz: the clock that an automatic setting takes where no limit holds it.
        by_size: kernels by what decides their size.
        settings: that kernels were measured at.
        lightest_w: least power of any kernel at each clock; shape (clocks,).
    """

    core_mhz: FloatArray
    limit_w: float
    automatic_mhz: float
    by_size: Mapping[Size, tuple[_Kernel, ...]]
    settings: tuple[Setting, ...]
    lightest_w: FloatArray

    def prefill(self, tokens: FloatArray, past: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Time and energy of prefill steps at every clock; arguments of one shape, results of (clocks, *shape)."""
        one = np.ones_like(tokens)
        return self._sum(self._of("tokens", tokens), self._of("prefill", tokens, past), self._of("sequences", one))

    def decode(self, batch: FloatArray, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Time and energy of decode steps at every clock; arguments of one shape, results of (clocks, *shape)."""
        return self._sum(self._of("tokens", batch), self._of("decode", batch, context), self._of("sequences", batch))

    def _of(self, size: Size, *sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._sum(*(kernel.at(*sizes) for kernel in self.by_size[size]))

    @staticmethod
    def _sum(*parts: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
        return sum((time for time, _ in parts), np.zeros(())), sum((energy for _, energy in parts), np.zeros(()))

    def at_setting(self, setting: Setting, time_s: FloatArray, energy_j: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Steps at a setting: at its clock, or at the one that the power limit leaves.

        Args:
            setting: of the GPU.
            time_s: of the steps at every clock; shape (clocks, *steps).
            energy_j: likewise.
        """
        ceiling = self.automatic_mhz if setting.core_mhz is None else min(setting.core_mhz, self.automatic_mhz)
        limit_w = self.limit_w if setting.power_limit_w is None else min(setting.power_limit_w, self.limit_w)
        shape = time_s.shape[1:]
        times, energies = time_s.reshape(len(self.core_mhz), -1), energy_j.reshape(len(self.core_mhz), -1)
        top_s, top_j = (_between(self.core_mhz, each, ceiling) for each in (times, energies))
        below = self.core_mhz < ceiling - 1e-9
        times, energies = np.vstack([times[below], top_s]), np.vstack([energies[below], top_j])
        powers = energies / times
        within = powers <= limit_w * (1.0 + 1e-12)
        within[0] = True
        last = len(within) - 1 - np.argmax(within[::-1], axis=0)  # the highest clock within the limit
        above = np.minimum(last + 1, len(within) - 1)
        steps = np.arange(times.shape[1])
        low_w, high_w = powers[last, steps], powers[above, steps]
        held = above > last
        share = np.where(held, np.clip((limit_w - low_w) / np.where(held, high_w - low_w, 1.0), 0.0, 1.0), 0.0)
        speed = (1.0 - share) / times[last, steps] + share / times[above, steps]
        power = (1.0 - share) * low_w + share * high_w
        return (1.0 / speed).reshape(shape), (power / speed).reshape(shape)


def kernels_of(sweep: Sweep) -> StepKernels:
    """The kernels of steps that a sweep measured; see :func:`wastenot.workloads.serving_steps.step_parts`.

    Raises:
        BadInputError: it has other kernels, or shapes are missing.
    """
    parts = [part_of(kernel.name, kernel.count) for kernel in sweep.kernels]
    strangers = [kernel.name for kernel, part in zip(sweep.kernels, parts, strict=True) if part is None]
    if strangers:
        raise BadInputError(
            f"sweep of '{sweep.workload}': '{strangers[0]}' is not a kernel of an engine's steps; measure them with "
            "'wastenot serve profile MODEL --device DEVICE'"
        )
    known = [part for part in parts if part is not None]
    settings, in_effect, asked, time_s, energy_j = _by_setting(sweep)
    automatic = float(np.nanmax(in_effect)) if np.isfinite(in_effect).any() else 0.0
    asked = np.where(np.isnan(asked), automatic, np.minimum(asked, automatic))
    in_effect = np.where(np.isnan(in_effect), asked, np.minimum(in_effect, asked))
    power_w = energy_j / time_s
    held = in_effect < asked - _MISSED_MHZ
    top_w = float(np.nanmax(power_w))
    at_limit = held & (power_w > 0.95 * top_w)
    limit_w = float(np.median(power_w[at_limit])) if at_limit.any() else np.inf
    lowest = float(asked.min())
    clocks = np.unique([*np.arange(automatic, lowest, -_CLOCK_STEP_MHZ), *asked[:, 0], automatic])
    curves = [_curve(in_effect[:, each], time_s[:, each], power_w[:, each], clocks) for each in range(len(known))]
    lightest = np.min([power for _, power in curves], axis=0)
    by_size: dict[Size, tuple[_Kernel, ...]] = {}
    for size in ("tokens", "sequences", "decode", "prefill"):
        names = dict.fromkeys(part.name for part in known if part.size == size)
        by_size[size] = tuple(_kernel(sweep, name, size, known, curves) for name in names)
        if not by_size[size]:
            raise BadInputError(f"sweep of '{sweep.workload}': has no kernels of steps by {size}; measure all of them")
    return StepKernels(clocks, limit_w, automatic, by_size, settings, lightest)


def tables_of(
    kernels: StepKernels,
    settings: Sequence[Setting],
    evidence: Evidence,
    *,
    degree: int = 1,
    idle_power_w: FloatArray | float,
    collective_s: Mapping[str, FloatArray] | None = None,
) -> EngineTables:
    """An engine's tables from its kernels, at any clocks between those measured.

    Args:
        kernels: of one GPU.
        settings: by rising core clock; an automatic one last.
        evidence: of the steps.
        degree: of tensor parallelism, GPUs that do the same at once.
        idle_power_w: of one GPU, at each setting.
        collective_s: of a step, by ``prefill`` (tokens,) and ``decode`` (batches,): time in which GPUs exchange data, at any
            clock, and draw as much as with the lightest kernel.

    Raises:
        BadInputError: a clock is outside those measured.
    """
    low, high = float(kernels.core_mhz[0]), kernels.automatic_mhz
    for setting in settings:
        if setting.core_mhz is not None and not low - 1e-6 <= setting.core_mhz:
            raise BadInputError(f"core clock {setting.core_mhz:g} MHz: kernels were measured from {low:g} to {high:g} MHz")
    tokens, past = table_knots(kernels, "prefill")
    batches, context = table_knots(kernels, "decode")
    grids: dict[str, list[FloatArray]] = {name: [] for name in ("prefill", "prefill_j", "decode", "decode_j")}
    extra = collective_s or {}
    for name, (rows, columns), ask in (
        ("prefill", (tokens, past), kernels.prefill),
        ("decode", (batches, context), kernels.decode),
    ):
        time_s, energy_j = ask(*np.meshgrid(rows, columns, indexing="ij"))
        if name in extra:
            added = np.broadcast_to(extra[name][:, None], time_s.shape)
            energy_j = energy_j + added * kernels.lightest_w[:, None, None]
            time_s = time_s + added
        for setting in settings:
            one_s, one_j = kernels.at_setting(setting, time_s, energy_j)
            grids[name].append(one_s)
            grids[f"{name}_j"].append(degree * one_j)
    return EngineTables(
        tuple(settings), tokens, past, np.array(grids["prefill"]), np.array(grids["prefill_j"]),
        batches, context, np.array(grids["decode"]), np.array(grids["decode_j"]),
        degree * np.broadcast_to(np.asarray(idle_power_w, dtype=float), (len(settings),)).copy(), "kernels", evidence,
    )  # fmt: skip


def table_knots(kernels: StepKernels, step: Size) -> tuple[FloatArray, FloatArray]:
    """Knots of a table of steps: where any of its kernels was measured.

    Args:
        kernels: of the steps.
        step: ``prefill`` or ``decode``.
    """
    others: tuple[Size, ...] = ("tokens",) if step == "prefill" else ("tokens", "sequences")
    ends = [kernel.knots[0][[0, -1]] for other in (step, *others) for kernel in kernels.by_size[other]]
    least, most = max(end[0] for end in ends), min(end[1] for end in ends)
    rows = {float(knot) for other in (step, *others) for kernel in kernels.by_size[other] for knot in kernel.knots[0]}
    columns = {float(knot) for kernel in kernels.by_size[step] for knot in kernel.knots[1]}
    return np.array(sorted(each for each in rows if least <= each <= most)), np.array(sorted(columns))


def default_settings(kernels: StepKernels) -> tuple[Setting, ...]:
    """Settings for a profile: clocks between those measured, counted down from the highest, and an automatic one."""
    asked = [each for each in kernels.settings if each.core_mhz is not None]
    if not asked:
        return (AUTO,)
    low, high = (pick(each.core_mhz or 0.0 for each in asked) for pick in (min, max))
    clocks = np.arange(high, low - 1e-6, -_PROFILE_STEP_MHZ)[::-1]
    memory = max((each.memory_mhz or 0.0 for each in asked), default=0.0)
    return (*(Setting(float(clock), memory or None) for clock in clocks), AUTO)


def _dimensions(size: Size) -> int:
    return 2 if size in ("decode", "prefill") else 1


def _by_setting(sweep: Sweep) -> tuple[tuple[Setting, ...], FloatArray, FloatArray, FloatArray, FloatArray]:
    """By setting and kernel the means over repeats: clock in effect, clock asked for, time, energy."""
    settings = sorted(
        dict.fromkeys(sweep.setting(row) for row in range(len(sweep))), key=lambda each: each.core_mhz or np.inf
    )
    place = {setting: index for index, setting in enumerate(settings)}
    rows = np.array([place[sweep.setting(row)] for row in range(len(sweep))])
    shape = len(settings), len(sweep.kernels)
    count = np.zeros(shape)
    np.add.at(count, (rows, sweep.kernel_index), 1.0)

    def mean(values: FloatArray) -> FloatArray:
        total = np.zeros(shape)
        np.add.at(total, (rows, sweep.kernel_index), values)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / np.where(count > 0, count, np.nan))

    asked = np.array([np.nan if each.core_mhz is None else each.core_mhz for each in settings])[:, None]
    return (
        tuple(settings),
        mean(sweep.effective_core_mhz),
        np.broadcast_to(asked, shape),
        mean(sweep.time_s),
        mean(sweep.energy_j),
    )


def _curve(
    in_effect: FloatArray, time_s: FloatArray, power_w: FloatArray, clocks: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Time and power of one call at each of ``clocks``, from those in effect where it was measured.

    Between them both are interpolated over the logarithm of the clock; above them power laws continue.
    """
    there = np.isfinite(time_s)
    order = np.argsort(in_effect[there], kind="stable")
    clock, time, power = in_effect[there][order], np.log(time_s[there][order]), np.log(power_w[there][order])
    group = np.concatenate([[0], np.cumsum(np.diff(clock) > _SAME_MHZ)])
    size = np.bincount(group)
    x, time, power = (np.bincount(group, each) / size for each in (np.log(clock), time, power))
    wanted: FloatArray = np.log(clocks)
    if len(x) == 1:
        return np.full_like(clocks, np.exp(time[0])), np.full_like(clocks, np.exp(power[0]))

    apart = max(int(np.searchsorted(x, x[-1] - _APART)) - 1, 0)

    def curve(values: FloatArray, least: float, most: float) -> FloatArray:
        inside = PchipInterpolator(x, values)(np.clip(wanted, x[0], x[-1]))
        slope = float(np.clip((values[-1] - values[apart]) / (x[-1] - x[apart]), least, most))
        return np.asarray(np.exp(inside + slope * np.maximum(wanted - x[-1], 0.0)))

    return curve(time, -1.0, 0.0), curve(power, 0.0, _STEEPEST)


def _kernel(
    sweep: Sweep, name: str, size: Size, parts: Sequence[StepPart], curves: Sequence[tuple[FloatArray, FloatArray]]
) -> _Kernel:
    """A kernel at all of its shapes, which must be a grid."""
    own = {part.at: index for index, part in enumerate(parts) if part.name == name and part.size == size}
    knots = tuple(np.array(sorted({at[axis] for at in own}), dtype=float) for axis in range(_dimensions(size)))
    shape = tuple(map(len, knots))
    clocks = len(curves[0][0])
    time_s, energy_j = np.empty((clocks, *shape)), np.empty((clocks, *shape))
    count = 1
    for place in np.ndindex(*shape):
        at = tuple(int(axis[index]) for axis, index in zip(knots, place, strict=True))
        if at not in own:
            raise BadInputError(
                f"sweep of '{sweep.workload}': {name} was not measured at {at}; measure it too, or leave its size out"
            )
        time, power = curves[own[at]]
        count = parts[own[at]].count
        time_s[:, *place] = count * time
        energy_j[:, *place] = count * time * power
    return _Kernel(count, knots, time_s, energy_j, prompts=size == "prefill")


def _scores(tokens: FloatArray, past: FloatArray) -> FloatArray:
    """Pairs of new tokens and those that they attend to."""
    return tokens * (past + 0.5 * tokens)


def _between(clocks: FloatArray, values: FloatArray, clock: float) -> FloatArray:
    """Values of shape (clocks, n) at a clock between."""
    index = min(int(np.searchsorted(clocks, clock, side="right")) - 1, len(clocks) - 1)
    if index + 1 >= len(clocks) or index < 0:
        return np.asarray(values[max(index, 0)][None])
    share = (clock - clocks[index]) / (clocks[index + 1] - clocks[index])
    return np.asarray(((1.0 - share) * values[index] + share * values[index + 1])[None])

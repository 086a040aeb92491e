"""Tables of an engine from laws fitted to measured steps, and how far the laws are from steps that were held out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.serving.model.engine_tables import EngineTables, Evidence
from wastenot.serving.model.profile_file import Quantity, StatedError
from wastenot.serving.model.step_law import fit_law
from wastenot.serving.model.steps import MeasuredStep, Phase, averaged, check_power, rising, settings_of

PHASES: tuple[Phase, ...] = ("prefill", "decode")
_FINE, _COARSE = 2**0.25, 2**0.5  # steps between knots of sizes and of contexts
_FIRST_CONTEXT = 64.0
_APART = 2.0  # ratio of contexts from which on their cost can be told
_LEAST_SIZES = 3  # that a law is fitted to


def fitted_tables(
    steps: Iterable[MeasuredStep],
    idle_power_w: Mapping[Setting, float],
    *,
    core_mhz: Sequence[float] = (),
    most_context: float | None = None,
    evidence: Evidence = "measured",
) -> EngineTables:
    """Tables by laws fitted to each phase: from one token or sequence to the most that were measured.

    Args:
        steps: of one parallel degree; repeats are averaged.
        idle_power_w: of the engine with nothing to do, at each of their settings.
        core_mhz: further clocks to have in the tables, between the least and the greatest measured; idle power is
            interpolated.
        most_context: tokens in the cache that the tables reach to; by default the most that a sequence had when measured.
            More are by the law alone.
        evidence: of the steps.

    Raises:
        BadInputError: power is missing, steps are too few, or a clock is outside those measured.
    """
    rows = averaged(steps)
    if not rows:
        raise BadInputError("there are no steps to make a profile from")
    check_power(rows)
    for phase in PHASES:
        sizes = {each.new_tokens for each in rows if each.phase == phase}
        if 0 < len(sizes) < _LEAST_SIZES:
            raise BadInputError(
                f"{phase} steps of {counted(len(sizes), 'size')} are too few to fit; measure at least "
                f"{_LEAST_SIZES}, or use them unfitted with `as_measured`"
            )
    settings = _settings(rows, core_mhz)
    reach = max(_reach(each) for each in rows) if most_context is None else most_context
    contexts = _knots(_FIRST_CONTEXT, max(reach, _FIRST_CONTEXT), _COARSE, first=0.0)
    prefills, decodes = ([each for each in rows if each.phase == phase] for phase in PHASES)
    seen = (
        contexts
        if tells_contexts(decodes)
        else np.unique([choose(each.context for each in decodes) for choose in (min, max)])
    )
    prefill, decode = _grid(prefills, settings, contexts), _grid(decodes, settings, seen)
    idle = np.array([_idle(each, idle_power_w) for each in settings])
    return EngineTables(settings, *prefill, *decode, idle, "fitted", evidence)


def held_out_errors(steps: Iterable[MeasuredStep]) -> tuple[StatedError, ...]:
    """How far laws are from steps they were not fitted to: every second clock and size, between the least and the greatest.

    Twice, with the other clocks and sizes held out the second time; phases with fewer than three sizes and clocks have no
    such errors.

    Args:
        steps: of one parallel degree.
    """
    found = []
    for phase in PHASES:
        for rows in _groups([each for each in averaged(steps) if each.phase == phase]).values():
            apart: dict[Quantity, list[float]] = {}
            for parity in (0, 1):
                out = _held_out(rows, parity)
                judged = [each for each, is_out in zip(rows, out, strict=True) if is_out]
                fitted = [each for each, is_out in zip(rows, out, strict=True) if not is_out]
                if not judged:
                    continue
                times, powers = fit_law(fitted).of_steps(judged)
                quantities: tuple[tuple[Quantity, FloatArray, list[float]], ...] = (
                    ("prefill time" if phase == "prefill" else "decode time", times, [each.time_s for each in judged]),
                    ("prefill power" if phase == "prefill" else "decode power", powers, [each.power_w for each in judged]),
                )
                for quantity, said, true in quantities:
                    if np.isfinite(said).all() and np.isfinite(true).all():
                        apart.setdefault(quantity, []).extend(np.abs(said / np.array(true) - 1.0).tolist())
            found += [
                StatedError(quantity, rows[0].gpus, float(np.mean(each)), max(each), len(each), "steps held out of the fit")
                for quantity, each in apart.items()
            ]
    return tuple(found)


def _held_out(rows: Sequence[MeasuredStep], parity: int) -> list[bool]:
    clocks = [each.setting.core_mhz or 0.0 for each in rows]
    sizes = [each.new_tokens for each in rows]
    inner = {*sorted(set(clocks))[1:-1][parity::2]}, {*sorted(set(sizes))[1:-1][parity::2]}
    return [clock in inner[0] or size in inner[1] for clock, size in zip(clocks, sizes, strict=True)]


def _groups(rows: Iterable[MeasuredStep]) -> dict[tuple[bool, float | None, float | None], list[MeasuredStep]]:
    """Steps by what a law cannot tell apart but by being fitted again: memory clock, power limit, and clocks left alone."""
    groups: dict[tuple[bool, float | None, float | None], list[MeasuredStep]] = {}
    for row in rows:
        groups.setdefault(_group(row.setting), []).append(row)
    return groups


def _group(setting: Setting) -> tuple[bool, float | None, float | None]:
    return setting.core_mhz is None, setting.memory_mhz, setting.power_limit_w


def tells_contexts(decodes: Sequence[MeasuredStep]) -> bool:
    """Whether contexts vary enough to tell what they cost, apart from what sequences cost."""
    contexts = [each.context for each in decodes]
    return not contexts or max(contexts) >= _APART * max(min(contexts), 1.0)


def _settings(rows: Sequence[MeasuredStep], core_mhz: Sequence[float]) -> tuple[Setting, ...]:
    settings = settings_of(rows)
    clocks = [each.core_mhz for each in settings if each.core_mhz is not None]
    for clock in core_mhz:
        if not clocks or not min(clocks) <= clock <= max(clocks):
            covered = f"{min(clocks):g} to {max(clocks):g} MHz" if clocks else "only the default clock"
            raise BadInputError(f"`core_mhz` {clock:g}: the table covers {covered}; measure the engine there too")
    others = {(each.memory_mhz, each.power_limit_w) for each in settings if each.core_mhz is not None}
    more = {Setting(float(clock), *other) for clock in core_mhz for other in others}
    return tuple(sorted({*settings, *more}, key=rising))


def _reach(step: MeasuredStep) -> float:
    return step.context + (step.tokens if step.phase == "prefill" else 0.0)


def _grid(
    rows: Sequence[MeasuredStep], settings: Sequence[Setting], contexts: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Knots of size and of context, times and energies by laws; NaN at settings at which the phase was not measured."""
    laws = {key: fit_law(each) for key, each in _groups(rows).items()}
    sizes = _knots(1.0, max((each.new_tokens for each in rows), default=1.0), _FINE)
    n, c = np.meshgrid(sizes, contexts, indexing="ij")
    own = n / 2 if rows and rows[0].phase == "prefill" else 0.0
    times = np.full((len(settings), len(sizes), len(contexts)), np.nan)
    energies = times.copy()
    for index, setting in enumerate(settings):
        law = laws.get(_group(setting))
        if law is not None:
            times[index] = law.time_s(setting.core_mhz, n, n * (c + own))
            energies[index] = times[index] * law.power_w(setting.core_mhz, n, n * (c + own))
    return sizes, contexts, times, energies


def _knots(least: float, most: float, ratio: float, first: float | None = None) -> FloatArray:
    """Whole numbers from the least to the most, each about ``ratio`` times the one before."""
    count = max(int(np.ceil(np.log(most / least) / np.log(ratio))), 0) + 1
    knots = np.unique(np.rint(np.geomspace(least, most, count)))
    knots = np.unique(np.append(knots[knots < most], most))
    return knots if first is None else np.append(first, knots)


def _idle(setting: Setting, known: Mapping[Setting, float]) -> float:
    if setting in known:
        return known[setting]
    group = _group(setting)
    like = sorted((each.core_mhz or 0.0, power) for each, power in known.items() if _group(each) == group)
    clocks, powers = zip(*like, strict=True)
    return float(np.interp(setting.core_mhz or 0.0, clocks, powers))

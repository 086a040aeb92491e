"""An engine's profile from a table of measured steps, as they are or fitted (:mod:`wastenot.serving.model.fitted`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.devices.simulated.basis import assumed_below_mhz
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables, Evidence
from wastenot.serving.model.fitted import fitted_tables, held_out_errors, tells_contexts
from wastenot.serving.model.profile_file import EngineProfile, StatedError
from wastenot.serving.model.steps import MeasuredStep, averaged, check_power, implausible, is_repeat, settings_of
from wastenot.serving.model.steps_csv import StepTable


def measured_tables(
    steps: Iterable[MeasuredStep], idle_power_w: Mapping[Setting, float], *, evidence: Evidence = "measured"
) -> EngineTables:
    """Tables whose knots are the sizes and contexts that were measured; what lies between measured cells is interpolated.

    Args:
        steps: of one parallel degree; repeats are averaged. Prefill steps of several prompts are left out.
        idle_power_w: of the engine with nothing to do, at each of their settings.
        evidence: of the steps.

    Raises:
        BadInputError: power is missing.
    """
    rows = averaged(each for each in steps if each.phase == "decode" or each.sequences == 1)
    if not rows:
        raise BadInputError("there are no steps to make a profile from")
    check_power(rows)
    settings = settings_of(rows)
    prefill = _grid([each for each in rows if each.phase == "prefill"], settings)
    decode = _grid([each for each in rows if each.phase == "decode"], settings)
    return EngineTables(
        settings,
        *prefill,
        *decode,
        np.array([idle_power_w[each] for each in settings], dtype=np.float64),
        "measured",
        evidence,
    )


def _grid(rows: list[MeasuredStep], settings: tuple[Setting, ...]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Knots of size and of context, times and energies; one cell that is not known where there are no rows."""
    sizes = np.unique([each.new_tokens for each in rows] or [1.0]).astype(np.float64)
    contexts = np.unique([each.context for each in rows] or [0.0]).astype(np.float64)
    times = np.full((len(settings), len(sizes), len(contexts)), np.nan)
    energies = times.copy()
    for row in rows:
        cell = (
            settings.index(row.setting),
            int(np.searchsorted(sizes, row.new_tokens)),
            int(np.searchsorted(contexts, row.context)),
        )
        times[cell], energies[cell] = row.time_s, row.time_s * row.power_w
    return sizes, contexts, times, energies


_IDLE = 0.4  # of the least power of a step, where idle power was not measured
_BLOCK = 16  # tokens


def profile_of_steps(
    table: StepTable,
    how: Literal["fitted", "measured"] = "fitted",
    *,
    core_mhz: Sequence[float] = (),
    most_context: float | None = None,
    cache_tokens: int | None = None,
    idle_power_w: float | None = None,
    most_running: int | None = None,
    most_step_tokens: int = 2048,
    switch_s: float = 0.05,
    evidence: Evidence | None = None,
) -> EngineProfile:
    """A profile with an engine for each parallel degree of a table.

    Args:
        table: of measured steps.
        how: ``fitted`` to a law that also covers what lies between and below the measurements, with its errors on steps held
            out; or ``measured``: the measurements as they are, interpolated, nothing beyond.
        core_mhz: further clocks to fit, between those measured.
        most_context: tokens of one sequence that fitted tables reach to; by default the most that was measured.
        cache_tokens: that the cache holds; by default the most that a measured decode step had in it.
        idle_power_w: of a GPU with nothing to do; by default as the table says.
        most_running: requests in the batch; by default the most that was measured.
        most_step_tokens: new tokens of one step.
        switch_s: that clocks take to change.
        evidence: of the steps; by default as the table says.

    Raises:
        BadInputError: power is missing, a clock is outside those measured, or a power or a time cannot be.
    """
    engines: list[Engine] = []
    errors: list[StatedError] = []
    notes = list(table.notes)
    evidence = table.origin if evidence is None else evidence
    if idle_power_w is not None and not 0.0 < idle_power_w < float("inf"):
        raise BadInputError(f"`idle_power_w` {idle_power_w:g}: must be a number of watts above 0")
    for gpus in sorted({each.gpus for each in table.steps}):
        steps = [each for each in table.steps if each.gpus == gpus]
        odd = implausible(steps)
        steps = [each for each in steps if not any(is_repeat(each, other) for other in odd)]
        notes += [_left_out(each) for each in odd]
        idle, assumed = _idle_powers(steps, table, gpus, idle_power_w)
        notes += assumed
        if how == "fitted":
            tables = fitted_tables(steps, idle, core_mhz=core_mhz, most_context=most_context, evidence=evidence)
            errors += held_out_errors(steps)
        elif core_mhz or most_context is not None:
            raise BadInputError(
                "`core_mhz`, `most_context`: there are no others as measured; other clocks and contexts need a fit"
            )
        else:
            tables = measured_tables(steps, idle, evidence=evidence)
        decode = [each for each in steps if each.phase == "decode"]
        notes += _caveats(steps, tables.context_tokens[-1] if how == "fitted" else None)
        needed = [int(each.sequences * -(-(each.context + 1) // _BLOCK)) for each in decode]
        held = max(needed, default=int(tables.prefill_tokens[-1]) // _BLOCK)
        if cache_tokens is None:
            notes.append(f"the cache is assumed to hold {_BLOCK * held:,.0f} tokens, as many as a measured step needed")
        engines.append(
            Engine(
                tables,
                cache_blocks=max(held if cache_tokens is None else cache_tokens // _BLOCK, 1),
                block_tokens=_BLOCK,
                most_running=int(tables.batches[-1]) if most_running is None else most_running,
                most_step_tokens=min(most_step_tokens, int(tables.prefill_tokens[-1])) if len(decode) < len(steps) else 1,
                switch_s=switch_s,
                gpus=gpus,
                model=table.model,
                device=table.device,
                assumed_below_mhz=assumed_below_mhz(table.device),
            )
        )
    return EngineProfile(tuple(engines), tuple(errors), tuple(dict.fromkeys(notes)))


def _idle_powers(
    steps: Iterable[MeasuredStep], table: StepTable, gpus: int, asked_w: float | None
) -> tuple[Mapping[Setting, float], list[str]]:
    """Idle power of the engine at each setting, and what was assumed."""
    known: dict[Setting, float] = {}
    assumed: list[str] = []
    for setting in settings_of(steps):
        if asked_w is not None:
            known[setting] = gpus * asked_w
        elif (setting, gpus) in table.idle_power_w:
            known[setting] = table.idle_power_w[setting, gpus]
        else:
            known[setting] = _IDLE * min(each.power_w for each in steps if each.setting == setting)
            assumed = [f"idle power was not measured: it is assumed to be {_IDLE:g} of the least power of a step"]
    return known, assumed


def _left_out(step: MeasuredStep) -> str:
    what = f"{step.sequences:g} sequences, {step.tokens:g} tokens each, {step.context:g} tokens of context"
    return f"left out: a {step.phase} step of {what} in {step.time_s:.3g} s, less than half the time of smaller steps"


def _caveats(steps: Sequence[MeasuredStep], reach: float | None) -> list[str]:
    """What a reader should know of how far measurements carry the tables."""
    notes = []
    for phase in ("prefill", "decode"):
        rows = [each for each in steps if each.phase == phase]
        if not rows:
            notes.append(f"there are no {phase} steps in the table, so there are none in the profile")
            continue
        if reach is None:
            continue
        least, most = (min(rows, key=lambda each: each.new_tokens), max(rows, key=lambda each: each.new_tokens))
        sizes = f"{least.new_tokens:,.0f} to {most.new_tokens:,.0f} {'tokens' if phase == 'prefill' else 'sequences'}"
        contexts = max(each.context for each in rows)
        if phase == "decode" and not tells_contexts(rows):
            notes.append(
                f"decode steps were measured at about {contexts:,.0f} tokens of context; other contexts are unknown"
            )
        beyond = f", contexts beyond {contexts:,.0f} tokens" if contexts < reach else ""
        notes.append(f"{phase} steps were measured at {sizes}; smaller ones{beyond} are extrapolated by the fit")
    return notes

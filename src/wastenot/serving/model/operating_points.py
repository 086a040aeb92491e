"""What an engine can be set to: each batch size, clock and parallel degree with its latency and its energy per token.

Energy per token against the clock is a U: at low clocks static power is paid for longer, at high ones voltage rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.frontiers.pareto import Groups, pareto_points
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.profile_file import EngineProfile

_CONTEXT = 1024.0


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """An engine that decodes.

    Attributes:
        gpus: parallel degree.
        setting: of its GPUs.
        batch: sequences that decode.
        latency_s: between two tokens of a sequence: of a step, with what the host takes.
        energy_per_token_j: of all GPUs.
        power_w: of all GPUs.
        on_frontier: whether no other point is better in latency and energy per token.
        is_least: whether no setting has less energy per token at this batch size and degree.
        assumed: whether its clock was neither measured nor fitted.
    """

    gpus: int
    setting: Setting
    batch: float
    latency_s: float
    energy_per_token_j: float
    power_w: float
    on_frontier: bool = False
    is_least: bool = False
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """A prompt that is prefilled alone.

    Attributes:
        gpus: parallel degree.
        setting: of its GPUs.
        tokens: of the prompt.
        time_s: of the step.
        energy_j: of all GPUs.
        is_least: whether no setting has less energy for it at this degree.
    """

    gpus: int
    setting: Setting
    tokens: float
    time_s: float
    energy_j: float
    is_least: bool = False


def operating_points(
    profile: EngineProfile,
    *,
    context: float | None = None,
    batches: Sequence[float] | None = None,
    assumed_clocks: bool = False,
) -> tuple[OperatingPoint, ...]:
    """The points of a profile, by parallel degree, setting and batch size.

    Args:
        profile: of the engines.
        context: tokens in the cache of each sequence; by default 1,024, or what is nearest to that in the profile.
        batches: by default the powers of two that the profile covers, and its greatest batch.
        assumed_clocks: also clocks that were neither measured nor fitted.

    Returns:
        The points; none for a profile without decode steps.

    Raises:
        OutsideProfileError: none of the batches is covered at this context.
    """
    if not any(np.isfinite(each.tables.decode_time_s).any() for each in profile.engines):
        return ()
    context = usual_context(profile) if context is None else context
    profile = _shown(profile, assumed_clocks=assumed_clocks)
    points = [
        point
        for engine in profile.engines
        for setting in range(len(engine.tables.settings))
        for batch in (usual_batches(engine) if batches is None else batches)
        if (point := _point(engine, setting, batch, context)) is not None
    ]
    if not points:
        raise OutsideProfileError(_nothing(profile, context, batches))
    frontier = set(
        pareto_points(
            Groups.of_one(
                np.array([each.latency_s for each in points]), np.array([each.energy_per_token_j for each in points])
            )
        ).tolist()
    )
    least = {
        (gpus, batch): min(each.energy_per_token_j for each in points if (each.gpus, each.batch) == (gpus, batch))
        for gpus, batch in {(each.gpus, each.batch) for each in points}
    }
    return tuple(
        replace(each, on_frontier=index in frontier, is_least=each.energy_per_token_j == least[each.gpus, each.batch])
        for index, each in enumerate(points)
    )


def prefill_points(profile: EngineProfile, *, assumed_clocks: bool = False) -> tuple[PrefillPoint, ...]:
    """Prompts at each setting, by parallel degree and length: powers of four from 128 that the profile covers."""
    points: list[PrefillPoint] = []
    for engine in _shown(profile, assumed_clocks=assumed_clocks).engines:
        knots = engine.tables.prefill_tokens
        for length in (128.0, 512.0, 2048.0, 8192.0):
            if not knots[0] <= length <= knots[-1]:
                continue
            found = []
            for index, setting in enumerate(engine.tables.settings):
                try:
                    cost = engine.tables.prefill(index, length)
                except OutsideProfileError:
                    continue
                found.append(PrefillPoint(engine.gpus, setting, length, cost.time_s, cost.energy_j))
            least = min((each.energy_j for each in found), default=0.0)
            points += [replace(each, is_least=each.energy_j == least) for each in found]
    return tuple(points)


def _shown(profile: EngineProfile, *, assumed_clocks: bool) -> EngineProfile:
    """At the clocks that are shown: the known ones, or all where none is known."""
    known = all(each.known_settings for each in profile.engines)
    return profile.within_known_clocks() if known and not assumed_clocks else profile


def usual_context(profile: EngineProfile) -> float:
    """1,024 tokens, or what is nearest to that in all engines of a profile.

    Raises:
        BadInputError: the engines have no context in common.
    """
    low = max(float(each.tables.context_tokens[0]) for each in profile.engines)
    high = min(float(each.tables.context_tokens[-1]) for each in profile.engines)
    if low > high:
        raise BadInputError("the engines of this profile have no context length in common; choose one with `gpus`")
    return min(max(_CONTEXT, low), high)


def usual_batches(engine: Engine) -> tuple[float, ...]:
    """The powers of two among an engine's batches, and the greatest."""
    low, high = engine.tables.batches[[0, -1]]
    powers = 2.0 ** np.arange(np.ceil(np.log2(low)), np.floor(np.log2(high)) + 1)
    return tuple(float(each) for each in np.unique(np.append(powers, high)))


def _nothing(profile: EngineProfile, context: float, batches: Sequence[float] | None) -> str:
    tables = profile.engines[0].tables
    (least, most), (short, long) = tables.batches[[0, -1]], tables.context_tokens[[0, -1]]
    asked = "" if batches is None else f" of {', '.join(f'{each:.10g}' for each in batches)} sequences"
    covered = (
        f"batches of {least:g} to {most:g} and contexts of {short:g} to {long:g} tokens, as far as the cache holds them"
    )
    return f"no decode step{asked} with {context:.10g} tokens of context is in the profile, which covers {covered}"


def _point(engine: Engine, setting: int, batch: float, context: float) -> OperatingPoint | None:
    """``None`` outside the profile, or where the cache does not hold so much."""
    if batch * -(-(context + 1) // engine.block_tokens) > engine.cache_blocks:
        return None
    try:
        cost = engine.tables.decode(setting, batch, context)
    except OutsideProfileError:
        return None
    idle_j = engine.overhead_s * float(engine.tables.idle_power_w[setting])
    time_s, energy_j = cost.time_s + engine.overhead_s, cost.energy_j + idle_j
    at = engine.tables.settings[setting]
    return OperatingPoint(engine.gpus, at, batch, time_s, energy_j / batch, energy_j / time_s, assumed=engine.assumes(at))

"""What the steps of an engine cost, as tables: the one form that every source of a profile comes to.

A *prefill step* computes ``tokens`` new tokens of prompts of which ``past`` tokens are in the cache already. A *decode
step* makes one token for each of ``batch`` sequences, which hold ``context`` tokens in the cache on average. A *mixed step*
does both at once (chunked prefill). Times and energies are of the whole engine: all GPUs of its parallel degree.

A step of several prompts is one of all their tokens, on top of as many past ones as make their attention the same. Attention
costs in proportion to the pairs of a new token and one that it attends to, n (past + n / 2) for n tokens of a prompt (Dao et
al., FlashAttention, arXiv:2205.14135, section 3.1; half of the square with a causal mask), summed over prompts. So their
``past`` may be below 0, down to minus half their tokens: :func:`several_prompts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.serving.model.interpolation import bilinear, fraction, interval_of

Source = Literal["measured", "fitted", "kernels"]
Evidence = Literal["measured", "simulated", "forecast"]


class StepCost(NamedTuple):
    """What a step costs.

    Attributes:
        time_s: of the step.
        energy_j: of the whole engine during it.
    """

    time_s: float
    energy_j: float

    @property
    def power_w(self) -> float:
        """Mean power of the step."""
        return self.energy_j / self.time_s


class OutsideProfileError(BadInputError):
    """A profile is asked for a step outside what it covers; the text says what it covers."""


@dataclass(frozen=True, slots=True, eq=False)
class EngineTables:
    """Times and energies of steps on a grid. Between its knots they are interpolated, beyond them nothing is said.

    Cells that are not known (many sequences with much context do not fit into a cache) are NaN, in times and energies
    alike, and outside the profile.

    Attributes:
        settings: by rising core clock; an automatic one last.
        prefill_tokens: new tokens of a step, ascending; shape (p,).
        past_tokens: tokens of the same prompts in the cache, ascending from 0; shape (q,).
        prefill_time_s: shape (settings, p, q).
        prefill_energy_j: shape (settings, p, q).
        batches: sequences of a decode step, ascending; shape (b,).
        context_tokens: mean tokens in the cache of a sequence, ascending; shape (c,).
        decode_time_s: shape (settings, b, c).
        decode_energy_j: shape (settings, b, c).
        idle_power_w: of the engine with nothing to do, at each setting; shape (settings,).
        source: how the tables came about.
        evidence: whether they are measured, simulated or forecast.
    """

    settings: tuple[Setting, ...]
    prefill_tokens: FloatArray
    past_tokens: FloatArray
    prefill_time_s: FloatArray
    prefill_energy_j: FloatArray
    batches: FloatArray
    context_tokens: FloatArray
    decode_time_s: FloatArray
    decode_energy_j: FloatArray
    idle_power_w: FloatArray
    source: Source
    evidence: Evidence

    def at_settings(self, places: Sequence[int]) -> EngineTables:
        """The same with only some of the settings, by their places."""
        kept = list(places)
        return replace(
            self,
            settings=tuple(self.settings[place] for place in kept),
            prefill_time_s=self.prefill_time_s[kept],
            prefill_energy_j=self.prefill_energy_j[kept],
            decode_time_s=self.decode_time_s[kept],
            decode_energy_j=self.decode_energy_j[kept],
            idle_power_w=self.idle_power_w[kept],
        )

    def prefill(self, setting: int, tokens: float, past: float = 0.0) -> StepCost:
        """A step of ``tokens`` new tokens on top of ``past`` ones, which are below 0 of several prompts.

        Raises:
            OutsideProfileError: beyond the tables.
        """
        of = several_prompts(self) if past < 0.0 else self
        tables = of.prefill_time_s[setting], of.prefill_energy_j[setting]
        rows, columns = ("new tokens", tokens, of.prefill_tokens), ("tokens before them", past, of.past_tokens)
        return _cost("prefill", f"{tokens:g} tokens on top of {past:g} ones", tables, rows, columns)

    def decode(self, setting: int, batch: float, context: float) -> StepCost:
        """A step of ``batch`` sequences that hold ``context`` tokens each on average.

        Raises:
            OutsideProfileError: beyond the tables.
        """
        tables = self.decode_time_s[setting], self.decode_energy_j[setting]
        rows, columns = ("sequences", batch, self.batches), ("tokens in the cache", context, self.context_tokens)
        return _cost("decode", f"{batch:g} sequences with {context:g} tokens in the cache each", tables, rows, columns)

    def mixed(self, setting: int, tokens: float, past: float, batch: float, context: float) -> StepCost:
        """A step that prefills ``tokens`` and decodes ``batch`` sequences at once.

        The decoded tokens ride along in the matrix products of the prefill, and their attention is added: the cost of a
        prefill of ``tokens + batch``, or of a decode step with empty caches where that costs more, and what the decode step
        costs above one with empty caches (the least context of the tables).

        Raises:
            OutsideProfileError: beyond the tables.
        """
        together = self.prefill(setting, tokens + batch, past)
        empty = self.decode(setting, batch, float(self.context_tokens[0]))
        full = self.decode(setting, batch, context)
        return StepCost(
            max(together.time_s, empty.time_s) + full.time_s - empty.time_s,
            max(together.energy_j, empty.energy_j) + full.energy_j - empty.energy_j,
        )


@lru_cache(maxsize=16)  # asked for again by each simulation and policy of an engine
def several_prompts(tables: EngineTables) -> EngineTables:
    """The same with a column of past tokens below 0, on the line through the first two.

    A past token less saves what one more costs, all together at most nine tenths of a step. Where the second is not known,
    several prompts cost what one does.
    """
    past, tokens = tables.past_tokens, tables.prefill_tokens
    if past[0] < 0.0:
        return tables
    least = -0.5 * float(tokens[-1])
    farthest = 0.5 * np.append(tokens[1:], tokens[-1])[:, None]  # below 0 that a row is read at, with the next one

    def below(values: FloatArray) -> FloatArray:
        none = values[:, :, :1]
        more = np.diff(values[:, :, :2], axis=2) / np.diff(past[:2]) if len(past) > 1 else np.zeros_like(none)
        return np.concatenate([none + least * np.clip(np.nan_to_num(more), 0.0, 0.9 * none / farthest), values], axis=2)

    return replace(
        tables,
        past_tokens=np.concatenate([[least], past]),
        prefill_time_s=below(tables.prefill_time_s),
        prefill_energy_j=below(tables.prefill_energy_j),
    )


def _cost(
    step: str,
    of: str,
    tables: tuple[FloatArray, FloatArray],
    rows: tuple[str, float, FloatArray],
    columns: tuple[str, float, FloatArray],
) -> StepCost:
    """Time and energy of a step of some size, by what its rows and columns are, the value of each, and their knots."""
    places = []
    for what, value, knots in (rows, columns):
        interval = interval_of(knots, 0, len(knots), value, 0)
        if interval < 0:
            raise OutsideProfileError(
                f"a {step} step with {value:g} {what} is outside the profile, which covers {knots[0]:g} to {knots[-1]:g}; "
                "profile the engine there too"
            )
        places.append((interval, float(fraction(knots, 0, len(knots), value, interval))))
    (i, along), (j, across) = places
    down = tables[0].shape[1]
    time_s, energy_j = (float(bilinear(each.reshape(-1), i * down + j, down, 1, along, across)) for each in tables)
    if math.isnan(time_s):
        raise OutsideProfileError(
            f"a {step} step of {of} is outside the profile, which has no such steps; profile the engine there too"
        )
    return StepCost(time_s, energy_j)

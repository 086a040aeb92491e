"""The one interpolation of tables of steps: between knots, on them and beyond them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from wastenot.serving.model.compiled import compiled
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.interpolation import bilinear, fraction, interval_of
from wastenot.serving.model.step_costs import FlatTables, StepCosts, flat_tables, mixed_within


def test_values_are_those_of_scipy() -> None:
    random = np.random.default_rng(1)
    rows, columns, cells = np.cumsum(random.uniform(1, 9, 5)), np.cumsum(random.uniform(1, 9, 4)), random.normal(size=20)
    scipy = RegularGridInterpolator((rows, columns), cells.reshape(5, 4))
    for _ in range(200):
        row, column = random.uniform(rows[0], rows[-1]), random.uniform(columns[0], columns[-1])
        i, j = (interval_of(each, 0, len(each), at, 2) for each, at in ((rows, row), (columns, column)))
        along, across = fraction(rows, 0, 5, row, i), fraction(columns, 0, 4, column, j)
        assert bilinear(cells, 4 * i + j, 4, 1, along, across) == pytest.approx(scipy((row, column)), rel=1e-12)


def test_knots_belong_to_the_interval_after_them_but_for_the_last_and_beyond_there_is_none() -> None:
    knots = [0.0, 9.0, 1.0, 2.0, 4.0, 9.0]  # of which those from 2 to 4 are looked at
    found = [interval_of(knots, 2, 3, value, hint) for value in (1.0, 1.9, 2.0, 4.0) for hint in (0, 1)]
    assert found == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [interval_of(knots, 2, 3, value, 0) for value in (0.9, 4.1, math.nan)] == [-1] * 3
    assert interval_of(knots, 2, 1, 1.0, 0) == 0 and fraction(knots, 2, 1, 1.0, 0) == 0.0


def test_on_a_knot_what_is_not_known_beyond_it_does_not_count() -> None:
    nan = math.nan
    assert bilinear([1.0, nan, nan, nan], 0, 2, 1, 0.0, 0.0) == 1.0
    assert bilinear([nan, 2.0, nan, nan], 0, 2, 1, 0.0, 1.0) == 2.0
    assert bilinear([nan, nan, 3.0, 5.0], 0, 2, 1, 1.0, 0.5) == 4.0
    assert math.isnan(bilinear([1.0, 2.0, 3.0, nan], 0, 2, 1, 0.5, 0.5))


def cost(table: FlatTables, setting: int, tokens: float, past: float, batch: float, context: float) -> tuple[float, float]:
    return mixed_within(table, setting, tokens, past, batch, context)


def test_projections_read_the_numbers_of_the_tables_and_hold_their_edges_beyond_them(three_clocks: Engine) -> None:
    tables, random, read = three_clocks.tables, np.random.default_rng(2), compiled(cost)
    for setting in range(3):
        tokens, past, batch = random.uniform(1, 2000), random.uniform(0, 4000), float(random.integers(1, 64))
        found = read(flat_tables(tables), setting, tokens, past, batch, 900.0)
        assert found == tables.mixed(setting, tokens, past, batch, 900.0)
        edge = tables.prefill(setting, 4096.0, 4096.0)
        assert read(flat_tables(tables), setting, 9000.0, 5000.0, 0.0, 0.0) == edge


def test_cells_that_are_not_known_are_filled_for_projections_alone(three_clocks: Engine) -> None:
    holes = three_clocks.tables.decode_time_s.copy()
    holes[:, -1, -1] = np.nan
    tables = replace(three_clocks.tables, decode_time_s=holes)
    assert flat_tables(tables).decode_time_s[-1] == holes[-1, -1, 0]


def test_several_prompts_cost_what_their_pairs_of_tokens_cost(three_clocks: Engine) -> None:
    """Of a table whose attention is proportional to pairs; every form reads the same."""
    tokens, past = np.array([1.0, 500.0, 1000.0, 2000.0]), np.array([0.0, 512.0, 2048.0])
    pairs = tokens[:, None] * (past[None, :] + tokens[:, None] / 2)
    time_s = np.repeat((0.004 + 2e-5 * tokens[:, None] + 2e-9 * pairs)[None], 3, axis=0)
    tables = replace(
        three_clocks.tables, prefill_tokens=tokens, past_tokens=past, prefill_time_s=time_s, prefill_energy_j=300.0 * time_s
    )
    read, costs = compiled(cost), StepCosts(tables)
    for prompts in (1, 2, 4, 8):
        each = 1000.0 / prompts
        below = 0.5 * (each - 1000.0)
        found = tables.prefill(1, 1000.0, below)
        assert found.time_s == pytest.approx(0.024 + 2e-9 * prompts * each**2 / 2, rel=1e-9)
        assert found.power_w == pytest.approx(300.0, rel=1e-9)
        assert read(flat_tables(tables), 1, 1000.0, below, 0.0, 0.0) == pytest.approx(tuple(found), rel=1e-12)
        assert costs.prefill(1000.0, below)[0][1] == pytest.approx(found.time_s, rel=1e-12)
    steep = replace(tables, prefill_time_s=tables.prefill_time_s * np.array([1.0, 9.0, 9.0]))
    assert steep.prefill(1, 1000.0, -499.5).time_s > 0.0
    alone = replace(tables, past_tokens=past[:1], prefill_time_s=time_s[:, :, :1], prefill_energy_j=time_s[:, :, :1])
    assert alone.prefill(1, 1000.0, -400.0) == alone.prefill(1, 1000.0)

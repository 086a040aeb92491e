"""Ways to run an instruction, against enumeration of small ones."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from wastenot.core.setting import AUTO, Setting
from wastenot.pipelines.model.kernel_table import KernelTable
from wastenot.pipelines.model.ways import SETTINGS, Stretch, ways_of
from wastenot.planning.switching import SwitchTime
from wastenot.study.sweep import Kernel
from wastenot.workloads.order import StepLoop
from wastenot.workloads.stages import StageWork

SWITCHING = SwitchTime(core_s=2.0, memory_s=2.0, basis="given", source="given")


def _table(time_s, energy_j) -> KernelTable:
    time, energy = np.asarray(time_s, dtype=float), np.asarray(energy_j, dtype=float)
    kernels = tuple(Kernel(f"k{index}", 1) for index in range(time.shape[1]))
    settings = (AUTO, *(Setting(1000.0 + step) for step in range(len(time) - 1)))
    return KernelTable(kernels, settings, np.where(np.isfinite(time), 0, -1), time, energy)


@st.composite
def tables(draw: st.DrawFn) -> KernelTable:
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    numbers = st.lists(st.floats(1.0, 9.0), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    time, power = (np.reshape(draw(numbers), shape) for _ in range(2))
    return _table(time, time * (power + 1.0))


@given(tables(), st.sampled_from(SETTINGS), st.integers(1, 4), st.floats(0.0, 1.0))
@hypothesis_settings(max_examples=150, deadline=None)
def test_every_way_costs_what_its_stretches_cost(table, settings, layers, waiting_w):
    work = StageWork((StepLoop((0,), 1), StepLoop(tuple(range(len(table.kernels))), layers)), layers)
    ways = ways_of(table, work, settings, 0.25, waiting_w, SWITCHING)
    place = {setting: index for index, setting in enumerate(table.settings)}
    assert [ways[index] for index in range(len(table.settings))] == list(table.settings)
    for index, (time_s, label) in enumerate(zip(ways.time_s, ways, strict=True)):
        stretches = label if isinstance(label, tuple) else (Stretch(label, len(work.order), time_s - 0.25),)
        taken = [place[each.setting] for each in stretches for _ in range(each.kernels)]
        calls = list(zip(taken, work.order, strict=True))
        assert time_s == pytest.approx(0.25 + sum(table.time_s[call] for call in calls))
        assert ways.energy_j[index] == pytest.approx(0.25 * waiting_w + sum(table.energy_j[call] for call in calls))
        assert sum(each.time_s for each in stretches) == pytest.approx(time_s - 0.25)
        assert ways.runs(index).sum() == len(work.order)
        if settings == "schedule" and isinstance(label, tuple):
            assert all(each.time_s >= SWITCHING.core_s * (1 - 1e-9) for each in stretches[1:-1])


@given(tables(), st.integers(1, 3), st.floats(0.0, 1.0))
@hypothesis_settings(max_examples=100, deadline=None)
def test_kernels_at_their_own_settings_are_best_at_every_price_of_time(table, layers, waiting_w):
    used = range(len(table.kernels))
    ways = ways_of(table, StageWork((StepLoop(tuple(used), layers),), layers), "kernel", 0.0, waiting_w, SWITCHING)
    every = list(product(range(len(table.settings)), repeat=len(table.kernels)))
    time = layers * np.array([sum(table.time_s[s, k] for k, s in enumerate(each)) for each in every])
    energy = layers * np.array([sum(table.energy_j[s, k] for k, s in enumerate(each)) for each in every])
    for price in (0.0, 0.3, 1.0, 3.0, 10.0):
        best = (energy + (price - waiting_w) * time).min()
        assert (ways.energy_j + (price - waiting_w) * ways.time_s).min() == pytest.approx(best)


def test_layers_slow_down_one_by_one():
    table = _table([[1.0], [2.0]], [[9.0], [4.0]])
    ways = ways_of(table, StageWork((StepLoop((0,), 3),), 3), "layer", 0.0, 0.0, SWITCHING)
    assert sorted({*zip(ways.time_s.tolist(), ways.energy_j.tolist(), strict=True)}) == [(3, 27), (4, 22), (5, 17), (6, 12)]
    fast, slow = table.settings
    assert (Stretch(fast, 1, 1.0), Stretch(slow, 2, 4.0)) in list(ways)


def test_a_setting_that_a_kernel_was_not_measured_at_is_not_shared():
    table = _table([[1.0, 1.0], [2.0, np.inf]], [[9.0, 9.0], [4.0, np.inf]])
    work = StageWork((StepLoop((0, 1), 2),), 2)
    assert list(ways_of(table, work, "instruction", 0.0, 0.0, SWITCHING)) == [AUTO]
    own = ways_of(table, work, "kernel", 0.0, 0.0, SWITCHING)
    assert own.time_s.max() == 6.0


def test_stretches_last_as_long_as_switches_take():
    light, heavy = [1.0, 1.05], [1.0, 3.0]
    table = _table(np.stack([light, heavy], axis=1), [[9.0, 9.0], [4.0, 8.9]])
    work = StageWork((StepLoop((0,), 4), StepLoop((1,), 4)), 4)
    ways = ways_of(table, work, "schedule", 0.0, 0.0, SWITCHING)
    slow, auto = table.settings[1], table.settings[0]
    found = [[(each.setting, each.kernels) for each in label] for label in ways if isinstance(label, tuple)]
    assert [(slow, 4), (auto, 4)] in found

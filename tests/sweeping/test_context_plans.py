"""Plans by energies in context and alone, on what an iteration truly takes; no noise, so that only the state differs."""

import dataclasses

import numpy as np
import pytest

from testbed.true_iteration import NO_LIMIT_W, true_iteration
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.preset import find_preset
from wastenot.kernels.model.context import context_change
from wastenot.kernels.model.order import fit_carry_over, light_first
from wastenot.meters.tasks import find_tasks
from wastenot.planning.objective import Objective
from wastenot.planning.planner import plan
from wastenot.study.sweep import Sweep
from wastenot.sweeping.states import loop_of, tasks_before
from wastenot.workloads.build import build_workload

UNITS = find_tasks("gpt3-small", "sim:mi300x")
BEFORE = tasks_before(UNITS)
KERNELS = list(build_workload("gpt3-small").kernels)


def unlimited(name):
    preset = find_preset(name)
    return preset.model_copy(update={"parameters": dataclasses.replace(preset.parameters, power_limit_w=NO_LIMIT_W)})


def true_sweeps(preset, error=0.0, every=4):
    """What sweeps alone and in context would find without noise, at every so many of the core clocks."""
    device = simulated_device(preset, f"sim:{preset.name}")
    memory = preset.clocks.memory_mhz[-1]
    settings = (AUTO, *(Setting(clock, memory) for clock in preset.clocks.core_mhz[::-every]))
    rows = []
    for index, task in enumerate(UNITS.tasks):
        for setting in settings:
            alone, before, loop = (
                np.array([point.time_s, point.time_s * point.power_w])
                for point in (device.truth(each, setting) for each in (task, BEFORE[index], loop_of(BEFORE[index], task)))
            )
            if BEFORE[index].name == task.name:
                loop = 2 * alone
            core, clock = (np.nan if value is None else value for value in (setting.core_mhz, setting.memory_mhz))
            rows.append([index, core, clock, *alone, *(0.5 * (loop + alone - before))])
    index, core, clock, alone_s, alone_j, within_s, within_j = np.array(rows).T
    nothing = np.full(len(index), np.nan)
    return [
        Sweep(
            UNITS.kernels, index.astype(np.int64), core, clock, nothing, time_s, energy_j, nothing, energy_j * error,
            nothing, nothing, nothing, nothing, workload="gpt3-small", state=state, device=f"sim:{preset.name}",
            origin="simulated",
        )
        for state, time_s, energy_j in (("ssp", alone_s, alone_j), ("context", within_s, within_j))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def mi300x():
    return find_preset("mi300x"), *true_sweeps(find_preset("mi300x"), 1e-4)


def settings_of(made):
    return [row.setting for row in made.assignments]


@pytest.mark.parametrize("name", ["h200", pytest.param("v100", marks=pytest.mark.slow)])
def test_without_carry_over_and_limit_both_give_the_same_plan(name):
    alone, within = true_sweeps(unlimited(name), every=48)
    assert within.energy_j == pytest.approx(alone.energy_j, rel=1e-9)
    assert within.time_s == pytest.approx(alone.time_s, rel=1e-9)
    for bound in (0.0, 0.02, 0.1):
        first, second = (plan(sweep, Objective("waste", bound)).predicted for sweep in (alone, within))
        assert second.energy_change == pytest.approx(first.energy_change, abs=1e-7)


def test_sums_in_context_are_nearer_to_the_iteration(mi300x):
    preset, *sweeps = mi300x
    truth = np.array(true_iteration(preset, KERNELS, [AUTO] * len(KERNELS)))
    alone, within = (np.array([plan(s).baseline.time_s, plan(s).baseline.energy_j]) / truth - 1 for s in sweeps)
    assert (np.abs(within) < 0.5 * np.abs(alone)).all(), (alone, within)


@pytest.mark.parametrize("bound", [0.05, 0.1])
def test_plans_alone_break_the_true_bound_where_plans_in_context_nearly_keep_it(mi300x, bound):
    """Alone, heavy products sit at the power limit; in the iteration light kernels between them leave it room at auto."""
    preset, *sweeps = mi300x
    base_s, base_j = true_iteration(preset, KERNELS, [AUTO] * len(KERNELS))
    made = [plan(sweep, Objective("waste", bound)) for sweep in sweeps]
    true = [true_iteration(preset, KERNELS, settings_of(one)) for one in made]
    over = [time_s / base_s - 1 - bound for time_s, _ in true]
    assert over[0] > 0.004 and abs(over[1]) < 0.5 * over[0]
    off = [abs(energy_j / base_j - 1 - one.predicted.energy_change) for one, (_, energy_j) in zip(made, true, strict=True)]
    assert max(off) < 0.01


def test_the_change_is_told_kernel_by_kernel(mi300x):
    _, alone, within = mi300x
    first, second = (plan(sweep, Objective("waste", 0.05)) for sweep in (alone, within))
    found = context_change(alone, within, first, second)
    assert found.workload == "gpt3-small" and found.states == ("ssp", "context")
    assert found.second == second.predicted
    assert len(found.moved) == sum(a != b for a, b in zip(settings_of(first), settings_of(second), strict=True)) > 0
    light = next(kernel for kernel in found.kernels if kernel.kernel == "unpermute")
    assert light.beyond_error and 0.01 < light.change < 0.1
    same = context_change(alone, alone, first, first)
    assert not same.moved and not same.differing and same.energy_j == 0.0


def test_the_fit_finds_the_carry_over_of_the_preset(mi300x):
    preset, alone, within = mi300x
    found = fit_carry_over(alone, within)
    assert found.known
    assert found.share == pytest.approx(preset.dynamics.carry_over_share, rel=0.03)
    assert found.lasts_s == pytest.approx(preset.dynamics.carry_over_s, rel=0.15)


def test_none_is_found_where_there_is_none():
    assert not fit_carry_over(*true_sweeps(unlimited("h200"), 1e-4, every=16)).known


def test_light_first_saves_what_the_reordered_layer_truly_saves():
    """Without a power limit, since the order is judged by the power of kernels at auto."""
    preset = unlimited("mi300x")
    alone, within = true_sweeps(preset, 1e-4, every=16)
    loops = light_first(alone, fit_carry_over(alone, within))
    assert [loop.name for loop in loops] == ["layer forward", "layer backward"]
    by_name = {kernel.name: kernel for kernel in KERNELS}
    reordered: list = []
    names = iter([kernel.name for kernel in KERNELS])
    for name in names:
        loop = next((loop for loop in loops if loop.given[0] == name), None)
        reordered += [by_name[name]] if loop is None else [by_name[each] for each in loop.best]
        for _ in [] if loop is None else loop.given[1:]:
            next(names)
    assert sorted(kernel.name for kernel in reordered) == sorted(by_name)
    auto = [AUTO] * len(KERNELS)
    saved_j = true_iteration(preset, KERNELS, auto)[1] - true_iteration(preset, reordered, auto)[1]
    assert sum(loop.saved_j for loop in loops) == pytest.approx(saved_j, rel=0.06)

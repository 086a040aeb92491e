"""Search with few measurements: how much of the best saving it finds, and that the order of kernels changes nothing."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.known_truth import best_changes, saving_of_measured, true_sweep
from testbed.searches import search_table, subset, with_equal_times, with_kernels, with_names
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.devices.open import open_device
from wastenot.kernels.cli.sweep import outcome_lines
from wastenot.kernels.run.search import search_sweep
from wastenot.meters.tasks import find_tasks
from wastenot.study.store import open_study
from wastenot.study.sweep_file import read_sweep
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.point import PointOptions


@pytest.fixture(scope="module")
def table():
    """A small grid of a simulated card: the truth, and a little noise by which no two kernels are alike."""
    device, tasks = open_device("sim:rtx-a4000"), find_tasks("gpt3-small", "sim:rtx-a4000")
    settings = Grid(core_step_mhz=500).settings(device.clocks.supported_clocks())
    whole = with_kernels(true_sweep(device, tasks, settings), range(0, 46, 3))
    noise = np.random.default_rng(0).standard_normal((2, len(whole)))
    return replace(whole, time_s=whole.time_s * np.exp(0.004 * noise[0]), energy_j=whole.energy_j * np.exp(0.008 * noise[1]))


@pytest.fixture(scope="module")
def of_a_tenth(table, tmp_path_factory):
    return search_table(table, tmp_path_factory.mktemp("tenth") / "few.db", 0.1)


def test_the_order_of_kernels_changes_nothing(table, tmp_path):
    share = 0.3
    found = search_table(table, tmp_path / "whole.db", share)
    order = np.random.default_rng(0).permutation(len(table.kernels)).tolist()
    assert search_table(with_kernels(table, order), tmp_path / "shuffled.db", share).points == found.points


def test_nor_do_their_names(table, tmp_path, of_a_tenth):
    names = {kernel.name: f"{17 * index % len(table.kernels):02}" for index, kernel in enumerate(table.kernels)}
    renamed = search_table(with_names(table, list(names.values())), tmp_path / "renamed.db", 0.1)
    assert renamed.points == {(names[name], core, memory) for name, core, memory in of_a_tenth.points}


def test_nor_on_a_device_with_noise(tmp_path):
    settings = Grid(core_step_mhz=600).settings(open_device("sim:h200").clocks.supported_clocks())
    units = find_tasks("gpt3-small", "sim:h200")
    measured = []
    for seed in (None, 0):
        order = list(range(12) if seed is None else np.random.default_rng(seed).permutation(12))
        shuffled = replace(units, kernels=tuple(units.kernels[i] for i in order), tasks=tuple(units.tasks[i] for i in order))
        study = open_study(tmp_path / f"{seed}.db", create=True)
        search_sweep(open_device("sim:h200", seed=4), shuffled, study, settings, share=0.3, options=PointOptions(1.0, 1.0))
        sweep = study.read()
        rows = zip(sweep.kernel_index.tolist(), sweep.time_s.tolist(), strict=True)
        measured.append(
            {(sweep.kernels[kernel].name, sweep.setting(row), time_s) for row, (kernel, time_s) in enumerate(rows)}
        )
    assert measured[0] == measured[1]


@pytest.mark.parametrize("max_slowdown", [0.0, 0.02])
def test_a_part_of_the_grid_gives_nearly_the_best_plan(table, tmp_path, max_slowdown):
    found = search_table(table, tmp_path / "few.db", 0.4, max_slowdown)
    assert found.outcome.measured <= 0.4 * len(table)
    assert found.fraction >= 0.95


def test_few_points_are_used_and_the_outcome_says_what_is_missing(table, tmp_path, of_a_tenth):
    kernels, share, found = len(table.kernels), 0.1, of_a_tenth
    assert found.outcome.measured == int(share * len(table)) < 2 * kernels
    (note,) = found.outcome.notes
    beside = {name for name, core, _ in found.points if core is not None}
    assert f"few points: {int(share * len(table)) - kernels} besides the default clocks" in note
    assert f"{kernels - len(beside)} of {kernels} kernels" in note
    assert note in outcome_lines(found.outcome, table.key, "few.db")
    share_that_is_enough = float(note.split("a share of ")[1].split()[0])
    assert not search_table(table, tmp_path / "enough.db", share_that_is_enough).outcome.notes
    assert search_table(table, tmp_path / "less.db", share_that_is_enough - 0.002).outcome.notes


def test_few_points_go_to_the_kernels_that_matter(table, tmp_path):
    """A kernel that runs a thousand times as often as the others has the first points."""
    kernels = list(with_equal_times(table).kernels)
    kernels[7] = replace(kernels[7], count=1000 * kernels[7].count)
    found = search_table(replace(table, kernels=tuple(kernels)), tmp_path / "few.db", 0.08)
    beside = [name for name, core, _ in found.points if core is not None]
    assert beside.count(kernels[7].name) >= max(1, len(beside) // 3)


@pytest.mark.parametrize(("share", "says"), [(0.0, "above 0"), (1.5, "above 0"), (0.01, "give at least")])
def test_a_share_that_cannot_be_is_refused(tmp_path, share, says):
    device, units = open_device("sim:h200"), find_tasks("gpt3-small", "sim:h200")
    settings = Grid(core_step_mhz=300).settings(device.clocks.supported_clocks())
    with pytest.raises(BadInputError, match=says):
        search_sweep(device, units, open_study(tmp_path / "s.db", create=True), settings, share=share)
    assert not (tmp_path / "s.db").exists()


def test_the_least_share_is_that_of_the_default_clocks(table, tmp_path):
    with pytest.raises(BadInputError, match="give at least") as refusal:
        search_table(table, tmp_path / "none.db", 0.02)
    least = float(str(refusal.value).split("at least ")[1])
    found = search_table(table, tmp_path / "least.db", least)
    assert found.outcome.measured >= len(table.kernels)
    with pytest.raises(BadInputError):
        search_table(table, tmp_path / "less.db", least - 0.002)


def test_a_point_that_cannot_be_measured_is_not_tried_again(table, tmp_path, monkeypatch):
    from wastenot.devices.simulated import device

    launcher = next(value for value in vars(device).values() if isinstance(value, type) and hasattr(value, "can_run"))
    rows = ~((table.core_mhz == table.core_mhz[np.isfinite(table.core_mhz)].max()) & (table.kernel_index % 2 == 0))
    columns = {name: value[rows] for name, value in vars(table).items() if isinstance(value, np.ndarray)}
    monkeypatch.setattr(launcher, "can_run", lambda self, task, setting: True)
    found = search_table(replace(table, **columns), tmp_path / "s.db", 1.0)
    assert found.outcome.measured <= rows.sum()
    assert found.outcome.skipped.get("CannotRunError", 0) <= (~rows).sum()
    assert found.fraction > 0.99


def test_core_clocks_alone(tmp_path):
    """Where the memory clock cannot be set it is the device's own."""
    device, units = open_device("sim:v100", seed=2), find_tasks("gpt3-small", "sim:v100")
    cores = device.clocks.supported_clocks()[877.0][::12]
    settings = [Setting(core, None) for core in cores]
    whole = true_sweep(device, units, settings)
    study = open_study(tmp_path / "few.db", create=True)
    search_sweep(device, units, study, settings, share=0.5, max_slowdown=0.02, options=PointOptions(1.0, 1.0))
    assert saving_of_measured(whole, study.read(), 0.02) >= 0.95 * -best_changes(whole, (0.02,))[0]


def test_an_interrupted_search_resumes_and_keeps_to_its_share(tmp_path):
    units = find_tasks("gpt3-small", "sim:h200")
    settings = Grid(core_step_mhz=600).settings(open_device("sim:h200").clocks.supported_clocks())
    study = open_study(tmp_path / "s.db", create=True)

    def search(budget_s=None):
        device = open_device("sim:h200", seed=1)
        return search_sweep(
            device, units, study, settings, share=0.3, options=PointOptions(1.0, 1.0), budget_s=budget_s
        )  # fmt: skip

    first = search(budget_s=250.0)
    assert first.out_of_time and first.measured > 0 and not first.notes
    second = search()
    assert not second.out_of_time and second.found == 46
    assert first.measured + second.measured == int(0.3 * 46 * (len(settings) + 1))


@pytest.mark.slow
def test_a_recording_of_a_real_card(shared_data, tmp_path):
    whole = read_sweep(shared_data / "rtx3080ti-polybench" / "sweep-share.csv")
    for share, least in ((0.4, 0.98), (0.3, 0.95)):
        found = search_table(whole, tmp_path / f"{share}.db", share)
        assert found.outcome.measured <= share * len(whole)
        assert found.fraction >= least


@pytest.mark.slow
@pytest.mark.parametrize("max_slowdown", [0.0, 0.02])
def test_a_card_that_shaped_nothing(shared_data, tmp_path, max_slowdown):
    """The GTX 980's table was looked at only after the search was done."""
    whole = with_equal_times(read_sweep(shared_data / "gpu-dvfs" / "gtx980.csv"))
    for seed in range(2):
        assert search_table(subset(whole, 24, seed), tmp_path / f"{seed}.db", 0.3, max_slowdown).fraction >= 0.95


@pytest.mark.slow
def test_the_full_grid_of_a_simulated_h200(tmp_path):
    device, units = open_device("sim:h200", seed=1), find_tasks("gpt3-xl", "sim:h200")
    settings = Grid().settings(device.clocks.supported_clocks())
    assert len(settings) == 2 * 110
    whole = true_sweep(device, units, settings)
    study = open_study(tmp_path / "few.db", create=True)
    outcome = search_sweep(device, units, study, settings, share=0.1)
    assert outcome.measured <= 0.1 * len(whole)
    assert saving_of_measured(whole, study.read()) >= 0.99 * -best_changes(whole, (0.0,))[0]

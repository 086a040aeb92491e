"""Search with few measurements: how much of the best saving it finds."""

import dataclasses

import numpy as np
import pytest

from wastenot.devices.open import open_device
from wastenot.errors import BadInputError
from wastenot.planning.planner import plan
from wastenot.setting import AUTO
from wastenot.study.exchange import import_sweep
from wastenot.study.store import open_study
from wastenot.study.sweep import Sweep
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.point import PointOptions
from wastenot.tasks import find_tasks
from wastenot.tuning.search import search_sweep


@pytest.mark.slow
@pytest.mark.parametrize(("share", "least"), [(0.4, 0.98), (0.3, 0.95)])
def test_a_recording_of_a_real_card(shared_data, tmp_path, share, least):
    import_sweep(shared_data / "rtx3080ti-polybench" / "sweep-share.csv", tmp_path / "card.db")
    whole = open_study(tmp_path / "card.db").read()
    name = f"recorded:{tmp_path / 'card.db'}"
    device, units = open_device(name), find_tasks("sweep-share", name)
    study = open_study(tmp_path / "few.db", create=True)
    settings = Grid().settings(device.clocks.supported_clocks())
    outcome = search_sweep(device, units, study, settings, share=share, options=PointOptions(0.0, 5.0))
    assert outcome.measured <= share * len(whole)
    assert true_saving(whole, study.read()) >= least * -plan(whole).predicted.energy_change


@pytest.mark.slow
def test_the_full_grid_of_a_simulated_h200(tmp_path):
    device, units = open_device("sim:h200", seed=1), find_tasks("gpt3-xl", "sim:h200")
    settings = Grid().settings(device.clocks.supported_clocks())
    assert len(settings) == 2 * 110
    whole = truth(device, units, settings)
    study = open_study(tmp_path / "few.db", create=True)
    outcome = search_sweep(device, units, study, settings, share=0.1)
    assert outcome.measured <= 0.1 * len(whole)
    assert true_saving(whole, study.read()) >= 0.99 * -plan(whole).predicted.energy_change


def truth(device, units, settings) -> Sweep:
    points = [
        (kernel, setting, device.truth(task, setting))
        for kernel, task in enumerate(units.tasks)
        for setting in (AUTO, *settings)
    ]
    absent = np.full(len(points), np.nan)
    clocks = [[np.nan if clock is None else clock for clock in (s.core_mhz, s.memory_mhz)] for _, s, _ in points]
    core, memory = np.array(clocks).T
    time = np.array([point.time_s for *_, point in points])
    energy = time * np.array([point.power_w for *_, point in points])
    index = np.array([kernel for kernel, *_ in points])
    return Sweep(units.kernels, index, core, memory, absent, time, energy, *[absent] * 6, workload="truth", device="truth")


def true_saving(whole: Sweep, measured: Sweep) -> float:
    """What the points that were measured make possible, by the numbers of the whole."""
    there = {(measured.kernels[i].name, measured.setting(r)) for r, i in enumerate(measured.kernel_index)}
    rows = np.array([(whole.kernels[i].name, whole.setting(r)) in there for r, i in enumerate(whole.kernel_index)])
    columns = {
        field.name: getattr(whole, field.name)[rows]
        for field in dataclasses.fields(whole)
        if isinstance(getattr(whole, field.name), np.ndarray)
    }
    return -plan(dataclasses.replace(whole, **columns)).predicted.energy_change


@pytest.mark.parametrize(("share", "says"), [(0.0, "above 0"), (1.5, "above 0"), (0.01, "give at least")])
def test_a_share_that_cannot_be_is_refused(tmp_path, share, says):
    device, units = open_device("sim:h200"), find_tasks("gpt3-small", "sim:h200")
    settings = Grid(core_step_mhz=300).settings(device.clocks.supported_clocks())
    with pytest.raises(BadInputError, match=says):
        search_sweep(device, units, open_study(tmp_path / "s.db", create=True), settings, share=share)
    assert not (tmp_path / "s.db").exists()

"""Search with few measurements: how much of the best saving it finds."""

import pytest

from tests.support.known_truth import saving_of_measured, true_sweep
from wastenot.devices.open import open_device
from wastenot.errors import BadInputError
from wastenot.planning.planner import plan
from wastenot.study.store import open_study
from wastenot.study.sweep_file import import_sweep
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
    assert saving_of_measured(whole, study.read()) >= least * -plan(whole).predicted.energy_change


@pytest.mark.slow
def test_the_full_grid_of_a_simulated_h200(tmp_path):
    device, units = open_device("sim:h200", seed=1), find_tasks("gpt3-xl", "sim:h200")
    settings = Grid().settings(device.clocks.supported_clocks())
    assert len(settings) == 2 * 110
    whole = true_sweep(device, units, settings)
    study = open_study(tmp_path / "few.db", create=True)
    outcome = search_sweep(device, units, study, settings, share=0.1)
    assert outcome.measured <= 0.1 * len(whole)
    assert saving_of_measured(whole, study.read()) >= 0.99 * -plan(whole).predicted.energy_change


@pytest.mark.parametrize(("share", "says"), [(0.0, "above 0"), (1.5, "above 0"), (0.01, "give at least")])
def test_a_share_that_cannot_be_is_refused(tmp_path, share, says):
    device, units = open_device("sim:h200"), find_tasks("gpt3-small", "sim:h200")
    settings = Grid(core_step_mhz=300).settings(device.clocks.supported_clocks())
    with pytest.raises(BadInputError, match=says):
        search_sweep(device, units, open_study(tmp_path / "s.db", create=True), settings, share=share)
    assert not (tmp_path / "s.db").exists()

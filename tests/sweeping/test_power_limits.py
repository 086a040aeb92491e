"""Power limits as settings: grids of them, what the simulated regulator does under them, and their way into a plan."""

import numpy as np
import pytest

import wastenot as wn
from wastenot.cli.main import run as run_command
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import find_preset
from wastenot.sweeping.grid import Grid

PRESETS = ("rtx-3080-ti", "rtx-a4000", "v100", "h200", "mi300x")


def test_limits_alone_leave_the_clocks_to_the_driver():
    states = open_device("sim:h200").clocks.supported_clocks()
    settings = Grid(power_limit_w=(300.0, 500.0, 300.0)).settings(states, (200.0, 700.0))
    assert settings == (Setting(power_limit_w=500.0), Setting(power_limit_w=300.0))


def test_limits_with_clocks_are_every_combination():
    states = open_device("sim:h200").clocks.supported_clocks()
    grid = Grid(core_mhz=(1200.0, 1500.0), memory_mhz=(3201.0,), power_limit_w=(300.0, 500.0))
    settings = grid.settings(states, (200.0, 700.0))
    assert set(settings) == {Setting(core, 3201.0, limit) for core in (1200.0, 1500.0) for limit in (300.0, 500.0)}
    assert [setting.power_limit_w for setting in settings] == [500.0, 500.0, 300.0, 300.0]


@pytest.mark.parametrize(("limits", "says"), [((200.0, 700.0), "takes 200 to 700 W"), (None, "reports no power limits")])
def test_limits_that_a_device_does_not_take_are_refused(limits, says):
    with pytest.raises(BadInputError, match=says):
        Grid(power_limit_w=(50.0,)).settings({}, limits)


@pytest.mark.parametrize("name", PRESETS)
def test_a_simulated_gpu_runs_at_the_highest_clock_within_its_limit(name):
    """The highest clock at which the power model demands no more, between the same two clocks of the table."""
    preset = find_preset(name)
    physics, hottest = ModelPhysics(preset), preset.thermal.reference_c
    clocks, memory = physics.core_mhz, preset.clocks.memory_mhz[-1]
    fine_mhz = np.linspace(clocks[0], clocks[-1], 2000)
    low, high = preset.power_limits_w
    held = 0
    for kernel in wn.workload("gpt3-xl").kernels[::4]:
        before = np.inf
        for limit in np.linspace(low, high, 5).tolist():
            point = physics.operating_point(Task.of_kernel(kernel), Setting(power_limit_w=limit), hottest)
            assert point.power_w <= limit * (1.0 + 1e-9) or point.core_mhz == clocks[0]
            assert point.time_s <= before * (1.0 + 1e-9)
            before = point.time_s
            if point.core_mhz > clocks[0]:
                demanded_w = model.demanded_power_w(preset.parameters, physics._parameters(kernel), fine_mhz, memory)
                assert abs(point.core_mhz - fine_mhz[demanded_w <= limit][-1]) < np.diff(clocks).max()
                held += point.throttled
    assert held > 10


@pytest.mark.parametrize("name", PRESETS)
def test_limits_go_from_a_sweep_into_a_plan(name, tmp_path):
    low, high = find_preset(name).power_limits_w
    limits = [round(high - share * (high - low)) for share in (0.04, 0.08, 0.15, 0.3)]
    study = tmp_path / "s.db"
    device = wn.open_device(f"sim:{name}", seed=3)
    outcome = wn.sweep("gpt3-small", device, study, clocks=wn.Grid(power_limit_w=limits), granularity="iteration")
    assert outcome.measured and not outcome.skipped
    sweep = wn.open_study(study).read()
    auto_w = float((sweep.energy_j / sweep.time_s)[np.isnan(sweep.power_limit_w)].mean())
    for time_s, energy_j, limit in zip(sweep.time_s, sweep.energy_j, sweep.power_limit_w, strict=True):
        if not np.isnan(limit) and auto_w > limit:
            assert energy_j / time_s == pytest.approx(limit, rel=0.03)
    made = wn.plan(study, max_slowdown=0.3, granularity="iteration", as_measured=True)
    energies = {lim: e for e, lim in zip(sweep.energy_j, sweep.power_limit_w, strict=True) if not np.isnan(lim)}
    if auto_w > max(limits):  # else no limit is felt
        assert made.assignments[0].setting == Setting(power_limit_w=made.assignments[0].power_limit_w)
        assert made.assignments[0].power_limit_w in energies and made.predicted.energy_change < 0.0
    wn.validate(made, study, repeats=2)


def test_limits_survive_csv_a_recording_and_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--granularity", "iteration"]
    sweep = [
        "kernel",
        "sweep",
        "gpt3-xl",
        "--device",
        "sim:h200",
        "--study",
        "s.db",
        "--power-limit",
        "550W,600,650",
        *options,
    ]
    assert run_command(sweep) == 0
    assert "1 iteration × 4 settings" in capsys.readouterr().err
    assert run_command(["study", "export", "s.csv", "--study", "s.db"]) == 0
    assert run_command(["study", "import", "s.csv", "--study", "again.db", "--workload", "x"]) == 0
    once, again = (wn.open_study(name).read() for name in ("s.db", "again.db"))
    assert np.array_equal(once.power_limit_w, again.power_limit_w, equal_nan=True)
    # A recording takes the limits it has, by itself or named.
    for flags, settings in (([], 3), (["--power-limit", "600"], 1)):
        into = f"r{settings}.db"
        assert run_command(["kernel", "sweep", "s.db", "--device", "recorded:s.db", "--study", into, *options, *flags]) == 0
        replayed = wn.open_study(into).read()
        assert len({limit for limit in replayed.power_limit_w if not np.isnan(limit)}) == settings
        assert replayed.power_limit_w[0] != replayed.power_limit_w[0] and replayed.setting(0) == AUTO
    capsys.readouterr()
    assert run_command(["kernel", "plan", "--study", "s.db", "--max-slowdown", "10%", "-v", *options]) == 0
    said = capsys.readouterr().out
    assert "nvidia-smi -i 0 -pl" in said and "Limit, W" in said
    report = ["report", "s.db", "--max-slowdown", "10%", *options, "--page", "r.html"]
    assert run_command(report) == 0
    page = (tmp_path / "r.html").read_text()
    assert "auto, power limits" in page and "and power limit" in page


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--power-limit", "600", "--search", "model"], "no effect with --search model"),
        (["--power-limit", "600", "--clocks", "auto"], "no effect without --clocks grid"),
        (["--power-limit", "600,x"], "'x' is not a power in watts"),
        (["--power-limit", "9000"], "--power-limit 9000: the device takes 200 to 700 W"),
    ],
)
def test_limits_that_make_no_sense_are_refused_in_a_line(flags, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "s.db", *flags]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "s.db").exists()


def test_without_the_right_to_set_limits_a_dry_run_still_says_what_it_would_take(tmp_path, monkeypatch):
    device = open_device("sim:h200")
    monkeypatch.setattr(device.clocks, "power_limits_w", lambda: None)
    monkeypatch.setattr(device.clocks, "refusal", lambda: "WASTENOT_READ_ONLY=1 is set")
    swept = {"clocks": wn.Grid(power_limit_w=[400.0]), "granularity": "iteration"}
    estimate = wn.sweep("gpt3-small", device, tmp_path / "s.db", dry_run=True, **swept).estimate
    assert estimate.settings == 1 and "would be refused" in estimate.notes[0]
    with pytest.raises(ClocksRefusedError, match="power limits cannot be set: WASTENOT_READ_ONLY"):
        wn.sweep("gpt3-small", device, tmp_path / "s.db", **swept)

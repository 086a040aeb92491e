"""The scripts of "Coming from another tool" read what those tools write."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from docs.make.blocks import File, steps_of
from docs.make.page import DOCS
from testbed.stand_in.fixtures import start_stand_in

LOG = """
import time
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], log_file="log.csv")
for _ in range(2):
    monitor.begin_window("step", sync_execution=False)
    time.sleep(0.6)
    monitor.end_window("step", sync_execution=False)
"""


@pytest.fixture
def scripts(tmp_path):
    """A folder with the page's scripts and tables."""
    for step in steps_of(DOCS / "coming-from.md"):
        if isinstance(step, File):
            (tmp_path / step.name).write_text(step.text)
    return tmp_path


def converted(folder, *arguments):
    """Rows of the sweep that a script prints."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(done.stdout.splitlines()))


@pytest.mark.slow  # it imports Zeus
def test_windows_that_zeus_logged(scripts):
    if find_spec("zeus") is None:
        pytest.skip("no zeus")
    with start_stand_in("testbed/toy.toml", wall=True) as stand_in:
        hidden = dict.fromkeys(("ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT", "CUDA_VISIBLE_DEVICES"))
        environment = {name: value for name, value in stand_in.environment().items() if name not in hidden}
        done = subprocess.run(
            [sys.executable, "-c", LOG], cwd=scripts, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    first, second = converted(scripts, "zeus_to_sweep.py", "auto=log.csv")
    assert first["kernel"] == second["kernel"] == "step" and first["core_mhz"] == ""
    assert 0.6 <= float(first["time_s"]) < 2.0 and float(first["energy_j"]) > 0.0
    assert {row["core_mhz"] for row in converted(scripts, "zeus_to_sweep.py", "1410=log.csv")} == {"1410"}


def test_a_profile_that_zeus_saved(scripts):
    power_limit = pytest.importorskip("zeus.optimizer.power_limit")
    measured = [
        power_limit.PowerLimitMeasurement(power_limit=watts, energy=energy_j, time=1.5)
        for watts, energy_j in ((300, 200.0), (250, 190.0))
    ]
    (scripts / "profile.json").write_text(power_limit._PowerLimitMeasurementList(measurements=measured).json(indent=4))
    rows = converted(scripts, "zeus_profile_to_sweep.py", "profile.json")
    assert [(row["power_limit_w"], float(row["energy_j"])) for row in rows] == [("", 200.0), ("250", 190.0)]


def test_a_cache_file_keeps_the_fastest_code_and_leaves_out_what_failed(scripts):
    tuned = json.loads((scripts / "clocks.json").read_text())
    tuned["tune_params"]["block_size_x"] = [32, 64]
    tuned["cache"]["32,1110"] = {"block_size_x": 32, "nvml_gr_clock": 1110, "time": 1.0, "nvml_energy": 0.1}
    tuned["cache"]["64,900"] = {"block_size_x": 64, "nvml_gr_clock": 900, "time": "RuntimeFailedConfig"}
    (scripts / "clocks.json").write_text(json.dumps(tuned))
    rows = converted(scripts, "kernel_tuner_to_sweep.py", "default.json", "clocks.json", "--counts", "convolution=3")
    assert [row["core_mhz"] for row in rows] == ["", "1560", "1335", "1110"]
    assert {row["count"] for row in rows} == {"3"}
    assert float(rows[0]["time_s"]) == pytest.approx(0.0112) and float(rows[0]["energy_j"]) == 1.54

"""How often intervals of expected changes contain the truth, on noisy sweeps of simulated GPUs that are known exactly.

Plans from every seed are compared with the simulator's truth at the temperature of the sweep's baselines, at which
expectations are stated. The treatment of temperature (:mod:`wastenot.planning.noise.temperature`) was developed on the first
three GPUs with other seeds; the last GPU was used only to conclude that the temperature a plan runs at is unknown too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import NormalDist

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.devices.open import open_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.planning.noise.temperature import baseline_temperature_c
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.sweep import measure_sweep
from wastenot.tasks import find_tasks
from wastenot.workloads.shape import Shape

CORE_STEP_MHZ = {"rtx-a4000": 210.0, "h200": 210.0, "v100": 45.0, "rtx-3080-ti": 210.0}
SLOWDOWNS = (0.0, 0.02, 0.1)
SEEDS = range(300, 310)  # not those that the treatment was developed on
_LEVEL = NormalDist().inv_cdf(0.975)


def deviations(preset: str, seed: int, folder: Path) -> np.ndarray:
    """True minus expected change, over the stated standard error; shape (slowdowns, time and energy)."""
    units = find_tasks("gpt3-xl", f"sim:{preset}", Shape())
    device = open_device(f"sim:{preset}", seed=seed)
    assert isinstance(device, SimulatedDevice)
    study = open_study(folder / f"{preset}-{seed}.db", create=True)
    measure_sweep(device, units, study, Grid(CORE_STEP_MHZ[preset]).settings(device.clocks.supported_clocks()))
    sweep = study.read(units.name)
    temperature_c, planner = baseline_temperature_c(sweep), Planner(sweep)
    count = np.array([kernel.count for kernel in units.kernels])

    def total(rows: np.ndarray) -> np.ndarray:
        """True time and energy of an iteration."""
        settings = map(planner.costs.setting, rows.tolist())
        points = [device.truth(*pair, temperature_c) for pair in zip(units.tasks, settings, strict=True)]
        return count @ np.array([(point.time_s, point.time_s * point.power_w) for point in points])

    scores = []
    for slowdown in SLOWDOWNS:
        objective = Objective("waste", slowdown)
        expected = planner.plan(objective).expected
        assert expected is not None
        true = total(planner.rows(planner.choose(objective).options)) / total(planner.baseline_rows) - 1.0
        stated = np.array([expected.time_change, expected.energy_change])
        intervals = np.array([expected.time_change_interval, expected.energy_change_interval])
        scores.append((true - stated) / (np.ptp(intervals, axis=1) / (2.0 * _LEVEL)))
    return np.array(scores)


def main(verdict: Verdict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for preset in CORE_STEP_MHZ:
            scores = np.array([deviations(preset, seed, Path(folder)) for seed in SEEDS])
            for index, what in enumerate(("time", "energy")):
                each = scores[:, :, index]
                root = np.sqrt(np.mean(each**2))
                print(f"  {preset}, {what}: errors are {root:.2f} times those stated, {each.mean():+.2f} on average")
                # Plans from one sweep share their errors: as many draws as seeds. Three standard deviations of a fraction.
                goal = 0.95 - 3.0 * np.sqrt(0.05 * 0.95 / len(SEEDS))
                held = float(np.mean(np.abs(each) <= _LEVEL))
                verdict.at_least(f"{preset}: 95 % intervals that contain the true {what}", held, goal)

"""How the power sensor of a real H200 makes its readings, by short runs in data/h200/fingrav, for docs/fingrav.md.

PYTHONPATH=src:. python tests/sensors/h200_sensor.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.raw_runs import read_runs
from wastenot.devices.clock_fit import fit_clocks
from wastenot.sensors.channel_fit import Edges
from wastenot.sensors.model import Load, Seen
from wastenot.sensors.response_fit import SensorFit
from wastenot.sensors.update_period import Updates, find_updates

RUNS = Path(__file__).parents[2] / "data" / "h200" / "fingrav" / "GPU-5b450c73"
KERNELS = ("gemm-8192", "gemm-4096", "gemm-2048", "gemv-8192", "gemv-4096", "gemv-2048")
_NOISE_W, _LONGEST_S = 2.0, 0.5


def sensor_of(kernel: str) -> tuple[Updates, SensorFit]:
    """Period, and response with delay and drift, as `wastenot sensor` finds them, from bursts of 26 ms from rest."""
    about, runs = read_runs(RUNS / f"{kernel}-1.npz")
    in_unit = about["executions_in_unit"]
    assert isinstance(in_unit, list)
    clocks = fit_clocks(trip for run in runs for trip in run.round_trips)
    begin_s = clocks.host(np.array([run.begin_s[0] for run in runs]))
    end_s = clocks.host(np.array([run.end_s[-1] for run in runs]))
    unit_s = np.array([np.median(run.end_s - run.begin_s) for run in runs])
    load = Load(begin_s, end_s, float(np.median(unit_s)) / in_unit[0])
    logs = [run.readings["total"] for run in runs]
    moment_s = np.concatenate([log.moment_s for log in logs])
    number = np.repeat(np.arange(len(logs)), [len(log.moment_s) for log in logs])
    order = np.argsort(moment_s, kind="stable")
    order = order[np.append(True, np.diff(moment_s[order]) > 0.0)]
    updates = find_updates(moment_s[order], np.concatenate([log.power_w for log in logs])[order], polled=True)
    assert updates is not None
    edges = Edges(Seen.of(updates.moment_s, updates.power_w, load), number[order][updates.place], load, unit_s)
    rng = np.random.default_rng(0)
    return updates, edges.fitted(edges.rough(updates.period_s, _LONGEST_S, rng), _NOISE_W, rng)


def main() -> None:
    """Print the table."""
    print("| kernel | new each | reading | delay, in the middle of the 15 s | drift | left over | by the other response |")
    print("|---|---|---|---|---|---|---|")
    for kernel in KERNELS:
        updates, fit = sensor_of(kernel)
        sensing, kind = fit.sensing, "lag" if fit.sensing.lagging else "mean"
        print(
            f"| {kernel} | {1e3 * updates.period_s:.3f} ms | {kind} {1e3 * sensing.span_s:.1f} "
            f"± {1e3 * fit.span_se_s:.1f} ms | {1e3 * sensing.delay_s:.1f} ms | {1e3 * sensing.drift:.2f} ± "
            f"{1e3 * fit.drift_se:.2f} ms each second | {fit.usual_w:.1f} W | {fit.other_usual_w:.1f} W |"
        )


if __name__ == "__main__":
    main()

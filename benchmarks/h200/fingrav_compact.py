"""Raw runs of profiles made small enough to keep: executions in a row as units of about a millisecond, readings as they are.

PYTHONPATH=src:. python benchmarks/h200/fingrav_compact.py RAW data/h200/fingrav --unit 1e-3
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.h200.fingrav_raw import SCHEMA, read_runs
from wastenot.devices.fine_grain import Run


def group_sizes(run: Run, unit_s: float) -> list[int]:
    """Executions of each kernel in a unit."""
    found = []
    for which in np.unique(run.kernel):
        begin_s = run.begin_s[run.kernel == which]
        spacing = float(np.median(np.diff(begin_s))) if len(begin_s) > 1 else unit_s
        found.append(max(round(unit_s / spacing), 1))
    return found


def units(run: Run, groups: list[int]) -> list[np.ndarray]:
    """Executions of one run in groups: kernel, begin and end of each."""
    kernel, begin_s, end_s = run.kernel, run.begin_s, run.end_s
    parts = []
    for which, group in zip(np.unique(kernel), groups, strict=True):
        ours = np.flatnonzero(kernel == which)
        whole = ours[: len(ours) // group * group]
        parts.append(
            np.stack([np.full(len(whole) // group, which), begin_s[whole[::group]], end_s[whole[group - 1 :: group]]])
        )
    table = np.concatenate(parts, axis=1)
    table = table[:, np.argsort(table[1], kind="stable")]
    return [table[0].astype(np.int8), table[1], table[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--unit", type=float, default=1e-3, help="seconds that a unit takes, about")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(chosen.raw.glob("*.npz")):
        about, runs = read_runs(path)
        if about["schema"] != SCHEMA:
            continue
        group = group_sizes(runs[0], chosen.unit)
        first = [units(run, group) for run in runs]
        arrays = {
            "kernel": np.array([one[0] for one in first]),
            "begin_s": np.array([one[1] for one in first]),
            "end_s": np.array([one[2] for one in first]),
            "round_trips_s": np.array([[(t.before_s, t.gpu_s, t.after_s) for t in run.round_trips] for run in runs]),
        }
        for name in runs[0].readings:
            logs = [run.readings[name] for run in runs]
            arrays[f"{name}_readings"] = np.array([len(log.moment_s) for log in logs])
            arrays[f"{name}_moment_s"] = np.concatenate([log.moment_s for log in logs])
            arrays[f"{name}_power_w"] = np.concatenate([log.power_w for log in logs])
        kept = dict(about) | {"executions_in_unit": group}
        np.savez_compressed(chosen.out / path.name.replace("-runs", ""), about=np.array(json.dumps(kept)), **arrays)


if __name__ == "__main__":
    main()

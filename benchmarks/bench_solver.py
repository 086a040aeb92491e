"""Our solver compared with general ones at the size of the paper; ratios are taken instance by instance.

CP-SAT runs in a separate process, because OR-Tools and other HiGHS wheels cannot share one. Only its solving is timed, not
the building of its model.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict
from testbed.highs import solve_with_milp
from testbed.knapsack_instances import budget_s, physical
from wastenot.frontiers.knapsack import Knapsack
from wastenot.frontiers.pareto import Groups
from wastenot.study.sweep_file import read_sweep

DATA = Path(__file__).parents[1].parent / "shared" / "data" / "rtx3080ti-polybench"
BOUNDS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1)
RANDOM_INSTANCES = 24


def instances() -> list[tuple[str, Groups, float]]:
    """Kernel-like instances of the paper's size, and the measured sweeps if they are available."""
    rng = np.random.default_rng(46)
    made = []
    for _ in range(RANDOM_INSTANCES):
        groups = physical(rng, 46, 60)
        made.append(("46 kernels x 60 settings", groups, budget_s(groups, float(rng.choice([0.002, 0.01, 0.03, 0.1])))))
    for name in ("sweep", "sweep-share"):
        if (DATA / f"{name}.csv").exists():
            groups, auto_s = real(DATA / f"{name}.csv")
            made += [(f"real {name}", groups, float(auto_s * (1 + Fraction(bound)))) for bound in BOUNDS]
    return made


def real(path: Path) -> tuple[Groups, Fraction]:
    """A measured sweep as an instance, and its exact time at the default clocks."""
    sweep = read_sweep(path)
    count = np.array([kernel.count for kernel in sweep.kernels], dtype=float)[sweep.kernel_index]
    auto = [row for row in range(len(sweep)) if sweep.setting(row).is_auto]
    start = np.searchsorted(sweep.kernel_index, np.arange(len(sweep.kernels) + 1))
    groups = Groups(sweep.time_s * count, sweep.energy_j * count, start)
    return groups, sum((Fraction(time) for time in groups.time_s[auto].tolist()), Fraction(0))


def timed(work: Callable[[], object], repeats: int) -> tuple[float, object]:
    """The median time of a call, and its result."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return float(np.median(times)), result


def cp_sat_times(cases: list[tuple[str, Groups, float]]) -> list[float]:
    """Seconds that CP-SAT takes for each case."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.npz"
        arrays = {}
        for index, (_, groups, budget) in enumerate(cases):
            arrays |= {f"t{index}": groups.time_s, f"e{index}": groups.energy_j, f"s{index}": groups.start,
                       f"b{index}": np.array(budget)}  # fmt: skip
        np.savez(file, **arrays)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.cp_sat_process", str(file), str(len(cases))],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    found: list[float] = json.loads(done.stdout)
    return found


def main(verdict: Verdict) -> None:
    cases = instances()
    ours, hulls, milps, agree = [], [], [], 0
    for _, groups, budget in cases:
        seconds, found = timed(lambda g=groups, b=budget: Knapsack(g).least_energy(b), 9)
        hull, _ = timed(lambda g=groups: Knapsack(g).hull(), 9)
        milp, reference = timed(lambda g=groups, b=budget: solve_with_milp(g, b), 1)
        ours.append(seconds)
        hulls.append(hull)
        milps.append(milp)
        assert found.gap == 0.0
        agree += abs(found.energy_j / groups.energy_j[reference].sum() - 1) <= 1e-9
    cp_sats = cp_sat_times(cases)
    print(f"  {agree} of {len(cases)} plans agree with milp to 1e-9 in energy")
    for kind in dict.fromkeys(kind for kind, *_ in cases):
        mine = np.array([index for index, case in enumerate(cases) if case[0] == kind])
        solve, hull, milp, cp_sat = (np.array(column)[mine] for column in (ours, hulls, milps, cp_sats))
        print(
            f"  {kind:>25}: ours {np.median(solve) * 1e3:.2f} ms, hull {np.median(hull) * 1e3:.2f} ms, "
            f"milp {np.median(milp) * 1e3:.1f} ms, CP-SAT {np.median(cp_sat) * 1e3:.1f} ms"
        )
        verdict.at_least(f"{kind}: times faster than milp", float(np.median(milp / solve)), 20)
        verdict.at_least(f"{kind}: times faster than CP-SAT", float(np.median(cp_sat / solve)), 20)
        verdict.at_most(f"{kind}: all hull vertices, fraction of one milp solve", float(np.median(hull / milp)), 1)

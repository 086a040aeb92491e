"""Schedules of 2,000 invocations × 40 settings: seconds, and the proven gap, over random work.

    python -m benchmarks.bench_schedule [SEEDS]    # print each instance that misses, too

Instances are drawn with seeds from 1,000 on, which shaped nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.verdict import Verdict
from testbed.schedule_instances import JITTER, instance
from wastenot.frontiers.schedule import Scheduler
from wastenot.frontiers.switched_work import SwitchedWork

CALLS, SETTINGS = 2_000, 40
SWITCH_S = (0.0, 0.005, 0.015, 0.05, 0.2)
FIRST_SEED, SEEDS = 1_000, 12
GAP, SECONDS = 0.005, 1.0


def drawn(switch_s: float, seed: int) -> tuple[SwitchedWork, float]:
    """An instance, and the slowdown that it is asked for."""
    rng = np.random.default_rng((seed, round(1e4 * switch_s)))
    work = instance(
        rng, CALLS, SETTINGS, switch_s,
        ordered=bool(seed % 3), jitter=JITTER * (seed % 2), stall_s=5e-4 * (seed % 5 == 4) * (switch_s > 0.0),
    )  # fmt: skip
    return work, float(rng.choice([0.0, 0.005, 0.02, 0.05, 0.1, 0.3]))


def solved(switch_s: float, seeds: range) -> Iterator[tuple[float, float]]:
    """CPU seconds and gap of each instance."""
    for seed in seeds:
        work, slowdown = drawn(switch_s, seed)
        began = time.process_time()
        found = Scheduler(work).least_energy((1.0 + slowdown) * float(work.ends_s[-1, 0]), 0.002)
        seconds = time.process_time() - began
        if found.gap > GAP or seconds > SECONDS:
            stays = f"{len(work.stays(found.setting))} stays in {work.ends_s[-1, 0]:.2f} s"
            print(f"    seed {seed}, {1e3 * switch_s:g} ms: gap {found.gap:.3%}, {seconds:.2f} s; {stays}")
        yield seconds, found.gap


def main(verdict: Verdict, count: int = SEEDS) -> None:
    for switch_s in SWITCH_S:
        seconds, gaps = np.array(list(solved(switch_s, range(FIRST_SEED, FIRST_SEED + count)))).T
        label = f"{CALLS:,} invocations x {SETTINGS} settings, switches of {1e3 * switch_s:g} ms, {count} instances"
        print(f"  {label}: gap {gaps.mean():.3%} in the mean, {np.mean(gaps <= GAP):.0%} within {GAP:.1%}")
        verdict.at_most(f"{label}: median gap", float(np.median(gaps)), GAP)
        verdict.at_most(f"{label}: largest gap", float(gaps.max()), GAP)
        verdict.at_most(f"{label}: median CPU seconds", float(np.median(seconds)), SECONDS)
        verdict.at_most(f"{label}: most CPU seconds", float(seconds.max()), SECONDS)


if __name__ == "__main__":
    main(Verdict(), int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS)

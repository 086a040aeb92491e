"""How fast jobs that come back are simulated: 50 made-up jobs, a thousand recurrences each, decided by wastenot.

Processes share the work, one for each core, as ``wastenot recur`` does by default.
"""

from __future__ import annotations

import os
import time

from benchmarks.verdict import Verdict
from wastenot.jobs.judge.compare import compare
from wastenot.jobs.judge.made import made_jobs

JOBS, RECURRENCES, GOAL_S = 50, 1000, 60.0


def main(verdict: Verdict) -> None:
    jobs = made_jobs(range(2000, 2005))[:JOBS]
    began, cpu_s = time.perf_counter(), _cpu_s()
    found = list(compare(jobs, ["wastenot"], [0], recurrences=RECURRENCES, processes=os.cpu_count() or 1))
    took = time.perf_counter() - began
    runs = sum(sum(each.results[0].runs) for each in found)
    cpu_s = _cpu_s() - cpu_s
    print(f"  {len(found)} jobs, {runs} runs: {1e3 * cpu_s / runs:.2f} ms of CPU a run, {cpu_s:.0f} s altogether")
    print(f"  {os.cpu_count()} cores, of which others left {cpu_s / took:.1f}")
    verdict.at_most(f"seconds for {JOBS} jobs x {RECURRENCES} recurrences", took, GOAL_S)


def _cpu_s() -> float:
    """CPU time of this process and of those that it has waited for."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


if __name__ == "__main__":
    main(Verdict())

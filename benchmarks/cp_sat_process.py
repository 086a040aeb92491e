"""CP-SAT over saved instances, in a process of its own: python -m benchmarks.cp_sat_process FILE CASES."""

from __future__ import annotations

import json
import sys

import numpy as np

from benchmarks.peers import cp_sat_model
from wastenot.frontiers.pareto import Groups


def main(file: str, cases: int) -> None:
    saved = np.load(file)
    seconds = []
    for index in range(cases):
        groups = Groups(saved[f"t{index}"], saved[f"e{index}"], saved[f"s{index}"])
        solve = cp_sat_model(groups, float(saved[f"b{index}"]))
        wall_s, optimal = solve()
        assert optimal
        seconds.append(wall_s)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

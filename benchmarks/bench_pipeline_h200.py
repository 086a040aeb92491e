"""Iteration times of a real pipeline on two H200s, from its own instructions through the graph of the schedule.

Measured by ``benchmarks/h200/pipeline.py``: three pairs of stages, 4 to 16 micro-batches. One time for communication, which
every instruction that receives waits for on its own rank, is fitted on four of the nine configurations and judged on the
other five, over all such splits.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import combinations
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks.kept import DATA
from benchmarks.verdict import Verdict, run_alone
from wastenot.core.arrays import FloatArray
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph import Graph
from wastenot.pipelines.model.schedules import one_forward_one_backward

TWO_STAGES = DATA / "h200" / "pipeline" / "two-stages.json"
WITHIN = 0.003


class Configuration:
    """Iterations of one pair of stages and number of micro-batches."""

    def __init__(self, runs: tuple[dict[str, Any], ...]) -> None:
        self.layers, self.micro_batches = tuple(runs[0]["layers"]), int(runs[0]["micro_batches"])
        self._schedule = one_forward_one_backward(2, self.micro_batches)
        self.measured_s = [float(each["iteration_s"]) for each in runs[0]["iterations"]]
        self._taken = [
            {
                (name, stage, micro_batch): end - begin
                for stage, iteration in enumerate(both)
                for name, micro_batch, begin, end in iteration["instructions"]
            }
            for both in zip(*(run["iterations"] for run in runs), strict=True)
        ]

    def predicted_s(self, transfer_s: float = 0.0) -> list[float]:
        """Of each iteration, from its own forwards and backwards."""
        instructions, edges, rank = self._schedule.instructions, self._schedule.edges(), self._schedule.rank
        receives = np.unique(edges[rank[edges[:, 0]] != rank[edges[:, 1]], 1])
        delay = np.where(np.isin(edges[:, 1], receives), transfer_s, 0.0)  # the rank itself is kept by its receive
        found = []
        for taken in self._taken:
            kinds = [choice([(taken[each.name, each.stage, each.micro_batch], 1.0)]) for each in instructions]
            graph = Graph(kinds, np.arange(len(instructions)), edges, delay_s=delay, worker=rank, waiting_w=np.zeros(2))
            found.append(graph.least_time().time_s)
        return found

    def error(self, transfer_s: float) -> float:
        """Relative error of a typical iteration: the median, since a few are held up by the host."""
        pairs = zip(self.predicted_s(transfer_s), self.measured_s, strict=True)
        return median(predicted / measured - 1.0 for predicted, measured in pairs)


def configurations() -> list[Configuration]:
    """Those measured."""
    ranks = json.loads(TWO_STAGES.read_text())["ranks"]
    return [Configuration(runs) for runs in zip(*(rank["runs"] for rank in ranks), strict=True)]


def held_out_errors(every: list[Configuration]) -> tuple[FloatArray, list[float]]:
    """Errors of those left out of the fit, shape (splits, left out), and the times fitted."""
    grid = np.linspace(0.0, 1e-3, 11)  # errors are all but linear between
    errors = np.array([[each.error(transfer_s) for transfer_s in grid] for each in every])

    def loss(members: tuple[int, ...], transfer_s: float) -> float:
        return fmean(float(np.interp(transfer_s, grid, errors[member])) ** 2 for member in members)

    rows, fitted = [], []
    for members in combinations(range(len(every)), len(every) // 2):
        best = float(minimize_scalar(partial(loss, members), bounds=(0.0, 1e-3), method="bounded").x)
        fitted.append(best)
        rows.append([float(np.interp(best, grid, errors[m])) for m in range(len(every)) if m not in members])
    return np.array(rows), fitted


def main(verdict: Verdict) -> None:
    every = configurations()
    for each in every:
        print(f"  layers {each.layers}, {each.micro_batches:2} micro-batches: {each.error(0.0):+.2%} without communication")
    errors, fitted = held_out_errors(every)
    print(f"  one time for communication: {1e3 * median(fitted):.2f} ms, {1e3 * min(fitted):.2f} to {1e3 * max(fitted):.2f}")
    verdict.at_most("iteration time of configurations left out: mean error", float(np.abs(errors).mean()), WITHIN)
    verdict.at_most("iteration time of configurations left out: largest error", float(np.abs(errors).max()), WITHIN)


if __name__ == "__main__":
    run_alone(main)

"""The graph of a pipeline against 38 plans as they ran (GPT-3 XL on four A100 PCIe, measured by Perseus' authors).

Random halves of the plans, 100 times: what is fitted is fitted on one half and judged on the other.

* iteration times from each plan's own measured forwards and backwards, with one time for communication, by which each
  instruction keeps its rank busy longer;
* iteration times from clocks alone: the mean time of each stage's instruction at each clock in the training half (where a
  clock is not there, interpolated over 1 / clock), the same time for communication;
* energies from clocks alone: powers by stage, instruction and clock, and while waiting, fitted on the training half.

    python -m benchmarks.bench_pipeline_measured [DATA [OUT.json]]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.kept import BESIDE, keep
from benchmarks.perseus_measured import FILE, MICRO_BATCHES, RANKS, Measured, read_measured
from benchmarks.verdict import Verdict, run_alone
from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.pipelines.model.schedules import one_forward_one_backward

SPLITS = 100
GRID_S = np.linspace(0.0, 0.008, 33)  # lengths are convex and piecewise linear in the time for communication
OWN, CLOCKS, RANKING = 0.003, 0.01, 0.9
ALIKE_MHZ, Z = 1.0, 1.96


class Line:
    """When an iteration ends, for any times of its instructions."""

    def __init__(self) -> None:
        schedule = one_forward_one_backward(RANKS, MICRO_BATCHES)
        every = schedule.instructions
        self.place = tuple((each.stage, int(each.name == "backward"), each.micro_batch) for each in every)
        self.before: dict[int, list[int]] = defaultdict(list)
        for earlier, later in schedule.edges().tolist():
            self.before[later].append(earlier)
        done: set[int] = set()
        self.order: list[int] = []
        waiting = list(range(len(every)))
        while waiting:
            ready = [part for part in waiting if done.issuperset(self.before[part])]
            self.order += ready
            done.update(ready)
            waiting = [part for part in waiting if part not in done]

    def length(self, time_s: FloatArray, communication_s: float) -> float:
        """Of an iteration; times have shape (ranks, 2, micro-batches)."""
        taken = [float(time_s[place]) + communication_s for place in self.place]
        end = [0.0] * len(taken)
        for part in self.order:
            end[part] = max((end[earlier] for earlier in self.before[part]), default=0.0) + taken[part]
        return max(end)


def fitted(lengths: FloatArray, iteration_s: FloatArray) -> float:
    """The time for communication with the least mean square of relative errors; lengths have shape (plans, grid)."""
    fine = np.linspace(GRID_S[0], GRID_S[-1], 3201)
    errors = [np.interp(fine, GRID_S, length) / taken - 1.0 for length, taken in zip(lengths, iteration_s, strict=True)]
    return float(fine[np.argmin(np.square(errors).mean(axis=0))])


def times_by_clock(measured: Measured, training: IndexArray) -> FloatArray:
    """Times of all plans' instructions from their clocks, as they were in the training half.

    A clock that is not there lies between a slower and a faster one: on the chord, or lower where the two next slower ones
    point lower, since towards the limit of power time stops falling; never below the faster one's time.
    """
    predicted = np.empty_like(measured.time_s)
    for rank in range(RANKS):
        for kind in range(2):
            clock, taken = measured.clock_mhz[training, rank, kind], measured.time_s[training, rank, kind]
            known = np.unique(clock)[::-1]
            mean, slow = np.array([taken[clock == each].mean() for each in known]), 1.0 / known
            wanted = 1.0 / measured.clock_mhz[:, rank, kind]
            faster = np.clip(np.searchsorted(slow, wanted, side="right") - 1, 0, len(known) - 3)
            slope = (mean[faster + 2] - mean[faster + 1]) / (slow[faster + 2] - slow[faster + 1])
            line = mean[faster + 1] + slope * (wanted - slow[faster + 1])
            between = (wanted > slow[faster]) & (wanted < slow[faster + 1])
            chord = np.interp(wanted, slow, mean)
            predicted[:, rank, kind] = np.where(between, np.maximum(np.minimum(chord, line), mean[faster]), chord)
    return predicted


def seen(measured: Measured, training: IndexArray) -> np.ndarray:
    """Plans whose clocks all lie within those that the same stage's instruction had in the training half."""
    clock, known = measured.clock_mhz, measured.clock_mhz[training]
    low, high = known.min(axis=(0, 3)), known.max(axis=(0, 3))
    return np.asarray(((clock >= low[..., None]) & (clock <= high[..., None])).all(axis=(1, 2, 3)))


def power_terms(time_s: FloatArray, iteration_s: FloatArray, training: IndexArray) -> FloatArray:
    """What powers are multiplied with, for each plan and rank; shape (plans, ranks, terms).

    An instruction's power is ``a + b * ((mean time / time)^3 - 1)``: dynamic power grows with the cube of speed. Speed,
    not the clock, because at its limit of power a GPU does not reach its clock. Terms: a and b of all stages, power
    while waiting; then what each stage's instructions and waiting differ.
    """
    reference = time_s[training].mean(axis=(0, 3))
    terms = np.zeros((len(time_s), RANKS, 23))
    for rank in range(RANKS):
        for kind in range(2):
            own = time_s[:, rank, kind]
            busy = own.sum(axis=1)
            faster = (own * ((reference[rank, kind] / own) ** 3 - 1.0)).sum(axis=1)
            terms[:, rank, 0] += busy
            terms[:, rank, 1] += faster
            terms[:, rank, 3 + 2 * rank + kind] = busy
            terms[:, rank, 11 + 2 * rank + kind] = faster
        waiting = iteration_s - time_s[:, rank].sum(axis=(1, 2))
        terms[:, rank, 2] = terms[:, rank, 19 + rank] = waiting
    return terms


PRIOR_W = np.concatenate([np.full(3, 1e6), np.full(8, 30.0), np.full(8, 30.0), np.full(4, 20.0)])
NOISE_J = 40.0


def energies(terms: FloatArray, iteration_j: FloatArray, training: IndexArray) -> FloatArray:
    """Predicted energies of all plans and ranks; powers by ridge regression (stages differ by some tens of W)."""
    known = terms[training].reshape(-1, terms.shape[2]) / NOISE_J
    power = np.linalg.solve(known.T @ known + np.diag(PRIOR_W**-2.0), known.T @ (iteration_j[training].ravel() / NOISE_J))
    return np.asarray(terms @ power)


def run_to_run_j(measured: Measured) -> tuple[float, int]:
    """Standard deviation of the energy of plans that are alike (mean difference of clocks < 1 MHz), and pairs of them."""
    entries = np.array([np.concatenate(plan) for plan in measured.entries], dtype=float)
    energy = measured.energy_j
    squares = [
        (energy[one] - energy[other]) ** 2
        for one in range(len(energy))
        for other in range(one)
        if np.abs(entries[one] - entries[other]).mean() < ALIKE_MHZ
    ]
    return float(np.sqrt(np.mean(squares) / 2.0)), len(squares)


def apart(energy_j: FloatArray, gap_j: float, rng: np.random.Generator) -> IndexArray:
    """Plans, taken at random, of which any two differ by more than the gap."""
    kept: list[int] = []
    for each in rng.permutation(len(energy_j)).tolist():
        if all(abs(energy_j[each] - energy_j[other]) > gap_j for other in kept):
            kept.append(each)
    return np.array(kept, dtype=np.intp)


def rank_correlation(
    predicted: FloatArray, energy_j: FloatArray, gap_j: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Spearman's over plans that are apart, and their number; mean over ten draws of them."""
    draws = [apart(energy_j, gap_j, rng) for _ in range(10)]
    rhos = [float(spearmanr(predicted[kept], energy_j[kept])[0]) for kept in draws if len(kept) > 1]
    return float(np.mean(rhos)), float(np.mean([len(kept) for kept in draws]))


def judge(measured: Measured) -> dict[str, Any]:
    """All numbers, over random halves."""
    line, plans = Line(), len(measured.iteration_s)
    own = np.array([[line.length(times, float(each)) for each in GRID_S] for times in measured.time_s])
    noise_j, pairs = run_to_run_j(measured)
    gap_j = Z * np.sqrt(2.0) * noise_j
    rng = np.random.default_rng(0)
    communication, from_own, from_clocks, energy_off, inside = [], [], [], [], []
    ranked: dict[str, list[tuple[float, float]]] = defaultdict(list)
    by_rank = []
    for _ in range(SPLITS):
        order = rng.permutation(plans)
        training, others = np.sort(order[: plans // 2]), np.sort(order[plans // 2 :])
        seconds = fitted(own[training], measured.iteration_s[training])
        communication.append(seconds)
        lengths = np.array([np.interp(seconds, GRID_S, own[plan]) for plan in others])
        from_own.append(lengths / measured.iteration_s[others] - 1.0)
        times = times_by_clock(measured, training)
        iteration = np.array([line.length(each, seconds) for each in times])
        off = iteration[others] / measured.iteration_s[others] - 1.0
        from_clocks.append(off)
        inside.append(seen(measured, training)[others])
        each = energies(power_terms(times, iteration, training), measured.iteration_j, training)[others]
        predicted, energy = each.sum(axis=1), measured.energy_j[others]
        energy_off.append(predicted / energy - 1.0)
        # What a predictor without error would reach: its truth is the prediction, measured with the noise of a run.
        again = predicted + rng.normal(0.0, noise_j, len(predicted))
        for name, gap in (("all plans", 0.0), ("one standard deviation apart", np.sqrt(2.0) * noise_j), ("apart", gap_j)):
            ranked[name].append(rank_correlation(predicted, energy, gap, rng))
            ranked[f"{name}, without error"].append(rank_correlation(predicted, again, gap, rng))
        by_rank.append([float(spearmanr(each[:, rank], measured.iteration_j[others, rank])[0]) for rank in range(RANKS)])
    return {
        "source": f"{FILE} (Perseus artifact), condensed; results only",
        "command": "python -m benchmarks.bench_pipeline_measured DATA OUT.json",
        "seed": 0,
        "plans": plans,
        "splits": SPLITS,
        "without_communication": summary(own[:, 0] / measured.iteration_s - 1.0),
        "communication_s": [float(np.mean(communication)), float(np.std(communication))],
        "from_own_times": summary(np.array(from_own)),
        "from_clocks": summary(np.array(from_clocks)),
        "from_clocks_seen": summary(np.array(from_clocks)[np.array(inside)]) | {"fraction": float(np.mean(inside))},
        "energy_from_clocks": summary(np.array(energy_off)),
        "run_to_run_j": noise_j,
        "pairs_alike": pairs,
        "spearman": {name: [float(np.mean(column)) for column in zip(*each, strict=True)] for name, each in ranked.items()},
        "spearman_by_rank": np.mean(by_rank, axis=0).tolist(),
    }


def summary(errors: FloatArray) -> dict[str, float]:
    """Mean, standard deviation, mean absolute value and largest absolute value."""
    return {
        "mean": float(errors.mean()),
        "deviation": float(errors.std()),
        "absolute": float(np.abs(errors).mean()),
        "largest": float(np.abs(errors).max()),
    }


def main(verdict: Verdict, folder: Path = BESIDE, out: Path | None = None) -> None:
    if not (folder / FILE).is_file():
        print(f"  skipped: no {folder / FILE}")
        return
    found = judge(read_measured(folder))
    if out:
        keep(out, found)
    own, clocks, inside = (found[name] for name in ("from_own_times", "from_clocks", "from_clocks_seen"))
    verdict.at_most("iteration from own times, largest error", own["largest"], OWN)
    verdict.at_most("iteration from clocks, mean absolute error", clocks["absolute"], CLOCKS)
    verdict.at_most("the same, largest, where all clocks were seen", inside["largest"], CLOCKS)
    rho, count = found["spearman"]["apart"]
    verdict.at_least(f"Spearman's of energies, plans apart ({count:.1f} of a half, mean)", rho, RANKING)


if __name__ == "__main__":
    run_alone(main, *map(Path, sys.argv[1:]))

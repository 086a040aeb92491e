"""Graphs of a pipeline's instructions: bounds, gaps and seconds, on a measured profile and on synthetic ones.

    python -m benchmarks.bench_graph [--large]    # --large: also 64 stages x 512 micro-batches, minutes

The measured profile and the bounds beside it are Perseus' (GPT-3 175B in 8 stages on A100 SXM); they are read from
``../shared/data`` where that is there. Synthetic profiles are drawn with seeds from 100 on, which shaped nothing.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph import Graph
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedules import one_forward_one_backward

PERSEUS = Path(__file__).parents[2] / "shared/data/perseus/gpt3-175b-a100-sxm.csv"
WAITING_W, STAGES, LATER_S = 70.0, 8, 6e-4
SLOWDOWNS = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2)
BOUNDS_J = {  # of cost, at LATER_S past the slowdowns times the fastest iteration's time rounded to 1 ms
    12: (4472, 4333, 4224, 3982, 3765, 3581),
    24: (9215, 8915, 8684, 8145, 7548, 7184),
    48: (18698, 18139, 17660, 16574, 15263, 14394),
    96: (37679, 36606, 35634, 33499, 30816, 28819),
}
GAPS = {12: 0.001, 24: 0.001, 48: 0.002, 96: 0.002}
EFFORT = Effort(steps=25_000)  # about four seconds; the rest of five is for the relaxation
FIRST_SEED = 100


def synthetic(stages: int, seed: int, clocks: int = 34) -> PipelineProfile:
    """Like an A100: 40 ms forward, 80 ms backward, clocks from 1410 to 915 MHz, stages up to 12 % apart."""
    rng = np.random.default_rng(seed)
    slower = 1410.0 / np.linspace(1410.0, 915.0, clocks)
    ways: dict[tuple[int, str], Frontier] = {}
    baseline: dict[tuple[int, str], tuple[float, float]] = {}
    for stage in range(stages):
        size = 1.0 + rng.uniform(0.0, 0.12)
        for name, base_s in (("forward", 0.04), ("backward", 0.08)):
            bound = rng.uniform(0.6, 0.9)
            time_s = base_s * size * (bound * slower + 1.0 - bound) * (1.0 + 0.001 * rng.standard_normal(clocks))
            energy_j = time_s * (90.0 + 200.0 / slower ** rng.uniform(2.2, 2.8) + 40.0 / slower)
            ways[stage, name] = choice(list(zip(time_s.tolist(), energy_j.tolist(), range(clocks), strict=True)))
            baseline[stage, name] = float(time_s[0]), float(energy_j[0])
    return PipelineProfile("synthetic", "synthetic GPU", "simulated", ways, baseline, WAITING_W)


def solved(graph: Graph, within_s: float, effort: Effort | None) -> tuple[float, float, float, bool]:
    """Lower bound of cost, gap in cost, CPU seconds, and whether the deadline is kept; workers are held until then."""
    began = time.process_time()
    plan = graph.least_energy(within_s, until_s=within_s, effort=effort)
    took_s = time.process_time() - began
    drawn_j = float(graph.waiting_w.sum()) * within_s
    bound_j = (plan.lower_bound_j or 0.0) - drawn_j
    return bound_j, 1.0 - bound_j / (plan.energy_j - drawn_j), took_s, plan.exact_time_s <= within_s


def measured(verdict: Verdict) -> None:
    """The table beside the measured profile."""
    if not PERSEUS.exists():
        print(f"  {PERSEUS} is not there: its bounds are left out")
        return
    profile = read_perseus_csv(PERSEUS, waiting_w=WAITING_W)
    for micro_batches, bounds in BOUNDS_J.items():
        graph = pipeline_graph(one_forward_one_backward(STAGES, micro_batches), profile)
        fastest_s = round(graph.least_time().time_s, 3)
        for slowdown, reference_j in zip(SLOWDOWNS, bounds, strict=True):
            bound_j, gap, seconds, kept = solved(graph, fastest_s * slowdown + LATER_S, EFFORT)
            label = f"8 stages x {micro_batches} at {slowdown:g} T"
            verdict.at_most(f"{label}: bound {bound_j:,.1f} J off the reference, J", abs(bound_j - reference_j), 0.5)
            verdict.at_most(f"{label}: gap in cost", gap, GAPS[micro_batches])
            verdict.at_most(f"{label}: CPU seconds", seconds, 5.0)
            verdict.at_least(f"{label}: deadline kept", float(kept), 1.0)
    swept(verdict, "8 stages x 96, measured", graph, 60.0)


def swept(verdict: Verdict, label: str, graph: Graph, most_s: float) -> None:
    """A frontier of 100 deadlines."""
    began = time.process_time()
    frontier = graph.frontier(100, held=True)
    seconds = time.process_time() - began
    drawn_j = float(graph.waiting_w.sum()) * frontier.within_s
    gaps = 1.0 - (frontier.lower_bound_j - drawn_j) / (frontier.energy_j - drawn_j)
    print(f"  {label}, 100 deadlines: gap in cost {gaps.mean():.3%} in the mean, {gaps.max():.3%} at most")
    verdict.at_most(f"{label}: CPU seconds of a frontier of 100 deadlines", seconds, most_s)


def drawn(verdict: Verdict, stages: int, micro_batches: int, most_gap: float, most_s: float, seeds: int) -> None:
    """Synthetic profiles."""
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        graph = pipeline_graph(one_forward_one_backward(stages, micro_batches), synthetic(stages, seed))
        for slowdown in (1.0005, 1.05):
            _, gap, seconds, kept = solved(graph, graph.least_time().time_s * slowdown, None)
            label = f"{stages} stages x {micro_batches}, seed {seed}, {slowdown:g} T"
            verdict.at_most(f"{label}: gap in cost", gap, most_gap)
            verdict.at_most(f"{label}: CPU seconds", seconds, most_s)
            verdict.at_least(f"{label}: deadline kept", float(kept), 1.0)


def main(verdict: Verdict, large: bool = False) -> None:
    measured(verdict)
    drawn(verdict, STAGES, 64, 0.002, 1.176, 3)  # lowtime 0.3.0 took 1,176 s
    swept(
        verdict, "8 stages x 64, synthetic",
        pipeline_graph(one_forward_one_backward(STAGES, 64), synthetic(STAGES, FIRST_SEED)), 11.76,
    )  # fmt: skip
    drawn(verdict, 16, 256, 0.005, 60.0, 1)
    if large:
        drawn(verdict, 64, 512, 0.005, 600.0, 1)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    verdict.at_most("most memory, GB", used, 4.0)


if __name__ == "__main__":
    main(Verdict(), "--large" in sys.argv)

"""Lower bounds of small random graphs against an exact solver: none may be above a plan that exists.

Graphs are pipelines of 2 to 16 stages and micro-batches and at most 64 parts, with 3 to 20 clocks, exact or noisy. HiGHS is
asked for a plan in time that costs less than the bound; what it finds is timed and added up as fractions. Where it proves in
time that there is none, the claim is held; where it does not, undecided.

    python -m benchmarks.bench_graph_proofs [graphs] [first seed]
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from benchmarks.verdict import Verdict, run_alone
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.schedules import one_forward_one_backward

_MOST_PARTS = 64
_SECONDS = 10.0  # of HiGHS for each graph
_UNIT_S = 1e-4  # its tolerance is 1e-7 of it
_BELOW = 1e-8  # of the energy, by which a plan has to be below a bound to be looked for
_EFFORT = Effort(steps=2_000)  # the plan's energy is not judged here, only what is said of it
_SLOWDOWNS = (1e-9, 0.01, 0.02, 0.05, 0.1)


def drawn(seed: int) -> tuple[Graph, float]:
    """A graph and a deadline."""
    rng = np.random.default_rng([33, seed])
    while True:
        stages, micro_batches = rng.integers(2, 17, 2).tolist()
        if 2 * stages * micro_batches <= _MOST_PARTS:
            break
    clocks = np.linspace(1.0, rng.uniform(1.2, 2.0), int(rng.integers(3, 21)))
    steep, noise, waiting_w = rng.uniform(0.5, 3.0), rng.choice([0.0, 0.002, 0.02]), rng.choice([0.0, 60.0, 150.0])

    def kernel() -> Frontier:
        time_s = rng.uniform(0.02, 0.05) * clocks ** rng.uniform(0.3, 1.0) * (1.0 + noise * rng.standard_normal(len(clocks)))
        return choice(list(zip(time_s.tolist(), (time_s * (100.0 + 250.0 / clocks**steep)).tolist(), strict=True)))

    schedule = one_forward_one_backward(stages, micro_batches)
    kind = [2 * each.stage + (each.name == "backward") for each in schedule.instructions]
    graph = Graph(
        [kernel() for _ in range(2 * stages)],
        np.array(kind),
        schedule.edges(),
        worker=schedule.rank,
        waiting_w=np.full(stages, waiting_w),
    )
    return graph, graph.least_time().time_s * (1.0 + float(rng.choice(_SLOWDOWNS)))


def cheaper(graph: Graph, within_s: float, than_j: float) -> tuple[GraphPlan | None, bool]:
    """A plan in time that needs less, if HiGHS finds one, and whether it proved that there is none."""
    points = [graph.ways(kind) for kind in graph.kind.tolist()]
    power_w = graph.waiting_w[graph.worker]
    cost = np.concatenate([each.energy_j - waiting * each.time_s for each, waiting in zip(points, power_w, strict=True)])
    first = np.cumsum([0, *map(len, points)])
    ways, parts = len(cost), len(points)
    rows = lil_array((2 * parts + len(graph.edges) + 1, ways + parts))
    least, most = np.full(rows.shape[0], -np.inf), np.zeros(rows.shape[0])
    for part, each in enumerate(points):  # one way each, which ends in time
        here = slice(first[part], first[part + 1])
        rows[part, here], least[part], most[part] = 1.0, 1.0, 1.0
        rows[parts + part, here], rows[parts + part, ways + part] = each.time_s / _UNIT_S, 1.0
        most[parts + part] = within_s / _UNIT_S
    for row, (one, other) in enumerate(graph.edges.tolist(), start=2 * parts):
        rows[row, first[one] : first[one + 1]] = points[one].time_s / _UNIT_S
        rows[row, ways + one], rows[row, ways + other] = 1.0, -1.0
    rows[-1, :ways] = cost
    most[-1] = than_j * (1.0 - _BELOW) - float(graph.waiting_w.sum()) * within_s
    found = milp(
        np.concatenate([cost, np.zeros(parts)]),
        constraints=LinearConstraint(rows.tocsr(), least, most),
        integrality=np.repeat([1, 0], [ways, parts]),
        bounds=Bounds(0.0, np.repeat([1.0, within_s / _UNIT_S], [ways, parts])),
        options={"time_limit": _SECONDS},
    )
    if found.x is None:
        return None, found.status == 2
    plan = graph.plan(np.array([int(found.x[a:b].argmax()) for a, b in pairwise(first)]), within_s)
    return (plan if plan.exact_time_s <= within_s and plan.energy_j < than_j else None), False


def main(verdict: Verdict, graphs: str = "3000", first: str = "0") -> None:
    counts: Counter[str] = Counter()
    for seed in range(int(first), int(first) + int(graphs)):
        graph, within_s = drawn(seed)
        plan = graph.least_energy(within_s, until_s=within_s, effort=_EFFORT)
        assert plan.lower_bound_j is not None
        best = "called best" if plan.gap == 0.0 else "with a gap"
        other, proved = cheaper(graph, within_s, plan.lower_bound_j)
        counts[f"{best}, {'held' if proved else 'broken' if other else 'undecided'}"] += 1
        if other is not None:
            print(f"  seed {seed}: {other.energy_j!r} J in time, the bound is {plan.lower_bound_j!r}", flush=True)
        if (seed + 1) % 100 == 0:
            print(f"  {seed + 1}: {dict(counts)}", flush=True)
    verdict.at_most("bounds above a plan", counts["called best, broken"] + counts["with a gap, broken"], 0)


if __name__ == "__main__":
    run_alone(main, *sys.argv[1:])

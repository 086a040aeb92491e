from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from testbed.small_graphs import SmallGraph
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.frontiers import graph_rounding
from wastenot.frontiers.algebra import Frontier, choice, repeat, sequence
from wastenot.frontiers.graph import Graph, graph
from wastenot.frontiers.graph_curve import CostCurve
from wastenot.frontiers.graph_relaxation import relaxed_by_highs
from wastenot.frontiers.graph_rounding import Effort

POSITIVE = st.one_of(st.integers(1, 6).map(float), st.floats(0.1, 5.0))


@st.composite
def small_graphs(draw: st.DrawFn, most_plans: int = 300) -> SmallGraph:
    parts = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=4), min_size=1, max_size=4))
    kind, plans = [], 1
    smallest = min(range(len(kinds)), key=lambda each: len(kinds[each]))
    for _ in range(parts):
        taken = draw(st.integers(0, len(kinds) - 1))
        if plans * len(kinds[taken]) > most_plans:
            taken = smallest
        if plans * len(kinds[taken]) > most_plans:
            break
        plans *= len(kinds[taken])
        kind.append(taken)
    parts = len(kind)
    workers = draw(st.integers(0, 3))
    worker = [draw(st.integers(-1, workers - 1)) for _ in range(parts)]
    edges = {
        (a, b): draw(st.sampled_from([0.0, 0.0, 0.5, 0.3]))
        for b in range(parts)
        for a in range(b)
        if draw(st.integers(0, 3)) == 0
    }
    last: dict[int, int] = {}
    for part, each in enumerate(worker):
        if each >= 0 and each in last:
            edges.setdefault((last[each], part), 0.0)
        last[each] = part
    renamed = draw(st.permutations(range(parts)))
    of = {part: renamed[part] for part in range(parts)}
    back = sorted(range(parts), key=lambda part: of[part])
    return SmallGraph(
        tuple(map(tuple, kinds)),
        tuple(kind[part] for part in back),
        tuple((of[a], of[b]) for a, b in edges),
        tuple(edges.values()),
        tuple(worker[part] for part in back),
        tuple(draw(st.sampled_from([0.0, 0.25, 1.0, 1.7])) for _ in range(max(workers, 1))),
    )


def test_against_all_plans_and_most_are_the_best() -> None:
    gaps: list[float] = []

    @settings(max_examples=60)
    @given(small_graphs(), st.floats(0.0, 1.2), st.sampled_from([None, 0.5, 1.0, 1.5]), st.booleans())
    def against_all_plans(small: SmallGraph, part: float, held: float | None, limited: bool) -> None:
        graph = small.graph()
        times = sorted({time for time, _ in small.plans()})
        assert graph.least_time().exact_time_s == times[0]
        within_s: Fraction | None = None
        if limited:
            within_s = times[min(int(part * len(times)), len(times) - 1)]
        until_s = None if held is None else held * float(within_s or times[0])
        found = graph.least_energy(within_s, until_s=until_s)
        assert within_s is None or found.exact_time_s <= within_s
        least = small.least_j(within_s, until_s)
        assert least is not None and found.lower_bound_j is not None
        assert found.lower_bound_j <= least * (1.0 + 1e-12)
        assert found.energy_j >= least - 1e-9 * abs(least)
        if found.gap == 0.0:
            assert found.energy_j == pytest.approx(least, rel=1e-11)
        gaps.append(found.gap)
        # What the plan says of itself is so.
        again = graph.plan(found.way, until_s)
        assert (again.energy_j, again.exact_time_s) == (found.energy_j, found.exact_time_s)

    against_all_plans()
    assert np.mean(np.array(gaps) == 0.0) > 0.9


@pytest.mark.parametrize("width", [3, 30])
def test_a_search_that_had_to_drop_states_proves_nothing(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(graph_rounding, "_MOST_STATES", width)
    proven = 0
    for seed in range(20):
        made = random_pipeline(np.random.default_rng(seed), 2, 2, ways=2)
        within_s = made.least_time().time_s * 1.2
        # The first plan alone, so that cheaper ones are left to be overlooked.
        found = made.least_energy(within_s, until_s=within_s, effort=Effort(steps=0))
        plans = (made.plan(np.array(way), within_s) for way in np.ndindex(*[2] * len(made)))
        least = min(plan.energy_j for plan in plans if plan.time_s <= within_s)
        assert found.lower_bound_j is not None
        assert found.lower_bound_j <= least * (1.0 + 1e-12)
        proven += found.gap == 0.0
    assert proven > 0


def test_a_cycle_names_its_parts() -> None:
    part = choice([(1.0, 1.0)])
    with pytest.raises(BadInputError, match="cycle: 1 -> 2 -> 3 -> 1"):
        Graph([part], np.zeros(5, dtype=np.intp), np.array([[0, 1], [1, 2], [2, 3], [3, 1], [3, 4]]))


def test_a_deadline_that_none_keeps_names_the_fastest() -> None:
    part = choice([(1.0, 2.0), (2.0, 1.0)])
    graph = Graph([part], np.zeros(3, dtype=np.intp), np.array([[0, 1], [1, 2]]))
    with pytest.raises(InfeasibleError, match="the fastest takes 3 s"):
        graph.least_energy(2.9)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"kind": [0, 1]}, "kind"),
        ({"edges": [[0, 2]]}, "edges"),
        ({"delay_s": [np.nan]}, "delay_s"),
        ({"delay_s": [0.0, 1.0]}, "delay_s"),
        ({"worker": [0, 1]}, "worker"),
        ({"waiting_w": [-1.0]}, "waiting_w"),
        ({"kind": []}, "kind"),
    ],
)
def test_bad_numbers_are_named(changed: dict[str, list[float]], named: str) -> None:
    given: dict[str, object] = {"kind": [0, 0], "edges": [[0, 1]], "delay_s": [0.0], "worker": [0, 0], "waiting_w": [1.0]}
    with pytest.raises(BadInputError, match=named):
        Graph([choice([(1.0, 1.0)])], **{name: np.array(value) for name, value in (given | changed).items()})  # type: ignore[arg-type]


def test_a_worker_that_draws_power_does_one_thing_at_a_time() -> None:
    kind, edges, parts = [choice([(1.0, 1.0)])], np.array([[0, 2], [2, 1], [0, 3]]), np.zeros(4, dtype=np.intp)
    with pytest.raises(BadInputError, match="parts 1 and 3 keep worker 0 busy"):
        Graph(kind, parts, edges, worker=np.array([0, 0, -1, 0]), waiting_w=np.array([1.0]))
    Graph(kind, parts, edges, worker=np.array([0, 0, -1, 0]), waiting_w=np.array([0.0]))
    Graph(kind, parts, edges, worker=np.array([0, 0, -1, 1]), waiting_w=np.array([1.0, 1.0]))  # 1 waits for 0 through 2


def test_work_of_several_kernels_goes_slower_than_its_least_energy_where_waiting_costs() -> None:
    kernel = choice([(1.0, 4.0), (2.0, 3.0), (4.0, 3.5)])  # the last saves nothing but the power of waiting
    graph = Graph([sequence(kernel, repeat(kernel, 2))], np.array([0]), np.empty((0, 2)), waiting_w=np.array([2.0]))
    found = graph.least_energy(12.0, until_s=12.0)
    assert graph.ways(0)[int(found.way[0])].choices == (2, 2)
    assert found.energy_j == pytest.approx(10.5)


def random_pipeline(rng: np.random.Generator, stages: int, micro_batches: int, ways: int = 20) -> Graph:
    """Stages after one another, each working on one micro-batch after the other; then back through them."""
    clock = np.linspace(1.0, 1.6, ways)

    def kernel() -> Frontier:
        time = rng.uniform(0.03, 0.05) * clock * (1.0 + 0.002 * rng.standard_normal(ways))
        return choice(list(zip(time, time * (100.0 + 250.0 / clock**2.5), strict=True)))

    kinds = [kernel() for _ in range(2 * stages)]
    names = [(way, m, s) for way in range(2) for m in range(micro_batches) for s in range(stages)]
    index = {name: place for place, name in enumerate(names)}
    edges = [(index[0, m, s], index[0, m, s + 1]) for m in range(micro_batches) for s in range(stages - 1)]
    edges += [(index[1, m, s], index[1, m, s - 1]) for m in range(micro_batches) for s in range(1, stages)]
    edges += [
        (index[way, m, s], index[way, m + 1, s]) for way in range(2) for m in range(micro_batches - 1) for s in range(stages)
    ]
    edges += [(index[0, micro_batches - 1, s], index[1, 0, s]) for s in range(stages)]
    return Graph(
        kinds,
        np.array([way * stages + s for way, _, s in names]),
        np.array(edges),
        worker=np.array([s for _, _, s in names]),
        waiting_w=np.full(stages, 60.0),
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("slowdown", [1.0, 1.01, 1.5])
@pytest.mark.parametrize("held", [False, True])
def test_the_interior_point_finds_what_highs_finds(seed: int, slowdown: float, held: bool) -> None:
    made = random_pipeline(np.random.default_rng(seed), 4, 6)
    within_s = made.least_time().time_s * slowdown
    problem = made._problem(within_s, within_s if held else None)
    ours, theirs = CostCurve(problem).solved(problem), relaxed_by_highs(problem)
    assert ours.bound == pytest.approx(theirs.bound, rel=2e-5 if slowdown == 1.0 else 1e-6)
    assert ours.saved_s == pytest.approx(theirs.saved_s, abs=1e-4 * within_s)


def test_pipelines_are_planned_near_their_bound() -> None:
    made = random_pipeline(np.random.default_rng(11), 6, 8)
    for slowdown in (1.0, 1.1):
        within_s = made.least_time().time_s * slowdown * (1.0 + 1e-12)
        found = made.least_energy(within_s, until_s=within_s, effort=Effort(steps=1_000))
        assert found.exact_time_s <= within_s
        assert 0.0 <= found.gap < 0.003


def test_a_frontier_leads_from_the_fastest_to_the_least_energy() -> None:
    made = random_pipeline(np.random.default_rng(3), 4, 6)
    frontier = made.frontier(6, effort=Effort(steps=100))
    assert (np.diff(frontier.energy_j) <= 0.0).all()
    assert (frontier.lower_bound_j <= frontier.energy_j).all()
    assert frontier.plans[-1].energy_j == pytest.approx(made.least_energy(effort=Effort(steps=100)).energy_j, rel=2e-3)
    for within_s, plan in zip(frontier.within_s.tolist(), frontier.plans, strict=True):
        assert plan.exact_time_s <= within_s
        assert plan.lower_bound_j == pytest.approx(made.lower_bound_j(within_s), rel=1e-3)
    held = made.frontier(6, held=True, effort=Effort(steps=100))
    assert held.within_s[-1] > frontier.within_s[-1]
    for within_s, plan in zip(held.within_s.tolist(), held.plans, strict=True):
        assert plan.lasts_s == within_s and plan.exact_time_s <= within_s


def test_a_frontier_ends_with_the_plan_of_least_energy() -> None:
    kinds = [choice([(0.0502, 23.81), (0.0558, 20.34)]), choice([(0.093, 44.58), (0.1046, 38.27)])]
    made = graph([*kinds, *kinds, *kinds], [(part, part + 1) for part in range(5)], worker=[0] * 6, waiting_w=70.0)
    least = made.least_energy()
    found = made.frontier(7)
    assert found.plans[-1].energy_j == pytest.approx(least.energy_j, rel=1e-12)
    assert found.plans[-1].gap == pytest.approx(0.0, abs=1e-9)
    assert all(plan.exact_time_s <= within_s for plan, within_s in zip(found.plans, found.within_s, strict=True))


@pytest.mark.parametrize("chosen", [False, True])
def test_parts_without_a_choice_have_an_exact_bound(chosen: bool) -> None:
    only, other = choice([(0.1, 20.0)]), choice([(0.1, 30.0), (0.15, 25.0)] if chosen else [(0.1, 30.0)])
    made = graph([only, only, only, other], [(0, 1), (1, 2), (0, 3)], worker=[0, 0, 0, 1], waiting_w=70.0)
    fastest = made.least_time()
    for within_s in (None, fastest.exact_time_s, 0.4):
        for until_s in (None, 0.1, 0.5):
            found = made.least_energy(within_s, until_s=until_s)
            assert found.lower_bound_j == pytest.approx(found.energy_j, rel=1e-9)


def test_the_price_of_time_is_what_a_longer_deadline_saves() -> None:
    made = random_pipeline(np.random.default_rng(5), 4, 8)
    within_s = made.least_time().time_s * 1.05
    for until_s in (None, 2.0 * within_s):
        before, after = (made.lower_bound_j(within_s + step, until_s=until_s) for step in (-1e-5, 1e-5))
        assert made.price_of_time(within_s, until_s=until_s) == pytest.approx((before - after) / 2e-5, rel=0.05)
    assert made.price_of_time(100.0) == 0.0


def test_the_critical_path_takes_the_whole_time() -> None:
    made = random_pipeline(np.random.default_rng(5), 4, 8)
    found = made.least_energy(made.least_time().time_s * 1.03, effort=Effort(steps=100))
    path = made.critical_path(found)
    assert found.critical[path].all()
    assert found.part_time_s[path].sum() == pytest.approx(found.time_s)
    assert {tuple(each) for each in zip(path[:-1].tolist(), path[1:].tolist(), strict=True)} <= set(
        map(tuple, made.edges.tolist())
    )


def test_a_graph_is_a_part_of_a_graph() -> None:
    kernels = [choice([(1.0 + 0.1 * k, 9.0), (1.5, 7.0 - k), (2.0 + 0.3 * k, 5.0 - k)]) for k in range(3)]
    chain = [(0, 1), (1, 2)]
    replicas = [
        graph([kernels[k] for k in order], chain, worker=[0, 0, 0], waiting_w=0.5) for order in ((0, 1, 0), (2, 1, 2))
    ]
    nested = graph([*replicas, kernels[1]], [(0, 2), (1, 2)], worker=[0, 1, -1], waiting_w=0.5)
    flat = graph(
        [kernels[k] for k in (0, 1, 0, 2, 1, 2, 1)],
        [(0, 1), (1, 2), (3, 4), (4, 5), (2, 6), (5, 6)],
        worker=[0, 0, 0, 1, 1, 1, -1],
        waiting_w=0.5,
    )
    assert nested.least_time().time_s == pytest.approx(flat.least_time().time_s)
    for slowdown in (1.0, 1.1, 1.3, 1.6):
        within_s = flat.least_time().time_s * slowdown * (1.0 + 1e-12)
        inside, outside = nested.least_energy(within_s), flat.least_energy(within_s)
        assert outside.gap == 0.0
        assert inside.lower_bound_j is not None and inside.lower_bound_j <= outside.energy_j <= inside.energy_j * (1 + 1e-12)
        assert inside.energy_j == pytest.approx(outside.energy_j, rel=0.05)
    alone = sequence(replicas[0], kernels[1]).least_energy(within_s=6.0)
    assert len(alone.choices) == 2 and len(alone.choices[0]) == 3


def test_a_stage_of_many_kernels_takes_ways_on_its_hull() -> None:
    clock = np.linspace(1.0, 1.5, 30)
    sizes = np.random.default_rng(2).uniform(0.01, 0.1, 12)
    stage = sequence(
        *(repeat(choice(list(zip(clock * s, (30 + 40 * (1.5 - clock) ** 2) * s, strict=True))), 24) for s in sizes)
    )
    made = graph([stage] * 6, [(part, part + 1) for part in range(5)], worker=[0] * 6, waiting_w=3.0)
    within_s = made.least_time().time_s * 1.1
    assert made.least_energy(within_s, until_s=within_s).gap < 1e-4


def test_the_same_object_is_one_kind() -> None:
    part = choice([(1.0, 2.0), (2.0, 1.0)])
    made = graph([part, choice([(1.0, 1.0)]), part], [(0, 1), (1, 2)], delay_s=0.5)
    assert len(made.kinds) == 2
    assert made.least_time().time_s == 4.0


def test_a_graph_answers_what_a_frontier_does_and_a_training_run_is_its_repeat() -> None:
    kernel = choice([(1.0, 9.0, "fast"), (1.5, 6.0, "middle"), (2.0, 4.0, "slow")])
    iteration = graph([kernel] * 3, [(0, 1)], worker=[0, 0, 1], waiting_w=0.5)
    run = repeat(iteration, 1000)
    assert run.least_time().time_s == pytest.approx(1000 * iteration.least_time().time_s)
    assert run.least_energy().energy_j == pytest.approx(1000 * iteration.least_energy().energy_j)
    listed = iteration.as_frontier()
    at = listed.hull()[1]
    assert run.at_price(listed.price_of_time(at.time_s) * (1 - 1e-9)).time_s == pytest.approx(1000 * at.time_s)
    assert [each.choices for each in listed.hull()] == [each.choices for each in run.hull()]
    every = [(each.time_s, each.energy_j) for each in listed.pareto()]
    edp = listed.least_edp(2.0)
    assert edp.energy_j * edp.time_s**2 == pytest.approx(min(energy * time**2 for time, energy in every))

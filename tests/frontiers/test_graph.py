from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.support.small_graphs import SmallGraph
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import choice, repeat, sequence
from wastenot.frontiers.graph import Graph

GAPS: list[float] = []
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


@settings(max_examples=300, deadline=None)
@given(small_graphs(), st.floats(0.0, 1.2), st.sampled_from([None, 0.5, 1.0, 1.5]), st.booleans())
def test_against_all_plans(small: SmallGraph, part: float, held: float | None, limited: bool) -> None:
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
    GAPS.append(found.gap)
    # What the plan says of itself is so.
    again = graph.plan(found.way, until_s)
    assert (again.energy_j, again.exact_time_s) == (found.energy_j, found.exact_time_s)


def test_small_graphs_are_solved() -> None:
    assert GAPS and np.mean(np.array(GAPS) == 0.0) > 0.99


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


def test_work_of_several_kernels_goes_slower_than_its_least_energy_where_waiting_costs() -> None:
    kernel = choice([(1.0, 4.0), (2.0, 3.0), (4.0, 3.5)])  # the last saves nothing but the power of waiting
    graph = Graph([sequence(kernel, repeat(kernel, 2))], np.array([0]), np.empty((0, 2)), waiting_w=np.array([2.0]))
    found = graph.least_energy(12.0, until_s=12.0)
    assert graph.ways(0)[int(found.way[0])].choices == (2, 2)
    assert found.energy_j == pytest.approx(10.5)

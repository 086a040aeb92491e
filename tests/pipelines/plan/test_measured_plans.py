import numpy as np
import pytest

from benchmarks.bench_pipeline_measured import GRID_S, Line, fitted, seen, times_by_clock
from benchmarks.perseus_measured import MICRO_BATCHES, RANKS, Measured, changes, layout, read_measured, shifted_correlation
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph import Graph
from wastenot.pipelines.model.schedules import one_forward_one_backward


@pytest.fixture(scope="module")
def line() -> Line:
    return Line()


def test_a_layout_has_each_instruction_once():
    for rank in range(RANKS):
        steps = [step for step in layout(rank) if isinstance(step, tuple)]
        assert sorted(steps) == sorted((name, each) for name in ("forward", "backward") for each in range(MICRO_BATCHES))
    assert [len(list(layout(rank))) for rank in range(RANKS)] == [518, 520, 518, 516]


def test_lengths_are_those_of_the_graph(line):
    times = np.random.default_rng(1).uniform(0.1, 0.3, (RANKS, 2, MICRO_BATCHES))
    schedule = one_forward_one_backward(RANKS, MICRO_BATCHES)
    kinds = [choice([(float(times[place]) + 0.004, 1.0, Setting(None))]) for place in line.place]
    graph = Graph(kinds, np.arange(len(kinds)), schedule.edges(), worker=schedule.rank, waiting_w=np.zeros(RANKS))
    assert line.length(times, 0.004) == pytest.approx(graph.least_time().time_s, rel=1e-12)


def test_the_time_for_communication_is_found(line):
    times = np.random.default_rng(2).uniform(0.1, 0.3, (6, RANKS, 2, MICRO_BATCHES))
    measured = np.array([line.length(each, 0.00317) for each in times])
    lengths = np.array([[line.length(each, float(communication)) for communication in GRID_S] for each in times])
    assert fitted(lengths[:3], measured[:3]) == pytest.approx(0.00317, abs=2e-5)


def test_clocks_that_were_not_seen_are_interpolated_over_their_inverse():
    clock = np.repeat([1400.0, 1300.0, 1200.0, 1100.0, 1000.0], MICRO_BATCHES).reshape(5, 1, 1, MICRO_BATCHES)
    clock = np.broadcast_to(clock, (5, RANKS, 2, MICRO_BATCHES)).copy()
    time = 0.02 + 100.0 / np.minimum(clock, 1300.0)
    measured = Measured(clock, time, (), np.ones(5), np.ones((5, RANKS)), 1.0)
    training = np.array([0, 2, 3, 4])
    predicted = times_by_clock(measured, training)
    assert predicted == pytest.approx(time, rel=1e-12)  # 1300 too: the line from below reaches the limit just there
    assert seen(measured, training).all()
    assert seen(measured, np.array([1, 2, 3])).tolist() == [False, True, True, True, False]


def test_clocks_change_at_forwards_and_backwards_only(shared_data):
    measured = read_measured(shared_data)
    count, at_instruction = changes(measured)
    assert count == at_instruction > 20_000
    assert shifted_correlation(measured, 0) > max(shifted_correlation(measured, shift) for shift in (-2, -1, 1, 2))


def test_iterations_of_the_second_half_follow_from_the_first(shared_data, line):
    measured = read_measured(shared_data)
    lengths = np.array([[line.length(times, float(each)) for each in GRID_S[10:20]] for times in measured.time_s])
    training = np.arange(0, len(lengths), 2)
    seconds = min(
        np.linspace(GRID_S[10], GRID_S[19], 200),
        key=lambda s: sum((np.interp(s, GRID_S[10:20], lengths[p]) / measured.iteration_s[p] - 1) ** 2 for p in training),
    )
    for plan in range(1, len(lengths), 2):
        assert np.interp(seconds, GRID_S[10:20], lengths[plan]) == pytest.approx(measured.iteration_s[plan], rel=0.003)

"""Partitions: balanced ones against enumeration, and the one of least energy."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.iteration_graph import baseline_of, pipeline_graph
from wastenot.pipelines.model.partition import balanced, least_energy_partition
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedules import build_schedule


@given(st.integers(1, 4), st.integers(0, 6), st.floats(0.1, 2.0), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_no_partition_has_a_faster_slowest_stage(stages, more, layer_s, first_s, last_s):
    layers = stages + more
    found = balanced(layers, stages, layer_s, first_s, last_s)

    def slowest_s(partition):
        times = [layer_s * each for each in partition]
        times[0] += first_s
        times[-1] += last_s
        return max(times)

    every = [each for each in product(range(1, layers + 1), repeat=stages) if sum(each) == layers]
    assert found in every
    assert slowest_s(found) == pytest.approx(min(map(slowest_s, every)))


def _profile(partition: tuple[int, ...]) -> PipelineProfile:
    """Layers of 1 s, two thirds of them in the backward; the last stage has two layers' worth of a head."""
    ways, baseline = {}, {}
    for stage, layers in enumerate(partition):
        work = layers + (2.0 if stage == len(partition) - 1 else 0.0)
        for name, share in (("forward", 1 / 3), ("backward", 2 / 3)):
            each = [(share * work * slower, 300.0 * share * work * slower**-1.5) for slower in (1.0, 1.1, 1.25, 1.5, 2.0)]
            ways[stage, name], baseline[stage, name] = choice(each), each[0]
    return PipelineProfile("toy", "sim:toy", "simulated", ways, baseline, 80.0, baseline_clocks="auto")


def test_the_partition_of_least_energy_is_as_fast_and_needs_less():
    schedule = build_schedule("1f1b", ranks=3, micro_batches=4)
    first = (2, 4, 3)  # the last stage decides: 5 s
    found = least_energy_partition(first, _profile, schedule)
    assert found.finished

    def default_s(partition):
        return baseline_of(schedule, _profile(partition)).exact_time_s

    assert found.energy_j < pipeline_graph(schedule, _profile(first)).lower_bound_j(default_s(first))
    assert default_s(found.partition) <= default_s(first) * (1 + 1e-9)
    every = [each for each in product(range(1, 8), repeat=3) if sum(each) == 9 and default_s(each) <= default_s(first)]
    bounds = [pipeline_graph(schedule, _profile(each)).lower_bound_j(default_s(each)) for each in every]
    assert found.energy_j == pytest.approx(min(bounds), rel=0.01)


def test_a_search_ends_with_what_it_has():
    schedule = build_schedule("1f1b", ranks=3, micro_batches=4)
    found = least_energy_partition((3, 5, 4), _profile, schedule, most=1)
    assert found.partition == (3, 5, 4)
    assert not found.finished

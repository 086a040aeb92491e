"""Confidence of a pipeline's plans, on toy profiles whose errors are known."""

from dataclasses import replace
from fractions import Fraction
from typing import cast

import numpy as np
import pytest

from testbed.small_pipelines import hastily
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.errors import Loadings, ProfileErrors
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.plan.confidence import PipelineDraws, keep_with_confidence
from wastenot.pipelines.plan.planner import frontier_rungs, plan_pipeline, with_rungs
from wastenot.pipelines.plan.straggler import Rungs

CLOCKS = 8
STAGES = 3


def _profile(spread: float, *, seed: int = 0, shared: bool = False) -> PipelineProfile:
    """Stages with errors of a fraction of each way's time; the baseline's is that of its first way."""
    rng = np.random.default_rng(seed)
    ways, baseline, off, off_at_auto = {}, {}, {}, {}
    errors = 2 * STAGES * CLOCKS
    for place, key in enumerate((stage, name) for stage in range(STAGES) for name in ("forward", "backward")):
        slower = np.concatenate([[1.0, 1.0002], 1.0 + 0.03 * np.arange(1, CLOCKS - 1)])
        time = slower * (1.0 if key[1] == "forward" else 2.0) * rng.uniform(0.85, 1.0)
        energy = 400.0 * time * slower**-1.8
        loading = np.zeros((CLOCKS, errors))
        loading[np.arange(CLOCKS), np.arange(CLOCKS) + (0 if shared else CLOCKS * place)] = spread * time
        loads = Loadings(loading, np.zeros((CLOCKS, 1)), np.zeros(CLOCKS))
        ways[key], baseline[key] = choice(list(zip(time, energy, range(CLOCKS), strict=True))), (time[0], energy[0])
        off[key], off_at_auto[key] = loads, loads.at(0)
    return PipelineProfile(
        "toy", "sim:toy", "simulated", ways, baseline, 90.0, baseline_clocks="auto", errors=ProfileErrors(off, off_at_auto)
    )


SCHEDULE = build_schedule("1f1b", ranks=STAGES, micro_batches=3)


@pytest.fixture(scope="module", autouse=True)
def _hastily():
    with hastily():
        yield


@pytest.mark.parametrize(("slowdown", "shared"), [(0.0, True), (0.05, False)])
def test_true_iterations_keep_the_slowdown_as_often_as_promised(slowdown, shared):
    profile = _profile(0.004, shared=shared)
    made = keep_with_confidence(SCHEDULE, profile, max_slowdown=slowdown)
    assert made.probability >= 0.95
    assert made.promise.energy_change < -0.01
    fresh = PipelineDraws.of(SCHEDULE, profile, pipeline_graph(SCHEDULE, profile), seed=1000)
    chosen = _chosen(fresh.graph, made.solved.way)
    late = fresh.draws_of(chosen)[0] > (1.0 + slowdown) * fresh.baseline_draws[0] * (1 + 1e-12)
    assert late.mean() <= 0.065
    plain = fresh.graph.least_energy((1 + Fraction(slowdown)) * fresh.baseline.exact_time_s)
    late = fresh.draws_of(_chosen(fresh.graph, plain.way))[0] > (1.0 + slowdown) * fresh.baseline_draws[0]
    assert late.mean() > 0.3, "without errors in mind, plans are late about every other time"


def test_plans_for_stragglers_are_done_in_time_as_often_as_promised():
    profile = _profile(0.004)
    settings = [Setting(2000.0 - 100.0 * each) for each in range(CLOCKS)]
    labelled = {
        key: choice([(time_s, energy_j, settings[cast("int", label)]) for time_s, energy_j, label in listed_ways(each)])
        for key, each in profile.ways.items()
    }
    made = plan_pipeline(replace(profile, ways=labelled), SCHEDULE)
    found = list(frontier_rungs(made, 5))
    plan = with_rungs(made, found).plan
    rungs = Rungs(plan)
    fresh = PipelineDraws.of(SCHEDULE, made.profile, made.graph, seed=1000)
    own_s = fresh.draws_of(fresh.chosen(made.solved))[0]
    late = []
    for each in found:
        rung = next(r for r in plan.rungs if r.within_s == each.within_s)
        done = fresh.draws_of(fresh.chosen(each.solved))[0] / own_s
        late.append((done > rung.sure_s / made.solved.time_s * (1 + 1e-9)).mean())
        assert rung.time_s <= rung.sure_s < 1.02 * rung.time_s
    assert 0.03 < max(late) <= 0.071  # both were found by 2,000 draws: standard error 0.7 %
    own = plan.rungs[rungs.own]
    assert own.sure_s == own.time_s == plan.predicted.time_s
    slow = plan.rungs[-1]
    assert slow.sure_s > slow.time_s and rungs.within(0.5 * (slow.time_s + slow.sure_s)) < len(rungs) - 1


def test_more_confidence_costs_energy():
    profile = _profile(0.004)
    spent = [keep_with_confidence(SCHEDULE, profile, confidence=each).solved.energy_j for each in (0.6, 0.95, 0.999)]
    assert spent[0] < 1.0005 * spent[1]
    assert spent[1] < spent[2]


def test_without_errors_nothing_is_given_away():
    profile = _profile(0.0)
    made = keep_with_confidence(SCHEDULE, profile, max_slowdown=0.02)
    graph = pipeline_graph(SCHEDULE, profile)
    best = graph.least_energy(1.02 * PipelineDraws.of(SCHEDULE, profile, graph).baseline.time_s)
    assert made.probability == 1.0
    assert made.solved.energy_j == pytest.approx(best.energy_j, rel=1e-4)  # the searches may differ in effort


def test_draws_are_longest_paths():
    profile = _profile(0.01)
    graph = pipeline_graph(SCHEDULE, profile)
    draws = PipelineDraws.of(SCHEDULE, profile, graph, seed=3)
    chosen = np.random.default_rng(0).integers(0, CLOCKS, len(graph))
    times, energies = draws.draws_of(chosen)
    keys = list(profile.ways)
    for draw in (0, 7):
        drawn = {
            key: choice([
                (t + profile.errors.ways[key].time_s[way] @ draws.errors[:, draw], e, way)
                for way, (t, e) in enumerate(zip(groups.time_s, groups.energy_j, strict=True))
            ])
            for key, groups in ((key, frontier.alternatives[0].groups) for key, frontier in profile.ways.items())
        }  # fmt: skip
        there = pipeline_graph(SCHEDULE, replace(profile, ways=drawn, errors=None))
        way = [
            next(w for w, point in enumerate(there.ways(kind)) if point.options[0] == taken)
            for kind, taken in zip(there.kind.tolist(), chosen.tolist(), strict=True)
        ]
        plan = there.plan(np.array(way))
        assert times[draw] == pytest.approx(plan.time_s)
        assert energies[draw] == pytest.approx(plan.energy_j)
    assert len(keys) == 6


@pytest.mark.slow
def test_a_straggler_leaves_room_for_errors():
    profile = _profile(0.004)
    usual_s = PipelineDraws.of(SCHEDULE, profile, pipeline_graph(SCHEDULE, profile)).baseline.time_s
    made = keep_with_confidence(SCHEDULE, profile, until_s=1.1 * usual_s)
    assert made.probability >= 0.95
    assert made.solved.time_s < 1.1 * usual_s
    assert made.solved.lasts_s == pytest.approx(1.1 * usual_s)
    assert made.solved.energy_j < keep_with_confidence(SCHEDULE, profile).solved.energy_j + 3 * 90.0 * 0.1 * usual_s


def test_what_cannot_be_promised_is_refused():
    profile = _profile(0.004)
    with pytest.raises(InfeasibleError):
        keep_with_confidence(SCHEDULE, profile, max_slowdown=-0.01)
    with pytest.raises(BadInputError, match="does not say how noisy"):
        keep_with_confidence(SCHEDULE, replace(profile, errors=None))
    with pytest.raises(BadInputError, match="above 0"):
        keep_with_confidence(SCHEDULE, profile, confidence=1.0)


def _chosen(graph, way):
    return np.array([graph.ways(k)[w].options[0] for k, w in zip(graph.kind.tolist(), way.tolist(), strict=True)])

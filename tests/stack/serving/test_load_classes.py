"""Classes on one engine, against a plain search over the runs of the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.bounded_means import Bound
from wastenot.setting import Setting
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.load_classes import engine_load
from wastenot.stack.serving.loads import LogNormal, poisson
from wastenot.stack.serving.profile_file import EngineProfile
from wastenot.stack.serving.simulation.policy import Fixed
from wastenot.stack.serving.simulation.simulate import simulate
from wastenot.stack.serving.tables import EngineTables, OutsideProfileError

DEADLINES = Deadlines(ttft_s=(0.5,), prompt_below=(), tbt_s=0.06)
BATCHES = (6, 32)


def engine(gpus):
    clocks = np.array([1000.0, 1500.0, 2000.0])
    tokens, past = np.array([1.0, 4096.0]), np.array([0.0, 4096.0])
    batches, contexts = np.array([1.0, 32.0]), np.array([1.0, 8192.0])
    speed = gpus**0.7
    prefill = (2000.0 / clocks)[:, None, None] * np.ones((3, 2, 2)) * (0.01 + 5e-5 * tokens)[None, :, None] / speed
    decode = (1.2 - clocks / 1e4)[:, None, None] * np.ones((3, 2, 2)) * (0.02 + 3e-4 * batches)[None, :, None] / speed
    power = gpus * np.array([180.0, 250.0, 400.0])[:, None, None]
    tables = EngineTables(
        tuple(Setting(core_mhz=float(clock)) for clock in clocks),
        tokens, past, prefill, prefill * power, batches, contexts, decode, decode * power,
        np.full(3, 60.0 * gpus), "fitted", "measured",
    )  # fmt: skip
    return Engine(tables, 4000, most_running=32, most_step_tokens=512, gpus=gpus)


@pytest.fixture(scope="module")
def served():
    requests = poisson(6.0, 60.0, LogNormal(400, 0.9, most=2000), LogNormal(40, 0.6), seed=11)
    short = requests.prompt_tokens < 400
    profile = EngineProfile((engine(1), engine(2)))
    load = engine_load(profile, requests, {"short": short, "long": ~short}, batches=BATCHES, deadlines=DEADLINES)
    runs = [
        (each.gpus, setting, batch, simulate(requests, replace(each, most_running=batch), Fixed(index), deadlines=DEADLINES))
        for each in profile.engines
        for index, setting in enumerate(each.tables.settings)
        for batch in BATCHES
    ]
    return load, requests, short, runs


@pytest.mark.parametrize(
    ("p99_s", "late", "mean_s"),
    [(90.0, 1.0, 90.0), (9.0, 0.6, 9.0), (0.25, 0.01, 0.12), (0.1, 0.0, 0.06), (0.02, 0.0, 0.1), (0.5, 0.0, 0.01)],
)
def test_the_least_energy_is_that_of_a_search_over_all_runs(served, p99_s, late, mean_s):
    load, requests, short, runs = served
    kept = []
    for gpus, setting, batch, run in runs:
        ttft = run.first_token_s - requests.arrival_s
        if (
            np.percentile(ttft[short], 99) <= p99_s
            and 1 - run.attainment(DEADLINES) <= late + 1e-12
            and ttft.mean() <= mean_s
        ):
            kept.append((run.total_energy_j / len(requests), (gpus, setting, batch)))
    bounds = [Bound("ttft p99", p99_s, "short"), Bound("late", late), Bound("ttft", mean_s)]
    if not kept:
        with pytest.raises(InfeasibleError):
            load.least_energy(bounds)
        return
    found = load.least_energy(bounds)
    assert found.energy_j == pytest.approx(min(kept)[0])
    (way,) = set(found.choices.values())
    assert (way.gpus, way.setting, way.most_running) == min(kept, key=lambda each: each[0])[1]


def test_degree_clock_and_batch_all_matter(served):
    load, *_ = served
    asked = [(90.0, 1.0), (9.0, 0.6), (0.25, 0.01), (0.1, 0.0)]
    ways = [
        load.least_energy([Bound("ttft p99", p99_s, "short"), Bound("late", late)]).choices["long"] for p99_s, late in asked
    ]
    assert len(set(ways)) == len(asked) and {way.gpus for way in ways} == {1, 2}
    assert all(way.most_running == 32 for way in ways)  # the smaller batch keeps requests waiting here
    with pytest.raises(InfeasibleError, match="the least ttft p99 of short is"):
        load.least_energy([Bound("ttft p99", 0.02, "short")])


def test_the_pareto_set_is_over_degrees_clocks_and_batches(served):
    load, requests, _, runs = served
    energy = np.array([run.total_energy_j / len(requests) for *_, run in runs])
    wait = np.array([(run.finish_s - requests.arrival_s).mean() for *_, run in runs])
    best = sorted(
        (w, e)
        for w, e in zip(wait, energy, strict=True)
        if not ((wait <= w) & (energy <= e) & ((wait < w) | (energy < e))).any()
    )
    listed = load.frontier("e2e").pareto()
    assert [each.time_s for each in listed] == pytest.approx(sorted({w for w, _ in best}))
    assert len({each.choices[0].gpus for each in listed}) == 2


def test_what_cannot_be(served):
    _, requests, short, _ = served
    profile = EngineProfile((engine(1),))
    with pytest.raises(BadInputError, match="exactly one class"):
        engine_load(profile, requests, {"short": short, "all": np.ones(len(requests), dtype=bool)})
    narrow = replace(engine(1), tables=replace(engine(1).tables, context_tokens=np.array([1.0, 2.0])))
    with pytest.raises(OutsideProfileError):
        engine_load(EngineProfile((narrow,)), requests, {"short": short, "long": ~short})

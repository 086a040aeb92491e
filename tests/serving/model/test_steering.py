from __future__ import annotations

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.steering import DEFAULT_POLICIES, steer
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

DEADLINES = Deadlines(ttft_s=(0.3,), prompt_below=())
TRACE = poisson(2.0, 200.0, LogNormal(300, 0.8, most=2000), LogNormal(30, 0.5), seed=6)


def test_policies_run_beside_each_other_on_the_same_requests(three_clocks: Engine) -> None:
    found = steer(three_clocks, TRACE, step_tokens=512, deadlines=DEADLINES)
    assert tuple(run.name for run in found.runs) == DEFAULT_POLICIES
    assert found.requests is TRACE
    greatest = simulate(TRACE, three_clocks, Fixed(), deadlines=DEADLINES)
    assert found.runs[0].result.energy_j == pytest.approx(greatest.total_energy_j)
    assert found.saved(found.runs[0]) == 0.0
    for run in found.runs[1:]:
        assert found.saved(run) == pytest.approx(1 - run.served.total_energy_j / greatest.total_energy_j)
    assert found.rate_per_s == pytest.approx(2.0, rel=0.15)


def test_a_load_is_a_share_of_what_the_greatest_clock_takes(three_clocks: Engine) -> None:
    found = steer(three_clocks, TRACE, load=0.5, step_tokens=512, policies=("fixed",), deadlines=DEADLINES)
    assert found.capacity is not None
    assert found.rate_per_s == pytest.approx(0.5 * found.capacity.rate_per_s, rel=0.12)
    assert [run.name for run in found.runs] == ["greatest", "fixed"]
    assert all(run.result.attainment >= 0.99 for run in found.runs)
    full = steer(three_clocks, TRACE, load=1.3, step_tokens=512, policies=(), deadlines=DEADLINES)
    assert full.runs[0].result.attainment < 0.99


def test_the_budget_of_a_step_is_chosen_where_none_is_given(three_clocks: Engine) -> None:
    trace = poisson(2.0, 30.0, LogNormal(300, 0.8, most=2000), LogNormal(30, 0.5), seed=7)
    found = steer(three_clocks, trace, rate_per_s=1.0, policies=(), deadlines=DEADLINES)
    assert found.engine.most_step_tokens in (128, 256, 512, 1024, 2048)
    assert len(found.requests) < len(trace)


def test_predictions_are_off_as_asked(three_clocks: Engine) -> None:
    deadlines = Deadlines(ttft_s=(0.3,), prompt_below=(), end_to_end_s=3.0)
    runs = [
        steer(
            three_clocks,
            TRACE,
            step_tokens=512,
            policies=("throttllem",),
            deadlines=deadlines,
            length_error=error,
            seed=seed,
        )
        for error, seed in ((0.0, 0), (0.0, 1), (1.0, 0), (1.0, 1))
    ]
    energies = [run.runs[1].result.energy_j for run in runs]
    assert energies[0] == energies[1]
    assert energies[2] != energies[3]


def test_what_contradicts_itself_is_refused(three_clocks: Engine) -> None:
    for options, says in (
        ({"load": 0.5, "rate_per_s": 2.0}, "give only one of them"),
        ({"load": 0.0}, "`load` (0) must be above 0"),
        ({"load": 50.0}, "`load` (50) must be above 0 and at most 2 (200 %)"),
    ):
        with pytest.raises(BadInputError) as raised:
            steer(three_clocks, TRACE, **options)  # type: ignore[arg-type]
        assert says in str(raised.value).replace("load (", "`load` (")
    none = np.array([], dtype=np.intp)
    with pytest.raises(BadInputError, match="no requests"):
        steer(three_clocks, Requests(np.array([]), none, none))

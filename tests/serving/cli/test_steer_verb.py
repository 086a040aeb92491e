"""``wastenot serve simulate``: policies beside each other on a trace."""

import json

import numpy as np
import pytest

from wastenot.core.setting import Setting
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.profile_file import EngineProfile, write_engine


@pytest.fixture
def served(wastenot, tmp_path):
    """An engine at two clocks, and a trace of two minutes."""
    clocks = np.array([1000.0, 2000.0])
    tokens, past = np.array([1.0, 4096.0]), np.array([0.0, 4096.0])
    batches, contexts = np.array([1.0, 64.0]), np.array([1.0, 8192.0])
    prefill = (2000.0 / clocks)[:, None, None] * np.ones((2, 2, 2)) * (0.008 + 3e-5 * tokens)[None, :, None]
    decode = np.ones((2, 2, 2)) * (0.02 + 1e-4 * batches)[None, :, None]
    power = np.array([150.0, 400.0])[:, None, None]
    tables = EngineTables(
        tuple(Setting(core_mhz=float(clock)) for clock in clocks),
        tokens, past, prefill, prefill * power, batches, contexts, decode, decode * power,
        np.full(2, 60.0), "fitted", "measured",
    )  # fmt: skip
    write_engine(
        EngineProfile((Engine(tables, 4000, most_running=64, model="tiny", device="toy"),)), tmp_path / "engine.json"
    )
    random = np.random.default_rng(1)
    lines = [f"{at:.3f},{random.integers(20, 900)},{random.integers(2, 60)}" for at in np.sort(random.uniform(0, 120, 200))]
    (tmp_path / "trace.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    return wastenot


GIVEN = ("serve", "simulate", "engine.json", "--trace", "trace.csv", "--step-tokens", "1024")


def test_savings_are_shown_beside_attainment(served):
    ran = served(*GIVEN)
    assert ran.code == 0, ran.err
    assert "tiny on toy: 200 requests of trace.csv" in ran.out and "(simulated, on measured steps)" in ran.out
    assert all(name in ran.out for name in ("maximum clock", "fixed clock,", "throttLL'eM", "GreenLLM", "Deadlines"))


def test_the_document_has_each_policy(served):
    ran = served(
        *GIVEN, "--load", "50%", "--policy", "fixed", "--switch-time", "5ms", "--ttft", "3s", "--first", "20s", "--json"
    )
    document = json.loads(ran.out)
    assert document["schema"] == "wastenot.steer/1" and document["evidence"] == "measured"
    assert document["switch_s"] == 0.005 and document["step_tokens"] == 1024
    assert document["rate_per_s"] == pytest.approx(0.5 * document["capacity_per_s"], rel=0.1)
    greatest, fixed = document["policies"]
    assert greatest["name"] == "greatest" and greatest["saved"] == 0.0 and greatest["mean_core_mhz"] == 2000.0
    assert fixed["saved"] == pytest.approx(1 - fixed["energy_j"] / greatest["energy_j"]) and fixed["attains"] is True
    assert fixed["mean_core_mhz"] == pytest.approx(1000.0) and fixed["saved"] > 0.3


def test_deadlines_that_the_greatest_clock_does_not_keep_are_said_so(served):
    ran = served(*GIVEN, "--tbt", "21ms", "--policy", "fixed")
    assert ran.code == 0
    assert "even at the maximum clock only" in " ".join(ran.out.split())


def test_all_of_the_requests_may_be_asked_to_be_in_time(served):
    ran = served(*GIVEN, "--share", "100%", "--policy", "price", "--ttft", "3s", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["policies"][1]["attains"] is True


def test_requests_out_of_order_are_said_to_be_moved(served, tmp_path):
    header, first, second, *others = (tmp_path / "trace.csv").read_text().splitlines()
    (tmp_path / "trace.csv").write_text("\n".join([header, second, first, *others]))
    ran = served(*GIVEN, "--policy", "fixed", "--lenient")
    assert ran.code == 0 and "trace.csv: 1 request sorted into the order of arrival" in ran.err


def test_the_page_shows_the_time_line(served, tmp_path):
    pytest.importorskip("altair")
    ran = served(*GIVEN, "--policy", "price", "--policy", "oracle", "--first", "5s", "--page", "steer.html")
    assert ran.code == 0 and "steer.html: page written" in ran.err
    page = (tmp_path / "steer.html").read_text()
    assert all(text in page for text in ("serving-timeline", "Energy and deadlines by policy", "trace.csv", "oracle"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "simulate", "none.json", "--trace", "trace.csv"], "none.json"),
        (["serve", "simulate", "none.json"], "none.json: cannot be read"),
        (["serve", "simulate", "engine.json", "--trace", "none.csv"], "none.csv: cannot be read"),
        (
            [*GIVEN, "--policy", "best"],
            "--policy best: is not one of greatest, fixed, throttllem, greenllm, price, by-metrics, oracle",
        ),
        ([*GIVEN, "--load", "50%", "--rate", "3"], "give only one of them"),
        ([*GIVEN, "--rate", "0"], "--rate 0: must be above 0"),
        ([*GIVEN, "--rate", "inf"], "--rate inf: must be above 0, and finite"),
        ([*GIVEN, "--first", "0"], "--first: '0' is not a time above 0 s"),
        ([*GIVEN, "--first", "-1"], "--first: '-1' is not a time above 0 s"),
        ([*GIVEN, "--switch-time", "-1ms"], "--switch-time -0.001: must be a number of seconds, at least 0"),
        ([*GIVEN, "--switch-time", "nan"], "--switch-time nan: must be a number of seconds, at least 0"),
        ([*GIVEN, "--length-error", "nan"], "--length-error nan: must be a number of at least 0"),
        ([*GIVEN, "--seed", "-1"], "--seed: "),
        ([*GIVEN, "--ttft", "1s,2s"], "--ttft 1s,2s: give one deadline, or three"),
        ([*GIVEN, "--ttft", "soon"], "--ttft: 'soon' is not a time"),
        ([*GIVEN, "--tbt", "0"], "must be times above 0"),
        ([*GIVEN, "--tbt", "nan"], "must be times above 0"),
        ([*GIVEN, "--share", "0"], "--share 0: must be above 0 and at most 1"),
        ([*GIVEN, "--page", "engine.json"], "--page engine.json: is read; give another file"),
        ([*GIVEN, "--page", "trace.csv"], "--page trace.csv: is read; give another file"),
        ([*GIVEN, "--gpus", "8"], "--gpus 8: this profile has no such parallel degree; there are: 1"),
        *(([*GIVEN, *more], f"{more[0]}: has no effect with engine.json") for more in (["--seeds", "2"], ["--band"])),
        ([*GIVEN, "--tbt", "1ms", "--load", "50%"], "even at its maximum clock and with almost no load"),
    ],
)
def test_what_is_wrong_is_one_line(served, tmp_path, arguments, says):
    before = sorted(tmp_path.iterdir())
    ran = served(*arguments)
    assert ran.code == 2 and says in ran.err, ran.err
    assert len(ran.err.strip().splitlines()) <= 3
    assert sorted(tmp_path.iterdir()) == before

"""Runs of a scenario: what is known beforehand, what is kept, what resumes, and how policies compare."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.cluster_loads import load_of
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import class_of
from wastenot.serving.cluster.outcome import compared
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.predicted import confusion_of
from wastenot.serving.cluster.run_record import bin_of, record_of
from wastenot.serving.cluster.runs import over_processes, run_scenario, runs_of
from wastenot.serving.cluster.scenario import parse_scenario
from wastenot.serving.cluster.scenario_file import PredictorPart
from wastenot.serving.cluster.scenario_load import load_parts_of, predictor_of
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.page.cluster_words import traffic_text

ENGINE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"
TEXT = f"""
[cluster]
engines = "{ENGINE}"
hosts = 2
gpus_per_host = 4
[predictor]
right = 0.8
[[traffic]]
name = "steady"
kind = "poisson"
rate_per_s = 12
duration_s = 40.0
[[traffic]]
name = "broken"
kind = "poisson"
rate_per_s = 6
duration_s = 30.0
failures = [{{host = 1, at_s = 10.0, back_s = 15.0}}]
[run]
policies = ["single-pool", "scale-clocks"]
seeds = [0, 4]
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    return parse_scenario(TEXT.encode(), tmp_path_factory.mktemp("runs") / "mine.toml", tuple(POLICIES))


@pytest.fixture(scope="module")
def kept(scenario):
    """The records as JSON, by digest."""
    texts: dict[str, str] = {}
    run_scenario(scenario, keep=lambda run, text: texts.__setitem__(run.digest, text))
    return texts


def test_every_policy_meets_every_traffic_with_every_seed_once(scenario, kept):
    runs = runs_of(scenario)
    assert len({run.digest for run in runs}) == len(runs) == len(kept) == 8
    assert {(run.policy, run.label, run.seed) for run in runs} == {
        (policy, label, seed)
        for policy in ("single-pool", "scale-clocks") for label in ("steady", "broken") for seed in (0, 4)
    }  # fmt: skip


def test_records_agree_with_what_they_are_made_of(scenario, kept):
    for run in runs_of(scenario):
        record = record_of(kept[run.digest])
        load = load_of(scenario, scenario.parts.traffic[run.traffic], run.seed)
        assert record.requests == len(load.requests) and record.unanswered == 0
        assert record.output_tokens == load.requests.output_tokens.sum()
        assert record.energy_j == pytest.approx(sum(record.energy_by_use_j.values()))
        timeline = record.timeline
        last_s = record.end_s - timeline.bin_s * (len(timeline.power_w) - 1)
        lasted_s = np.array([*[timeline.bin_s] * (len(timeline.power_w) - 1), last_s])
        assert np.dot(timeline.power_w, lasted_s) == pytest.approx(record.energy_j, rel=1e-3)
        arrivals, missed = np.array(timeline.arrivals), np.array(timeline.missed)
        assert arrivals.sum() == record.requests and (missed <= arrivals).all()
        assert record.attainment == pytest.approx(1 - missed.sum() / record.requests)
        assert record.worst_class == pytest.approx(
            min(1 - lost / came for lost, came in zip(missed.sum(axis=0), arrivals.sum(axis=0), strict=True) if came)
        )
        assert record.failed == (record.worst_class < 0.99)
        assert 0 < record.bound_j < record.energy_j
    failed = [record_of(text) for text in kept.values() if json.loads(text)["traffic"] == "broken"]
    assert all("failed" in each.timeline.gpus and max(each.timeline.gpus["failed"]) == 4 for each in failed)


def test_what_was_kept_is_not_run_again(scenario, kept, monkeypatch):
    again: list[str] = []
    missing = runs_of(scenario)[5]
    done = {digest: text for digest, text in kept.items() if digest != missing.digest}
    records = run_scenario(scenario, done=done, keep=lambda run, text: again.append(run.digest))
    assert again == [missing.digest]
    assert records == tuple(record_of(kept[run.digest]) for run in runs_of(scenario))  # the same seed, the same numbers
    monkeypatch.setattr("wastenot.serving.cluster.runs.simulated", None)
    assert run_scenario(scenario, done=kept) == records


def test_what_ended_before_an_interruption_was_kept(scenario, monkeypatch):
    from wastenot.serving.cluster import runs

    simulated, ended = runs.simulated, []

    def until_the_third(of, run):
        if len(ended) == 2:
            raise KeyboardInterrupt
        return simulated(of, run)

    monkeypatch.setattr(runs, "simulated", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(scenario, keep=lambda run, text: ended.append(run.digest))
    assert ended == [run.digest for run in runs_of(scenario)[:2]]


@pytest.mark.slow
def test_several_processes_find_the_same(scenario, kept):
    texts: dict[str, str] = {}
    run_scenario(scenario, share=over_processes(2), keep=lambda run, text: texts.__setitem__(run.digest, text))
    assert texts == kept


def test_a_run_has_another_digest_where_anything_of_it_is_other(scenario):
    def digests(text):
        return {run.digest for run in runs_of(parse_scenario(text.encode(), scenario.path, tuple(POLICIES)))}

    mine = digests(TEXT)
    assert digests(TEXT + "# more words\n") == mine
    assert not digests(TEXT.replace("hosts = 2", "hosts = 3")) & mine
    assert not digests(TEXT + "attain = 0.9\n") & mine
    assert not digests(TEXT + "head_room = 0.9\n") & mine
    assert len(digests(TEXT.replace("rate_per_s = 12", "rate_per_s = 13")) & mine) == 4
    assert len(digests(TEXT.replace("[0, 4]", "[4]")) & mine) == 4


def test_a_record_that_is_none_is_said_so(kept):
    text = next(iter(kept.values()))
    for bad in ("[]", "{}", text.replace('"energy_j"', '"energy"', 1), text.replace('"bin_s"', '"bin"', 1)):
        with pytest.raises(ValueError, match="not a valid run"):
            record_of(bad)


def test_outcomes_pair_seeds_and_fail_with_any_of_them(scenario, kept):
    records = [record_of(kept[run.digest]) for run in runs_of(scenario)]
    steady, broken = compared(records)
    assert (steady.traffic, broken.traffic) == ("steady", "broken")
    first, clocks = steady.outcomes
    assert first.saved.least == first.saved.most == 0.0
    saved = [1 - mine.energy_j / theirs.energy_j for mine, theirs in zip(clocks.records, first.records, strict=True)]
    assert [each.seed for each in clocks.records] == [0, 4]
    assert (clocks.saved.least, clocks.saved.most) == (min(saved), max(saved))
    good = [replace(each, failed=False) for each in records]
    bad = [replace(each, failed=each.policy == "scale-clocks" and each.seed == 4) for each in good]
    cheaper = min(steady.outcomes, key=lambda each: sum(run.energy_j for run in each.records)).policy
    assert compared(good)[0].best.policy == cheaper and compared(bad)[0].best.policy == "single-pool"
    seer = [replace(each, policy="best-static", energy_j=1.0) for each in good if each.policy == "scale-clocks"]
    assert compared([*good, *seer])[0].best.policy == cheaper  # what cannot be had is not the best
    assert compared(bad)[0].outcomes[1].failed and compared([replace(each, failed=True) for each in bad])[0].best is None


def test_the_history_of_a_trace_is_not_judged(tmp_path):
    requests = poisson(5.0, 600.0, LogNormal(300, 0.5), LogNormal(50, 0.5), seed=3)
    lines = [f"{at},{prompt},{output}" for at, prompt, output in
             zip(requests.arrival_s, requests.prompt_tokens, requests.output_tokens, strict=True)]  # fmt: skip
    (tmp_path / "trace.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    head = TEXT.partition("[[traffic]]")[0]
    tail = '\n[[traffic]]\nkind = "trace"\nfile = "trace.csv"\n{more}\n[run]\npolicies = ["single-pool"]\n'

    def load(more, seed=0):
        scenario = parse_scenario((head + tail.replace("{more}", more)).encode(), tmp_path / "x.toml")
        return load_of(scenario, scenario.parts.traffic[0], seed)

    own = load("history_s = 200.0")
    shift = requests.arrival_s[0]
    after = requests.part(200.0 + shift, np.inf)
    assert own.requests.prompt_tokens.tolist() == after.prompt_tokens.tolist()
    assert len(own.known.lengths) + len(own.requests) == len(requests)
    number = class_of(own.known.lengths.prompt_tokens, own.known.lengths.output_tokens)
    assert own.known.mean_per_s * 200.0 == pytest.approx(np.bincount(number, minlength=9))
    assert (own.known.peak_per_s >= own.known.mean_per_s - 1e-12).all()
    default = load("")
    assert len(default.known.lengths) == pytest.approx(len(requests) / 6, rel=0.1)
    brought = load("history_s = 200.0\nrate_per_s = 20.0\nduration_s = 100.0")
    assert len(brought.requests) == pytest.approx(2000, rel=0.1) and brought.requests.arrival_s[-1] < 100.0
    assert brought.known.mean_per_s.sum() == pytest.approx(20.0, rel=0.15)
    assert load("history_s = 200.0\nrate_per_s = 20.5", 1).requests.arrival_s[0] >= 0
    with pytest.raises(BadInputError, match="no longer than its history; shorten history_s"):
        load("history_s = 5000.0")


CURVE = """
[[traffic]]
kind = "curve"
rates = "rates.csv"
lengths = "lengths.csv"
service = "chat"
begin_s = 1800.0
rate_per_s = 4.0
{more}
[run]
policies = ["single-pool"]
"""


def _with_curve(folder, more=""):
    rates = [f"{600 * slot},{60 + 60 * (slot // 6)}" for slot in range(12)]  # an hour at one rate, another at twice that
    (folder / "rates.csv").write_text("\n".join(["at,per_minute", *rates]))
    points = [f"chat,{field},{percent},{tokens}" for field, least in (("ContextTokens", 20), ("GeneratedTokens", 5))
              for percent, tokens in ((0, least), (50, 10 * least), (100, 50 * least))]  # fmt: skip
    (folder / "lengths.csv").write_text("\n".join(["service,field,cdf_percent,tokens", *points]))
    text = TEXT.partition("[[traffic]]")[0] + CURVE.replace("{more}", more)
    return parse_scenario(text.encode(), folder / "x.toml")


def test_synthetic_requests_follow_the_curve_and_past_days_of_it_are_known(tmp_path):
    scenario = _with_curve(tmp_path)
    load = load_of(scenario, scenario.parts.traffic[0], 5)
    assert load.duration_s == 5400.0
    hourly = np.histogram(load.requests.arrival_s, [0.0, 1800.0, 5400.0])[0] / [1800.0, 3600.0]
    assert hourly == pytest.approx([8 / 3, 16 / 3], rel=0.06)  # 4 a second over the two hours
    assert load.requests.prompt_tokens.min() >= 20 and load.requests.prompt_tokens.max() <= 1000
    known = load.known
    assert known.slot_s == 300.0 and known.forecast_per_s.shape == (18, 9)
    totals = known.forecast_per_s.sum(axis=1)
    assert totals[:6] == pytest.approx(np.full(6, 8 / 3), rel=0.2) and totals[6:] == pytest.approx(
        np.full(12, 16 / 3), rel=0.2
    )
    assert known.forecast.expected_per_s.sum(axis=1) == pytest.approx(totals, rel=0.02)
    there = known.forecast.expected_per_s > 0
    assert (known.forecast.upper_per_s[there] > known.forecast.expected_per_s[there]).all()
    assert (known.peak_per_s >= known.forecast_per_s.max(axis=0)).all()
    assert len(known.lengths) == pytest.approx(4 * 7200, rel=0.03)


def test_what_is_known_of_a_curve_is_not_what_is_judged(tmp_path):
    varied, still = (
        load_parts_of(scenario, scenario.parts.traffic[0], 5).known.forecast_per_s.sum(axis=1)
        for scenario in (_with_curve(tmp_path), _with_curve(tmp_path, "day_sigma = 0.0\nslot_sigma = 0.0"))
    )
    rates = np.repeat([8 / 3, 16 / 3], [6, 12])
    noise = np.sqrt(1 / (2 * 300 * rates))  # of counts, in the median of two days
    assert (np.abs(still / rates - 1) < 4 * noise).all()
    assert np.abs(varied / rates - 1).mean() > np.abs(still / rates - 1).mean()
    scenario = _with_curve(tmp_path)
    one, other = (load_parts_of(scenario, scenario.parts.traffic[0], seed).known.forecast_per_s for seed in (5, 6))
    assert (one != other).any()


def test_a_flash_crowd_is_served_and_not_foreseen(tmp_path):
    quiet, crowded = (
        load_of(scenario, scenario.parts.traffic[0], 5)
        for scenario in (
            _with_curve(tmp_path),
            _with_curve(tmp_path, "crowds = [{factor = 3.0, begin_s = 600.0, rise_s = 60.0, length_s = 660.0}]"),
        )
    )
    within = [np.sum((each.requests.arrival_s > 660) & (each.requests.arrival_s < 1260)) for each in (quiet, crowded)]
    assert within[1] == pytest.approx(3 * within[0], rel=0.1)
    assert (crowded.known.forecast_per_s == quiet.known.forecast_per_s).all()
    text = TEXT.replace(
        "rate_per_s = 12\nduration_s = 40.0",
        "rate_per_s = 12\nduration_s = 400.0\ncrowds = [{factor = 2.0, begin_s = 100.0, rise_s = 10.0, length_s = 110.0}]",
    )
    scenario = parse_scenario(text.encode(), tmp_path / "x.toml")
    drawn = load_of(scenario, scenario.parts.traffic[0], 0)
    counts = np.histogram(drawn.requests.arrival_s, [0, 100, 110, 210, 400])[0] / [100, 10, 100, 190]
    assert counts[[0, 2, 3]] == pytest.approx([12, 24, 12], rel=0.15)
    assert np.median(drawn.requests.prompt_tokens) == pytest.approx(600, rel=0.06)
    assert drawn.known.mean_per_s.sum() == pytest.approx(12, rel=0.1)


def test_poisson_traffic_may_come_in_bursts_that_crowds_make_denser(tmp_path):
    def drawn(more):
        text = TEXT.replace("rate_per_s = 12\nduration_s = 40.0", "rate_per_s = 12\nduration_s = 4000.0\n" + more)
        scenario = parse_scenario(text.encode(), tmp_path / "x.toml")
        return load_of(scenario, scenario.parts.traffic[0], 0)

    def variation(arrival_s):
        gaps = np.diff(arrival_s)
        return gaps.std() / gaps.mean()

    assert (drawn("burstiness = 1.0").requests.arrival_s == drawn("").requests.arrival_s).all()
    bursts = drawn("burstiness = 3.0")
    assert variation(drawn("").requests.arrival_s) == pytest.approx(1, rel=0.03)
    assert variation(bursts.requests.arrival_s) == pytest.approx(3, rel=0.08)
    assert variation(bursts.known.lengths.arrival_s) == pytest.approx(3, rel=0.08)  # and are known to come so
    crowd = "crowds = [{factor = 3.0, begin_s = 1000.0, rise_s = 1.0, length_s = 1000.0}]"
    arrival_s = drawn(f"burstiness = 3.0\n{crowd}").requests.arrival_s
    within = (arrival_s > 1001) & (arrival_s < 2000)
    assert within.sum() / 999 == pytest.approx(36, rel=0.1) and (~within).sum() / 3001 == pytest.approx(12, rel=0.1)
    assert variation(arrival_s[within]) == pytest.approx(3, rel=0.1)
    assert (np.diff(arrival_s) >= 0).all() and arrival_s[-1] <= 4000.0


def test_runs_of_a_curve_depend_on_the_content_of_its_files(tmp_path):
    first = runs_of(_with_curve(tmp_path))[0].digest
    assert runs_of(_with_curve(tmp_path))[0].digest == first
    scenario = _with_curve(tmp_path)
    (tmp_path / "lengths.csv").write_text((tmp_path / "lengths.csv").read_text().replace("50,200", "50,300"))
    text = TEXT.partition("[[traffic]]")[0] + CURVE.replace("{more}", "")
    assert runs_of(parse_scenario(text.encode(), scenario.path))[0].digest != first


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("begin_s = 1800.0", "begin_s = 9000.0", r"traffic\[1\]: begin_s: the curve has only 7200 s"),
        ('rates = "rates.csv"', 'rates = "none.csv"', r"traffic\[1\]\.rates: .*none\.csv: cannot be read"),
        ('lengths = "lengths.csv"', 'lengths = "none.csv"', r"traffic\[1\]\.lengths: .*none\.csv: cannot be read"),
        ('service = "chat"', 'service = "code"', r"traffic\[1\]: .*lengths\.csv"),
        ('rates = "rates.csv"', 'rates = "lengths.csv"', r"traffic\[1\]: .*lengths\.csv:2"),
        ("begin_s = 1800.0", "crowds = [{factor = 0.5, begin_s = 1.0, length_s = 90.0}]", r"crowds\[1\]\.factor"),
        ("begin_s = 1800.0", "crowds = [{factor = 2.0, begin_s = 1.0, length_s = 9.0}]", "must be at least rise_s"),
    ],
)  # fmt: skip
def test_a_curve_that_cannot_be_followed_is_said_so(tmp_path, old, new, says):
    _with_curve(tmp_path)
    text = TEXT.partition("[[traffic]]")[0] + CURVE.replace("{more}", "").replace(old, new)
    with pytest.raises(BadInputError, match=says):
        parse_scenario(text.encode(), tmp_path / "x.toml")


def test_a_trace_that_cannot_be_read_names_scenario_and_file(tmp_path):
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.0,12,\n")
    text = TEXT.replace("[run]", '[[traffic]]\nkind = "trace"\nfile = "trace.csv"\n[run]')
    with pytest.raises(BadInputError, match=r"x\.toml: traffic\[3\]\.file: .*trace\.csv:2: 'output_tokens'"):
        parse_scenario(text.encode(), tmp_path / "x.toml")


def test_the_predictor_of_a_scenario_is_as_stated():
    lengths = poisson(200.0, 100.0, LogNormal(300, 0.5), LogNormal(180, 1.0), seed=3)
    assert predictor_of(PredictorPart(), lengths, 0) is None
    assert predictor_of(PredictorPart(right=0.7), lengths, 0).confusion.tolist() == confusion_of(0.7).tolist()
    rows = ((0.5, 0.25, 0.25), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    assert predictor_of(PredictorPart(confusion=rows), lengths, 0).confusion.tolist() == [list(row) for row in rows]


def test_time_lines_have_round_bins():
    assert [bin_of(each) for each in (40.0, 600.0, 3600.0, 86_400.0, 604_800.0)] == [1.0, 5.0, 30.0, 600.0, 3600.0]


def test_prefixes_in_a_cache_are_not_prefilled_again(tmp_path):
    lines = [{"timestamp": 400 * at, "input_length": 2000, "output_length": 20, "hash_ids": [at % 8, 8, 9, 100 + at]}
             for at in range(120)]  # fmt: skip
    (tmp_path / "mooncake.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tail = '\n[[traffic]]\nname = "{name}"\nkind = "trace"\nfile = "mooncake.jsonl"\nhistory_s = 8.0\n{more}\n'
    text = TEXT.partition("[[traffic]]")[0] + tail.format(name="whole", more="")
    text += tail.format(name="cached", more="prefix_blocks = 1000") + '[run]\npolicies = ["single-pool"]\n'
    scenario = parse_scenario(text.encode(), tmp_path / "x.toml", tuple(POLICIES))
    whole, cached = run_scenario(scenario)
    assert whole.cached_tokens == 0 and whole.prompt_tokens == cached.prompt_tokens == 100 * 2000
    assert cached.cached_tokens == 100 * 3 * 512  # all eight first blocks were in the history
    assert cached.ttft_p99_s[2] < 0.5 * whole.ttft_p99_s[2]
    assert cached.bound_j < whole.bound_j and cached.energy_j < whole.energy_j
    assert "77\N{NO-BREAK SPACE}% of prompt tokens in a prefix cache" in traffic_text(scenario, compared([cached])[0])

"""A scenario is read with all it names, and what is wrong in it is said by file, key and remedy."""

from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.model import Failure, Router
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.scenario import example, parse_scenario, read_scenario

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "data" / "serving" / "llama-8b-sim-h200.json"
LARGE = ROOT / "data" / "serving" / "llama-70b-sim-h200.json"

GOOD = f"""
[cluster]
engines = "{ENGINE}"
hosts = 2
[[traffic]]
kind = "poisson"
rate_per_s = 5
duration_s = 60.0
[run]
policies = ["first"]
"""


def test_the_example_reads_wherever_it_is(tmp_path):
    scenario = parse_scenario(example().encode(), tmp_path / "scenario.toml")
    assert scenario.cluster.hosts == 2 and scenario.cluster.gpus == 16
    assert [engine.gpus for engine in scenario.cluster.layouts] == [1]
    assert scenario.cluster.layouts[0].model == "llama-8b"
    assert scenario.router is Router.LEAST_REQUESTS and scenario.parts.run.seeds == (0, 1)
    assert scenario.cluster.changes.start_s == (35.0,) and scenario.cluster.deadlines.tbt_s == 0.1
    assert scenario.name == "llama-8b on 16 GPUs"


def test_the_example_and_the_documentation_know_all_policies():
    documented = (ROOT / "docs" / "simulate.md").read_text()
    assert set(parse_scenario(example().encode(), ROOT / "scenario.toml").parts.run.policies) <= set(POLICIES)
    assert [name for name in POLICIES if f"| `{name}` |" not in documented or name not in example()] == []


def test_what_is_left_out_has_defaults(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    scenario = read_scenario(file, ["first", "second"])
    assert scenario.name == "mine" and scenario.parts.run.seeds == (0,) and scenario.cluster.gpus_per_host == 8
    assert scenario.parts.traffic[0].label == "poisson" and scenario.parts.traffic[0].rate_per_s == 5.0


def test_layouts_come_by_rising_degree_and_may_be_chosen(tmp_path):
    text = GOOD.replace(str(ENGINE), str(LARGE)).replace("hosts = 2", "hosts = 2\ndegrees = [4, 2]\nstep_tokens = 256")
    text = text.replace("[[traffic]]", "[cluster.changes]\nstart_s = [200.0, 400.0]\n[[traffic]]", 1)
    cluster = parse_scenario(text.encode(), tmp_path / "x.toml").cluster
    assert [engine.gpus for engine in cluster.layouts] == [2, 4]
    assert {engine.most_step_tokens for engine in cluster.layouts} == {256}
    assert cluster.changes.start_s == (200.0, 400.0)


@pytest.mark.parametrize("router", list(Router))
def test_every_router_of_the_simulator_may_be_chosen(tmp_path, router):
    name = router.name.lower().replace("_", "-")
    assert parse_scenario((GOOD + f'router = "{name}"\n').encode(), tmp_path / "x.toml").router is router
    assert f"`{name}`" in (ROOT / "docs" / "simulate.md").read_text() and f'"{name}"' in example()


def test_failures_are_those_of_the_simulator(tmp_path):
    text = GOOD.replace("[run]", "failures = [{host = 1, at_s = 5.0, back_s = 9.0}, {host = 0, at_s = 20.0}]\n[run]")
    traffic = parse_scenario(text.encode(), tmp_path / "x.toml").parts.traffic[0]
    assert list(traffic.failures) == [Failure(1, 5.0, 9.0), Failure(0, 20.0)]


def test_the_digest_changes_with_what_runs_depend_on_and_with_nothing_else(tmp_path):
    def digest(text):
        return parse_scenario(text.encode(), tmp_path / "x.toml").digest

    same = [
        GOOD,
        GOOD + "seeds = [1, 2]\n",
        '# words\nname = "x"\n' + GOOD,
        GOOD.replace("rate_per_s = 5", "rate_per_s = 6"),
    ]
    assert len({digest(text) for text in same}) == 1
    others = [
        GOOD.replace("hosts = 2", "hosts = 3"),
        GOOD.replace("[run]", "[deadlines]\ntbt_s = 0.2\n[run]"),
        GOOD.replace("[run]", "[predictor]\nright = 0.5\n[run]"),
        GOOD + 'router = "power-of-two"\n',
        GOOD.replace(str(ENGINE), str(LARGE)),
    ]
    assert len({digest(text) for text in [GOOD, *others]}) == 6


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (str(ENGINE), "none.json", "x.toml: cluster.engines: "),
        (str(ENGINE), "none.json", "none.json: cannot be read"),
        ("hosts = 2", "hosts = 0", "x.toml: cluster.hosts: Input should be greater than or equal to 1"),
        ("hosts = 2", "hosts = 2.5", "x.toml: cluster.hosts"),
        ("hosts = 2", "hosts = 2\nhost = 1", "x.toml: cluster.host: Extra inputs are not permitted"),
        ("hosts = 2", "", "x.toml: cluster.hosts: Field required"),
        ("hosts = 2", "hosts = 2\ndegrees = [3]", "cluster.degrees: no engine has 3 GPUs; these files have engines of 1"),
        ("hosts = 2", "hosts = ", "x.toml: is not TOML"),
        (str(ENGINE), str(LARGE) + '"\ngpus_per_host = 6\n#"', "cluster.gpus_per_host: an engine of 4 GPUs"),
        (f'"{ENGINE}"', f'["{ENGINE}", "{ENGINE}"]', "x.toml: cluster.engines: two engines of 1 GPUs"),
        (f'"{ENGINE}"', f'["{ENGINE}", "{LARGE}"]', "llama-70b on sim:h200 beside llama-8b on sim:h200"),
        (f'"{ENGINE}"', "[]", "x.toml: cluster.engines: names no file"),
        ("hosts = 2", "hosts = 2\nchanges = {start_s = [1.0, 2.0]}", "x.toml: cluster.changes.start_s: 2 times; give one"),
        ("rate_per_s = 5", "rate_per_s = 0", "x.toml: traffic[1].rate_per_s: Input should be greater than 0"),
        ("rate_per_s = 5", "rate_per_s = inf", "x.toml: "),
        ("rate_per_s = 5", "rate_per_s = 1e12",
         "x.toml: traffic[1].rate_per_s: Input should be less than or equal to 1000000"),
        ("duration_s = 60.0", "duration_s = 1e9", "rate_per_s: asks for 5e+09 requests"),
        ('kind = "poisson"', 'kind = "weekly"', "x.toml: traffic[1]"),
        ("duration_s = 60.0", "duration_s = 60.0\nprompt_tokens = {median = -1}", "traffic[1].prompt_tokens.median"),
        ("duration_s = 60.0", "duration_s = 60.0\nprompt_tokens = {median = 1.0, mean = 2.0}", "'mean', not both"),
        ("duration_s = 60.0", 'duration_s = 60.0\nprompt_tokens = {mean = "x"}', "'mean' and 'sigma' must be numbers"),
        ("duration_s = 60.0", "duration_s = 60.0\nprompt_tokens = {mean = -5.0}", "prompt_tokens: 'mean' must be above 0"),
        ("[run]", "failures = [{host = 7, at_s = 1.0}]\n[run]", "traffic[1].failures[1].host: there is no host 7"),
        ("[run]", "failures = [{host = 0, at_s = 3.0, back_s = 1.0}]\n[run]", "back_s: must be later than at_s"),
        ("[run]", '[[traffic]]\nkind = "trace"\nfile = "none.csv"\n[run]', "traffic[2].file: "),
        ("[run]", '[[traffic]]\nkind = "poisson"\nrate_per_s = 1\nduration_s = 1\n[run]', "two are called 'poisson'"),
        ('["first"]', '["best"]', "x.toml: run.policies[1]: 'best' is not one of first, second"),
        ('["first"]', "[]", "x.toml: run.policies: "),
        ('["first"]', '["first", "first"]', "x.toml: run: policies: 'first' appears twice"),
        ('["first"]', '["first"]\nseeds = [1, 1]', "x.toml: run: seeds: 1 appears twice"),
        ('["first"]', '["first"]\nrouter = "nearest"', "x.toml: run.router: Input should be 'least-requests'"),
        ('["first"]', '["first"]\nattain = 1.5', "x.toml: run.attain"),
        ("[run]", "[deadlines]\nttft_s = [1.0]\n[run]", "deadlines: ttft_s: needs one more deadline than"),
        ("[run]", "[deadlines]\nprompt_below = [900, 200]\n[run]", "deadlines: prompt_below: is not ascending"),
        ("[run]", "[predictor]\nright = 0\n[run]", "x.toml: predictor.right"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_file_and_key(tmp_path, old, new, says):
    assert old in GOOD
    with pytest.raises(BadInputError) as caught:
        parse_scenario(GOOD.replace(old, new).encode(), tmp_path / "x.toml", ["first", "second"])
    assert says in str(caught.value)
    assert str(tmp_path / "x.toml") in str(caught.value) and ";" in str(caught.value)


def test_lengths_may_be_given_by_their_mean(tmp_path):
    by_mean = GOOD.replace("duration_s = 60.0", "duration_s = 60.0\noutput_tokens = {mean = 200.0, sigma = 0.5}")
    (traffic,) = parse_scenario(by_mean.encode(), tmp_path / "x.toml", ["first", "second"]).parts.traffic
    drawn = traffic.output_tokens.lengths().draw(20_000, np.random.default_rng(1))
    assert float(np.mean(drawn)) == pytest.approx(200.0, rel=0.02)


def test_files_that_are_no_text_or_not_there_are_said_so(tmp_path):
    with pytest.raises(BadInputError, match=r"none.toml: cannot be read"):
        read_scenario(tmp_path / "none.toml")
    with pytest.raises(BadInputError, match="is not TOML"):
        parse_scenario(b"\xff\xfe", tmp_path / "x.toml")

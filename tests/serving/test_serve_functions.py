"""``wn.serve``: what the commands of ``wastenot serve`` do, in Python."""

import json
from pathlib import Path

import numpy as np
import pytest

import wastenot as wn
from testbed.serving_inputs import SCENARIO, SERVERS
from wastenot.serving.model.requests import Requests

ENGINE = Path(__file__).parents[2] / "data" / "serving" / "llama-8b-sim-h200.json"


def test_policies_on_one_engine_are_written_as_the_command_writes_them(wastenot, tmp_path):
    rows = "".join(f"{0.2 * at},{100 + at},20\n" for at in range(30))
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    more = {"policies": ["price"], "step_tokens": 2048}
    found = wn.serve.simulate(ENGINE, tmp_path / "trace.csv", **more)
    found.write(tmp_path / "mine.json")
    ran = wastenot("serve", "simulate", str(ENGINE), "--trace", str(tmp_path / "trace.csv"), "--policy", "price",
                   "--step-tokens", "2048", "--json")  # fmt: skip
    assert json.loads((tmp_path / "mine.json").read_text()) == json.loads(ran.out)
    requests = Requests(np.arange(30) * 0.2, np.arange(100, 130), np.full(30, 20))
    assert wn.serve.simulate(wn.read_engine(ENGINE), requests, **more).saved(found.runs[1]) == found.saved(found.runs[1])
    with pytest.raises(wn.BadInputError, match=r"^policies best: is not one of greatest"):
        wn.serve.simulate(ENGINE, requests, policies=["best"])


def test_a_scenario_is_resumed_from_a_study_and_needs_none(tmp_path):
    (tmp_path / "mine.toml").write_text(SCENARIO)
    first = wn.serve.simulate_scenario(tmp_path / "mine.toml", tmp_path / "kept.db", policies=["single-pool"])
    again = wn.serve.simulate_scenario(tmp_path / "mine.toml", tmp_path / "kept.db", policies=["single-pool"])
    assert (first.runs, first.kept, again.kept) == (1, 0, 1)
    assert again.document() == first.document()
    with pytest.raises(wn.BadInputError, match=r"policies best: .*mine\.toml has single-pool"):
        wn.serve.simulate_scenario(tmp_path / "mine.toml", policies=["best"])


def test_a_recommendation(tmp_path):
    (tmp_path / "table.csv").write_text(SERVERS)
    found = wn.serve.recommend(tmp_path / "table.csv", wn.serve.Bounds(itl_s=0.05), only=wn.serve.Only(model="small"))
    assert [each.point.max_running for each in found.chosen] == [64] and not found.unmet
    found.write(tmp_path / "found.json")
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["schema"] == "wastenot.recommend/1" and document["recommendations"][0]["batch"] == 64
    unmet = wn.serve.recommend([tmp_path / "table.csv"], wn.serve.Bounds(itl_s=0.005))
    assert not unmet.chosen and "the lowest time between tokens is 8 ms" in unmet.unmet[0].why
    with pytest.raises(wn.BadInputError, match=r"^gpu A100: not one of H100"):
        wn.serve.recommend(tmp_path / "table.csv", only=wn.serve.Only(gpu=["A100"]))


def test_what_cannot_be_controlled_is_refused():
    with pytest.raises(wn.BadInputError, match="no server is given"):
        wn.serve.control(ENGINE, {})
    with pytest.raises(wn.BadInputError, match=r"^period_s 9 s: must be"):
        wn.serve.control(ENGINE, {"http://localhost:8000": []}, period_s=9.0)
    with pytest.raises(wn.BadInputError, match=r"^stale_s 0.5 s: must be longer than period_s"):
        wn.serve.control(ENGINE, {"http://localhost:8000": []}, wn.serve.Rules(stale_s=0.5))


def test_a_server_that_is_only_watched():
    told = []
    wn.serve.control(ENGINE, {"http://127.0.0.1:9": []}, duration_s=0.1, tell=told.append)
    assert [told[0].kind, told[-1].kind] == ["began", "ended"]
    assert told[0].values == {"instances": ["http://127.0.0.1:9"], "dry_run": True}

"""What control would have saved, from the metrics that a Prometheus kept."""

import json
import re
import time
from pathlib import Path

import pytest

import wastenot as wn
from testbed.server_history import answering_prometheus, real_prometheus, scrapes, success
from wastenot.core.errors import BadInputError
from wastenot.serving.model.profile_file import read_engine

FILE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"
PROFILE = read_engine(FILE).within_known_clocks()
NAME = "gpu-1:8000"


def pages(seconds=1200.0, **more):
    return scrapes(PROFILE.engine(), round(time.time()) - 5.0, seconds, **more)


@pytest.fixture(scope="module")
def usual():
    return pages()


def replay(url, **more):
    return wn.serve.replay(PROFILE, url, hours=0.5, **more)


def test_an_hour_of_one_server(usual):
    with answering_prometheus({NAME: usual}) as url:
        found = replay(url)
    (server,) = found.servers
    assert (server.instance, server.job, server.scrapes, server.scrape_s) == (NAME, "vllm", len(usual), 15.0)
    assert 0.02 < found.saved < 0.5 and found.saved == server.saved
    assert server.covered_s == pytest.approx(sum(server.clocks.values()))
    assert 1050.0 < server.covered_s <= 1200.0
    assert server.tbt_s >= server.default_tbt_s > 0.0
    assert server.measured_tbt_s == pytest.approx(server.default_tbt_s, rel=0.5)
    assert server.kept_s > 0.9 * server.covered_s and server.changes
    assert (server.gaps, server.restarts, server.unreadable) == (0, 0, 0)
    document = found.document()
    assert document["schema"] == "wastenot.serve-replay/1" and document["servers"][0]["saved"] == server.saved


def test_the_last_tokens_are_those_of_the_history(usual):
    with answering_prometheus({NAME: usual}) as url:
        (server,) = replay(url).servers
    first, last = (float(re.search(r"generation_tokens_total\S* (\S+)", page)[1]) for _, page in (usual[0], usual[-1]))
    assert 0.9 * (last - first) <= server.output_tokens <= last - first


def test_gaps_restarts_and_nonsense_are_not_counted():
    made = pages(1800.0, restarts_at=(900.0,))
    at_s, page = made[40]
    made[40] = (at_s, re.sub(r"(vllm:num_requests_running\{[^}]*\}) \S+", r"\1 NaN", page))
    made = [each for number, each in enumerate(made) if not 80 <= number < 100]
    with answering_prometheus({NAME: made}) as url:
        (server,) = replay(url).servers
    assert (server.gaps, server.restarts, server.unreadable) == (1, 1, 1)
    assert server.covered_s < 1800.0 - 20 * 15.0
    assert any("restarted" in why for why in server.why_default) and any("no metrics" in why for why in server.why_default)


def test_servers_are_chosen(usual):
    with answering_prometheus({NAME: usual, "b:1": usual}) as url:
        with pytest.raises(BadInputError, match=r"metrics of 2 servers: b:1, gpu-1:8000; choose with --instance"):
            replay(url)
        with pytest.raises(BadInputError, match=r"c:1: Prometheus has no metrics of it in the last 0.5 h; it has b:1"):
            replay(url, instances={"c:1": None})
        both = replay(url, instances={f"http://{NAME}": 1, "b:1": None})
    assert [each.instance for each in both.servers] == [NAME, "b:1"]
    assert both.servers[0].energy_j == both.servers[1].energy_j


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({}, "no metrics of an LLM server in the last 0.5 h, such as vllm:num_requests_running"),
        ({NAME: pages(600.0, idle=True)}, "answered no requests in this time"),
        ({NAME: pages(15.0)}, "has 2 usable scrapes of it in this time, too few"),
        (
            {NAME: [(at_s, "vllm:num_requests_running 1") for at_s, _ in pages(600.0, idle=True)]},
            "0 usable scrapes.*waiting",
        ),
    ],
)
def test_histories_that_say_nothing(made, says):
    with answering_prometheus(made) as url, pytest.raises(BadInputError, match=says):
        replay(url)


@pytest.mark.parametrize(
    ("status", "text", "says"),
    [
        (404, "404 page not found", "answers 404 with something that is no answer of Prometheus"),
        (200, "<html>Grafana</html>", "no answer of Prometheus"),
        (200, "[" * 100_000, "no answer of Prometheus"),
        (200, '{"status":"success","data":{"result":{}}}', "answers with no series"),
        (200, '{"status":"success","data":{"result":[7]}}', "answers with no series"),
        (200, success("vector", [{"metric": {"instance": 7}}]), "series that have no labels"),
        (422, '{"status":"error","errorType":"execution","error":"query would load too many samples into memory"}',
         "too many samples"),
        (200, success("matrix", [{"metric": {"instance": NAME}, "values": [["x", "1"]]}]), "samples that are none"),
        (200, success("matrix", [{"metric": {"instance": NAME}, "values": [[float("nan"), "1"]]}]), "samples at no time"),
        (200, " " * (9 << 20), "more than 8 MB"),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_used(status, text, says):
    with (
        answering_prometheus({}, lambda query, at_s: (status, text)) as url,
        pytest.raises(BadInputError, match=says) as error,
    ):
        replay(url)
    assert "\n" not in str(error.value) and str(error.value).startswith(f"Prometheus at {url[7:]}: ")


def test_a_server_that_two_jobs_scrape_is_refused():
    twice = [{"metric": {"instance": NAME, "job": job}, "value": [0, "1"]} for job in "ab"]
    with (
        answering_prometheus({}, lambda query, at_s: (200, success("vector", twice))) as url,
        pytest.raises(BadInputError, match=r"is scraped by several jobs \(a, b\)"),
    ):
        replay(url)


def test_labels_cannot_act_on_a_terminal(usual):
    histories = {"a\x1b[2J": usual, "b\nc": usual}
    with answering_prometheus(histories) as url, pytest.raises(BadInputError) as error:
        replay(url)
    assert "a?[2J, b?c" in str(error.value)


def test_passwords_are_not_repeated():
    with pytest.raises(BadInputError) as error:
        replay("http://me:s3cr3t@127.0.0.1:9")
    assert "s3cr3t" not in str(error.value) and "127.0.0.1:9: " in str(error.value)


def test_as_a_command(wastenot, usual, tmp_path):
    control = ("serve", "control", str(FILE), "--hours", "0.5")
    with answering_prometheus({NAME: usual}) as url:
        ran = wastenot(*control, "--replay", url, "--out", str(tmp_path / "replay.json"))
        assert ran.code == 0 and "would have saved" in ran.out and "one every 15" in ran.out
        listed = wastenot(*control, "--replay", url, "--json")
    kept = json.loads((tmp_path / "replay.json").read_text())
    assert json.loads(listed.out)["saved"] == pytest.approx(kept["saved"], abs=0.01)
    gone = wastenot(*control, "--replay", url)
    assert gone.code == 2 and "is it there?" in gone.err and gone.err.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--replay", "localhost:9090"], "not an address; write one such as http://localhost:9090"),
        (["--replay", "http://a:1", "--hours", "100"], "at most 24"),
        (["--replay", "http://a:1", "--prometheus", "http://a:1"], "--prometheus"),
        (["--replay", "http://a:1", "--allow-clock-control"], "--allow-clock-control"),
        (["--instance", "http://a:1", "--hours", "2"], "--hours"),
    ],
)
def test_options_that_cannot_be(wastenot, more, says):
    ran = wastenot("serve", "control", str(FILE), *more)
    assert ran.code == 2 and says in ran.err


@pytest.mark.system
def test_a_real_prometheus_gives_the_same(usual, tmp_path):
    other = pages(900.0, seed=3)
    with answering_prometheus({NAME: usual, "b:1": other}) as url:
        expected = replay(url, instances={NAME: None, "b:1": None})
    with real_prometheus(tmp_path, {NAME: usual, "b:1": other}) as url:
        found = replay(url, instances={NAME: None, "b:1": None})
        with pytest.raises(BadInputError, match="2 servers: b:1, gpu-1:8000"):
            replay(url)
    for one, expected_one in zip(found.servers, expected.servers, strict=True):
        assert one.energy_j == pytest.approx(expected_one.energy_j, rel=1e-9)
        assert (one.scrapes, one.requests, one.changes) == (
            expected_one.scrapes,
            expected_one.requests,
            expected_one.changes,
        )


@pytest.mark.system
def test_a_real_prometheus_without_servers(tmp_path):
    with real_prometheus(tmp_path, {}) as url, pytest.raises(BadInputError, match="no metrics of an LLM server"):
        replay(url)

"""Servers that are not there, die, limit their rate, or end early: one line each, and what was measured is kept."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.stand_in_server import Behaviour, StandIn, virtual_server
from wastenot.core.errors import BadInputError, ServerError
from wastenot.serving.bench.loads import Ask, Lengths, Prompts, asks_of_lengths
from wastenot.serving.bench.loops import Steady
from wastenot.serving.bench.point import find, measure_point
from wastenot.serving.bench.server import Target
from wastenot.serving.bench.steady_state import MeasuredPoint

SHORT = Steady(least_s=1.0, most_s=60.0)


def load(prompts: Prompts) -> Iterator[Ask]:
    return asks_of_lengths(prompts, Lengths(50), Lengths(20))


def some(number: int) -> Any:
    return lambda prompts: (Ask(prompts.of_length(50), 20, exact=True) for _ in range(number))


def point_on(server: StandIn, wanted: int = 4, asks: Any = load, **options: Any) -> MeasuredPoint:
    return measure_point(Target(server.url, **options), asks, wanted, steady=SHORT)


@pytest.fixture(autouse=True)
def _given_up_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wastenot.serving.bench.loops._GIVE_UP_AFTER_S", 1.5)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with virtual_server() as running:
        yield running


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("typed", ["", "ftp://x", "http://", "http://host:many", "http://host:99999"])
def test_an_address_that_is_none(typed: str) -> None:
    with pytest.raises(BadInputError, match="not the address of a server; write one such as http://localhost:8000"):
        find(Target(typed))


def test_a_password_in_the_address_is_sent_and_shown_nowhere() -> None:
    with virtual_server(Behaviour(key="Basic bWU6c2VjcmV0")) as locked:
        found = find(Target(locked.url.replace("://", "://me:secret@")))
        assert found.server.url == locked.url
        assert "secret" not in repr(found)
        with pytest.raises(BadInputError, match="requires an API key") as error:
            find(Target(locked.url.replace("://", "://me:wrong@")))
        assert "wrong" not in one_line(error)


def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(BadInputError, match=r"there is no such host|refuses connections") as error:
        find(Target("http://nowhere.invalid:8000"))
    one_line(error)


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/completions"])
def test_the_address_may_be_typed_with_its_path(server: StandIn, end: str) -> None:
    assert find(Target(server.url + end)).server.url == server.url
    assert find(Target(server.url.removeprefix("http://") + end)).server.url == server.url


def test_a_model_that_is_not_served(server: StandIn) -> None:
    with pytest.raises(BadInputError, match="does not serve it; did you mean 'stand-in'"):
        find(Target(server.url, model="standin"))


def test_a_server_of_something_else(server: StandIn) -> None:
    server.behaviour.api = ()
    with virtual_server(Behaviour(api=())) as other, pytest.raises(BadInputError, match=r"does not exist \(404\)"):
        find(Target(other.url))


def test_chat_alone_is_found() -> None:
    with virtual_server(Behaviour(api=("chat",))) as other:
        assert find(Target(other.url)).server.api == "chat"


def test_a_server_that_wants_a_key() -> None:
    with virtual_server(Behaviour(key="Bearer secret")) as locked:
        with pytest.raises(BadInputError, match="requires an API key") as error:
            find(Target(locked.url, key="wrong"))
        assert "wrong" not in one_line(error)
        found = find(Target(locked.url, key="secret"))
        assert found.server.model == "stand-in"
        assert "secret" not in repr(found)


@pytest.mark.parametrize("takes", [("ignore_eos",), ("continuous_usage_stats",), ()])
def test_fields_that_a_server_refuses_are_left_out(takes: tuple[str, ...]) -> None:
    with virtual_server(Behaviour(takes=takes, usage="end")) as strict:
        point = point_on(strict)
        assert point.ended > 0
        assert not point.failed
        assert bool(point.server.exact) == ("ignore_eos" in takes)


def test_a_server_that_fails_at_once() -> None:
    with (
        virtual_server(Behaviour(fails=500)) as broken,
        pytest.raises(ServerError, match=r"fails \(500\).*out of memory"),
    ):
        find(Target(broken.url))


def test_a_server_that_begins_to_fail_ends_the_measurement_and_what_came_is_kept() -> None:
    with virtual_server(Behaviour(fails=500, fails_after=23)) as broken:
        point = measure_point(Target(broken.url), load, 8)
        assert "requests in a row failed (refused: 500: out of memory)" in point.fault
        assert point.why_unstable == point.fault
        assert point.ended == 20  # three were asked before to find out how it counts
        assert point.output_tokens == 20


def _die_in_the_middle(server: StandIn) -> None:
    """Once many requests have come."""
    while len(server.came_s) < 20:
        time.sleep(0.005)
    server.die()


def test_a_server_that_dies_ends_the_measurement_and_what_came_is_kept() -> None:
    with virtual_server() as server:
        dies = threading.Thread(target=_die_in_the_middle, args=(server,))
        dies.start()
        point = measure_point(Target(server.url), load, 4, steady=Steady(least_s=600.0))  # its end is that of the server
        dies.join()
        assert "unreachable: refuses connections" in point.fault
        assert point.ended > 4
        assert point.output_tokens > 0
        assert any("broke off" in note or "did not reach" in note for note in point.notes)


def test_a_server_that_died_before_answered_nothing() -> None:
    with virtual_server() as server:
        found = find(Target(server.url))
        server.die()
        time.sleep(0.2)
        with pytest.raises(ServerError, match=r"answered none of .* requests: unreachable: refuses connections"):
            measure_point(found, load, 4)


@pytest.mark.parametrize("usage", ["never", "end"])
def test_streams_without_usage(usage: str) -> None:
    with virtual_server(Behaviour(usage=usage)) as server:
        point = point_on(server)
        assert point.output_tokens == 20
        assert 0.0 < point.tokens_per_s < 1.5 * 4 * 20 / 0.21  # as fast as the server answers, or slower
        assert any("report no usage" in note for note in point.notes) == (usage == "never")
        assert (point.prompt_tokens is None) == (usage == "never")


def test_an_answer_cut_to_its_length_has_that_many_tokens_though_nobody_counts() -> None:
    with virtual_server(Behaviour(usage="never", tokens_per_chunk=5, gap_s=0.1)) as server:
        point = point_on(server)
        assert point.output_tokens == 20
        # Of the 15 tokens after the first chunk, and not of the three chunks; few chunks arrive together with the first.
        assert len(point.gaps_s) > 0.4 * point.tokens


def test_a_rate_limit_is_waited_for_and_said() -> None:
    with virtual_server() as server:
        found = find(Target(server.url))
        server.behaviour.limit_first = len(server.requests) + 5
        point = measure_point(found, some(40), 4)
        assert point.failed == {"limited": 5}
        assert point.ended == 40
        assert any("5 of 45 requests were rejected by the server's rate limit (429: slow down)" in n for n in point.notes)


def test_a_rate_limit_that_never_ends() -> None:
    with (
        virtual_server(Behaviour(limit_first=10**9)) as server,
        pytest.raises(BadInputError, match="limits its rate"),
    ):
        find(Target(server.url))


def test_answers_that_end_before_the_length_asked_for() -> None:
    with virtual_server(Behaviour(answer_tokens=7)) as server:
        point = point_on(server)
        assert point.output_tokens == 7
        assert any("answers ended early: 7 tokens on average instead of the 20 asked for" in note for note in point.notes)


def test_streams_that_break_off() -> None:
    with virtual_server() as server:
        found = find(Target(server.url))
        server.behaviour.cut_after = 3
        point = measure_point(found, some(12), 4, steady=SHORT)
        assert point.failed == {"cut off": 12}
        assert point.ended == 0
        assert any("12 of 12 requests broke off" in note for note in point.notes)


def test_a_server_that_runs_fewer_than_wanted_is_unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wastenot.serving.bench.steady_state.LEAST_STEADY_S", 2.0)
    with virtual_server(Behaviour(most_running=3)) as server:
        point = measure_point(Target(server.url), load, 6, steady=Steady(least_s=2.5))
        assert point.mean_running == pytest.approx(3.0, abs=0.3)
        assert "of the 6 wanted; 3.0 waited in its queue" in point.why_unstable
        assert dict(point.metrics)["vllm:num_requests_waiting"] == pytest.approx(3.0, abs=0.5)


@pytest.mark.parametrize(("most", "wanted", "running"), [(100, 4, 4.0), (100, 1, 1.0), (3, 6, 3.0), (1, 4, 1.0)])
def test_a_server_without_metrics_is_seen_from_outside(most: int, wanted: int, running: float) -> None:
    with virtual_server(Behaviour(metrics=False, most_running=most)) as server:
        point = point_on(server, wanted)
        assert not point.running_by_server
        assert 0.5 * running < point.mean_running <= 0.5 * (running + wanted)  # not those in its queue
        assert point.metrics == ()


def test_others_who_use_the_server_are_noticed() -> None:
    with virtual_server(Behaviour(others_per_s=1000.0)) as server:
        point = measure_point(Target(server.url), load, 4, steady=Steady(least_s=20.0))
        assert point.why_unstable.startswith("the server has other users")
        assert point.others_tokens == pytest.approx(1000.0 * point.steady_s, rel=0.1)


def test_whoever_is_alone_on_a_server_is_told_of_no_others() -> None:
    with virtual_server(Behaviour()) as server:
        point = measure_point(Target(server.url), load, 4, steady=Steady(least_s=20.0))
        assert point.others_tokens == 0.0 and point.why_unstable == "" and point.cached_share == 0.0


@pytest.mark.parametrize(("share", "stable"), [(0.009, True), (0.02, False)])
def test_prompts_that_the_server_has_kept_are_noticed(share: float, stable: bool) -> None:
    with virtual_server(Behaviour(cached_share=share)) as server:
        point = measure_point(Target(server.url), load, 4, steady=Steady(least_s=20.0))
        assert point.cached_share == pytest.approx(share)
        assert dict(point.metrics)["prefix_cache_hit_rate"] == pytest.approx(share)
        assert ("2.0 % of the prompts' tokens came from the server's prefix cache" in point.why_unstable) is not stable
        assert (point.why_unstable == "") is stable


def test_a_steady_state_lasts_until_prompts_and_answers_are_those_of_the_load() -> None:
    with virtual_server(Behaviour(gap_s=0.5)) as server:  # all requests run in step, and their prompts come every 10 s
        point = measure_point(Target(server.url), load, 8, steady=Steady(least_s=24.0))
        assert point.why_unstable == "" and point.first_tokens == 32 and point.balance == pytest.approx(1.0, abs=0.05)
        assert point.steady_s > 36.0 and point.ttft.p50_s is not None


def test_how_long_a_steady_state_would_have_to_last_is_told() -> None:
    with virtual_server(Behaviour(gap_s=1.0)) as server:
        point = measure_point(Target(server.url), load, 1, steady=Steady(least_s=20.0, most_s=100.0))
        assert point.first_tokens == 5 and point.steady_s == pytest.approx(100.0, abs=1.0)
        assert point.why_unstable.startswith("too short: 5 first tokens came in the 100 s of the steady state, and 30 take")
    with virtual_server(Behaviour(gap_s=1.0)) as server:
        point = measure_point(Target(server.url), load, 60, steady=Steady(least_s=10.0, most_s=10.0))
        assert point.first_tokens == 0 and "TTFT is unknown" in " ".join(point.notes)


def test_no_prompt_begins_like_one_of_an_earlier_point() -> None:
    with virtual_server(Behaviour()) as server:
        found = find(Target(server.url))
        for _ in range(2):
            measure_point(found, load, 4, steady=Steady(least_s=2.0))
        begins = [tuple(request["prompt"].split()[:4]) for request in server.requests]  # fewer than a block of a cache holds
        assert len(begins) > 50 and len(set(begins)) == len(begins)


def test_requests_that_run_out_end_the_steady_state(server: StandIn) -> None:
    point = measure_point(Target(server.url), some(20), 4, steady=Steady())
    assert point.ended == point.sent == 20
    assert point.why_unstable.startswith("the steady state lasted")
    # From the first tokens until a place of the batch finds nothing left to send.
    assert point.steady_s > 3 * 0.21
    assert 0.2 < point.end_to_end.p50_s < point.steady_s / 3


def test_fewer_requests_than_are_to_run(server: StandIn) -> None:
    point = measure_point(Target(server.url), some(3), 8, steady=Steady())
    assert point.why_unstable == "no steady state: only 3 of 8 requests had a first token"


def test_a_server_that_is_busy_before_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wastenot.serving.bench.point._PATIENCE_S", 0.5)
    with virtual_server() as server:
        server.running = 3  # requests of others, which do not end
        point = point_on(server)
        assert "the server was busy before the first request: 3 other requests ran" in point.notes


def test_requests_that_come_faster_than_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wastenot.serving.bench.steady_state.LEAST_STEADY_S", 0.5)
    monkeypatch.setattr("wastenot.serving.bench.loops._LEAST_DRAIN_S", 0.5)
    with virtual_server(Behaviour(most_running=1)) as server:

        def arriving(prompts: Prompts) -> Iterator[Ask]:
            return asks_of_lengths(prompts, Lengths(50), Lengths(20), rate_per_s=40.0)

        point = measure_point(Target(server.url), arriving, None, steady=SHORT)
        assert point.why_unstable == "requests arrive faster than they are answered: the queue keeps growing"
        assert point.ended < point.sent


def test_a_server_that_sends_requests_on() -> None:
    says = "redirects requests to https://elsewhere/; give that address"
    with virtual_server(Behaviour(moved="https://elsewhere/")) as server, pytest.raises(BadInputError, match=says):
        find(Target(server.url))

"""Operating points measured on a server that keeps to a schedule: what is measured is what it did."""

import socket
from collections.abc import Iterator

import pytest

from testbed.stand_in_server import Behaviour, StandIn, virtual_server
from wastenot.core.errors import BadInputError
from wastenot.serving.bench.loads import Ask, Lengths, Prompts, asks_of_lengths
from wastenot.serving.bench.loops import Steady
from wastenot.serving.bench.point import measure_point
from wastenot.serving.bench.server import Target
from wastenot.serving.bench.steady_state import MeasuredPoint

SHORT = Steady(least_s=1.0, most_s=5.0)


def point_on(server: StandIn, wanted: int | None = 4, **options: object) -> MeasuredPoint:
    rate = 20.0 if wanted is None else None
    output = Lengths(float(options.pop("output", 20)))  # type: ignore[arg-type]

    def load(prompts: Prompts) -> Iterator[Ask]:
        return asks_of_lengths(prompts, Lengths(100.0), output, rate_per_s=rate)

    return measure_point(Target(server.url, **options), load, wanted, steady=SHORT)  # type: ignore[arg-type]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with virtual_server(Behaviour(ttft_s=0.04, gap_s=0.02)) as running:
        yield running


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_latencies_are_those_of_the_schedule(server: StandIn, api: str) -> None:
    point = point_on(server, api=api)
    assert point.ttft.p50_s == pytest.approx(0.04)
    assert point.itl.mean_s == pytest.approx(0.02)
    assert point.end_to_end.p50_s == pytest.approx(0.04 + 19 * 0.02)
    assert point.mean_running == pytest.approx(4.0, abs=0.01)
    assert point.running_by_server
    assert point.output_tokens == 20
    assert not point.failed
    # Twenty tokens in 0.42 s from each of four places.
    assert point.tokens_per_s == pytest.approx(4 * 20 / 0.42, rel=0.1)


def test_prompts_have_the_length_that_was_asked_for(server: StandIn) -> None:
    # Nobody told the client that a word is 1.25 tokens, nor of the template's three.
    point = point_on(server)
    assert point.prompt_tokens == pytest.approx(100.0, rel=0.02)


def test_gaps_are_divided_among_the_tokens_of_a_chunk(server: StandIn) -> None:
    server.behaviour.tokens_per_chunk = 4
    for usage in ("every", "end"):
        server.behaviour.usage = usage
        point = point_on(server)
        assert point.itl.p50_s == pytest.approx(0.005)
        assert point.output_tokens == 20


def test_requests_that_come_at_a_rate(server: StandIn) -> None:
    point = point_on(server, wanted=None)
    assert point.wanted == 0
    assert point.ttft.p50_s == pytest.approx(0.04)
    # Little's law: 20 requests/s, 0.42 s each; few have come, at random.
    assert point.mean_running == pytest.approx(8.4, rel=0.5)
    assert point.why_unstable.startswith("the steady state lasted")


def test_a_server_that_is_not_there_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(BadInputError, match=r"refuses connections; is the server running"):
        measure_point(Target(address), lambda prompts: iter(()), 1)

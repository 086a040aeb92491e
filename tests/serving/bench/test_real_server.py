"""A real server, ``transformers serve``, measured by two clients at the same time: ours and OpenAI's own."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from testbed.tiny_server import tiny_server
from wastenot.serving.bench.loads import Ask, Lengths, Prompts, asks_of_lengths
from wastenot.serving.bench.loops import Steady
from wastenot.serving.bench.point import find, measure_point
from wastenot.serving.bench.server import Target
from wastenot.serving.bench.steady_state import MeasuredPoint

pytestmark = pytest.mark.slow  # a server of transformers; what is asked of servers is tested on stand-ins

PROMPT, OUTPUT = 64, 16
AGREEMENT = 0.05
BUSY_S, BUSY_AGREEMENT = 0.005, 0.6
"""How late a client may be on a machine with a core for each, and how well the two agree beyond that."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    for needed in ("torch", "transformers", "fastapi", "openai"):
        pytest.importorskip(needed)
    with tiny_server(tmp_path_factory.mktemp("tiny") / "model", hidden=512, layers=8) as running:
        yield running


@dataclass
class Second:
    """OpenAI's client, which asks for the same as ours until it is told to stop: when it sent, and when text came."""

    url: str
    model: str
    answers: list[tuple[float, list[float]]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        import openai

        client, prompts = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none"), Prompts(seed=1)
        while not self.over.is_set():
            prompt, sent = prompts.of_length(PROMPT), time.perf_counter()
            stream = client.completions.create(
                model=self.model, prompt=prompt, max_tokens=OUTPUT, temperature=0.0, stream=True
            )  # fmt: skip
            self.answers.append((sent, [time.perf_counter() for chunk in stream if chunk.choices and chunk.choices[0].text]))


def beside(url: str, model: str) -> tuple[MeasuredPoint, list[tuple[float, list[float]]]]:
    """One measurement of ours, and what the other client saw of the same time: the server answers them by turns."""
    second = Second(url, model)

    def load(prompts: Prompts) -> Iterator[Ask]:
        return asks_of_lengths(prompts, Lengths(PROMPT), Lengths(OUTPUT))

    found = find(Target(url, model=model))
    thread = threading.Thread(target=second.run)
    thread.start()
    try:
        point = measure_point(found, load, 1, steady=Steady(least_s=6.0, most_s=30.0))
    finally:
        second.over.set()
        thread.join()
    return point, [answer for answer in second.answers if point.begin_s <= answer[0] and answer[1][-1] <= point.end_s]


def test_latencies_agree_with_those_of_a_second_client(server: tuple[str, str]) -> None:
    points: list[MeasuredPoint] = []
    answers: list[tuple[float, list[float]]] = []
    for _ in range(8):  # more requests, where a busy machine delays one of the two clients and not the other
        point, theirs = beside(*server)
        points.append(point)
        answers += theirs
        ttfts, gaps = np.concatenate([each.ttfts_s for each in points]), np.concatenate([each.gaps_s for each in points])
        whole = np.average([each.end_to_end.p50_s for each in points], weights=[each.ended for each in points])
        their_gaps = np.concatenate([np.diff(arrivals) for _, arrivals in answers])
        ratios = {
            "time to the first token": np.median(ttfts) / np.median([arrivals[0] - sent for sent, arrivals in answers]),
            "time between tokens": np.mean(gaps) / np.mean(their_gaps),
            "median time between tokens": np.median(gaps) / np.median(their_gaps),
            "end to end": whole / np.median([arrivals[-1] - sent for sent, arrivals in answers]),
        }
        print({name: f"{ratio:.3f}" for name, ratio in ratios.items()}, len(ttfts), len(answers))
        if max(abs(ratio - 1.0) for ratio in ratios.values()) <= AGREEMENT:
            break
    late = float(np.median([each.client_late_s for each in points])) > BUSY_S
    busy = late or os.getloadavg()[0] > 0.9 * (os.cpu_count() or 1)
    assert ratios == {name: pytest.approx(1.0, abs=BUSY_AGREEMENT if busy else AGREEMENT) for name in ratios}
    assert not point.failed
    assert point.prompt_tokens == pytest.approx(PROMPT, abs=1)
    assert point.output_tokens == OUTPUT
    assert [note for note in point.notes if "busy" not in note] == []


def test_it_is_asked_in_a_dialect_that_it_understands(server: tuple[str, str]) -> None:
    url, model = server
    found = find(Target(url, model=model))
    # It refuses fields that OpenAI does not have, and counts at the end of a stream.
    assert dict(found.server.counts) == {"stream_options": {"include_usage": True}}
    assert found.server.exact == ()
    assert found.tokens_per_word == pytest.approx(1.0)
    assert find(Target(url, model=model, api="chat")).server.endpoint.endswith("/v1/chat/completions")

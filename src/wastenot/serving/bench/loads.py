"""Loads to keep on a server: lengths that are drawn, a trace, or a file of requests; with the name that a study keeps.

How many tokens a word of a made-up prompt has is asked of the server, whose tokenizer is not known here. Words are drawn at
random and no two prompts begin alike, not those of two runs either, so that a server's prefix cache saves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.files import read_text
from wastenot.serving.model.requests import Requests

_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea body information back parent face others
level office door health person art war history party result change morning reason research girl guy moment air teacher
force education foot boy age policy music market sense nation plan college interest death course someone experience
behind effect use class control care field development role effort rate heart drug show leader light voice wife police
mind price report decision son view relationship town road arm difference value building action model season society tax
director position player record paper space ground form event official matter center couple site project activity star
table need court oil situation cost industry figure street image phone data picture
""".split()  # noqa: SIM905
_POOL = 1 << 16


class Prompts:
    """Texts of random words.

    Args:
        tokens_per_word: of the server's tokenizer, on average.
        tokens_beside: of each prompt that are not of its words, such as a chat's template.
        seed: of the words; by default others each time.
    """

    def __init__(self, tokens_per_word: float = 1.0, tokens_beside: float = 0.0, *, seed: int | None = None) -> None:
        self.tokens_per_word = tokens_per_word
        self.tokens_beside = tokens_beside
        self._rng = np.random.default_rng(seed)
        self._pool = [_WORDS[index] for index in self._rng.integers(0, len(_WORDS), _POOL)]

    def of_words(self, words: int) -> str:
        """A text of a number of words."""
        start = int(self._rng.integers(0, _POOL))
        turned = self._pool[start : start + words]
        while len(turned) < words:
            turned = turned + self._pool[: words - len(turned)]
        # Two prompts may start at the same place of the pool: their first words are drawn anew.
        first = [_WORDS[index] for index in self._rng.integers(0, len(_WORDS), min(4, words))]
        return " ".join([*first, *turned[len(first) :]])

    def of_length(self, tokens: int) -> str:
        """A text of about a number of tokens."""
        return self.of_words(max(round((tokens - self.tokens_beside) / self.tokens_per_word), 1))


_LARGEST_CV = 10.0

Api = Literal["completions", "chat"]
"""Which of the two requests are for that stream texts."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Attributes:
        content: the prompt, or the messages of a chat.
        output_tokens: most tokens of the answer; ``None`` leaves it to the server.
        exact: whether the answer is to be that long, whatever the model would say.
        prompt_tokens: the prompt was meant to have; ``None`` where it came as it is.
        arrival_s: since the beginning of an open loop.
    """

    content: str | tuple[dict[str, Any], ...]
    output_tokens: int | None
    exact: bool = False
    prompt_tokens: int | None = None
    arrival_s: float | None = None

    def at(self, arrival_s: float) -> Ask:
        """The same request, arriving at some time."""
        return replace(self, arrival_s=arrival_s)


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths in tokens: log-normal, or all the same.

    Attributes:
        mean: of the lengths.
        cv: standard deviation divided by the mean; 0 for lengths that are all the same.
    """

    mean: float
    cv: float = 0.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.mean < float("inf"):
            raise BadInputError(f"a mean length of {self.mean:g} tokens: must be a number of at least 1")
        if not 0.0 <= self.cv <= _LARGEST_CV:
            raise BadInputError(f"lengths that vary by {self.cv:g}: must be from 0 to {_LARGEST_CV:g} times their mean")

    @property
    def label(self) -> str:
        """As people write it."""
        return f"{self.mean:g}" + (f" ± {100.0 * self.cv:g} %" if self.cv else "")

    def draw(self, rng: np.random.Generator) -> int:
        """One length, at least 1."""
        if self.cv == 0.0:
            return round(self.mean)
        sigma2 = float(np.log1p(self.cv**2))
        return max(round(float(rng.lognormal(np.log(self.mean) - 0.5 * sigma2, np.sqrt(sigma2)))), 1)


def asks_of_lengths(
    prompts: Prompts, prompt: Lengths, output: Lengths, *, rate_per_s: float | None = None, seed: int = 0
) -> Iterator[Ask]:
    """Requests of random lengths, without end.

    Args:
        prompts: to take texts from.
        prompt: lengths of prompts.
        output: lengths of answers.
        rate_per_s: of Poisson arrivals, for an open loop; ``None`` for a closed one.
        seed: of the lengths and arrivals.
    """
    rng = np.random.default_rng(seed)
    arrival = 0.0
    while True:
        tokens = prompt.draw(rng)
        if rate_per_s is not None:
            arrival += float(rng.exponential(1.0 / rate_per_s))
        when = None if rate_per_s is None else arrival
        yield Ask(prompts.of_length(tokens), output.draw(rng), exact=True, prompt_tokens=tokens, arrival_s=when)


def asks_of_trace(prompts: Prompts, trace: Requests, *, repeated: bool = False) -> Iterator[Ask]:
    """The requests of a trace, each with a made-up prompt of its length.

    Args:
        prompts: to take texts from.
        trace: lengths and arrivals.
        repeated: begin again at its end: for a closed loop, which pays no heed to arrivals.
    """
    indices: Iterable[int] = range(len(trace))
    for index in cycle(indices) if repeated else indices:
        tokens = int(trace.prompt_tokens[index])
        yield Ask(
            prompts.of_length(tokens), int(trace.output_tokens[index]), exact=True, prompt_tokens=tokens,
            arrival_s=float(trace.arrival_s[index]),
        )  # fmt: skip


def read_asks(path: Path) -> list[Ask]:
    """Requests of a file of JSON lines, each as OpenAI's servers take it.

    A line has ``prompt`` (a text) or ``messages`` (of a chat), perhaps ``max_tokens`` and ``arrival_s``; other fields are
    left out.

    Raises:
        BadInputError: it cannot be read; the text names the line.
    """
    lines = read_text(path, "give requests as JSON lines").splitlines()
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    found = [_ask(line, f"{path}:{number}") for number, line in numbered]
    if not found:
        raise BadInputError(f"{path}: holds no requests; write one JSON object per line, with a 'prompt' or 'messages'")
    return found


def _ask(line: str, where: str) -> Ask:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInputError(f"{where}: not JSON, or cut off; write one JSON object per line") from None
    if not isinstance(fields, dict) or ("prompt" in fields) == ("messages" in fields):
        raise BadInputError(f"{where}: must be an object with either a 'prompt' or 'messages'")
    content = fields.get("prompt", fields.get("messages"))
    if "messages" in fields:
        if not isinstance(content, list) or not content or not all(isinstance(message, dict) for message in content):
            raise BadInputError(f"{where}: 'messages' must be a list of objects such as {{'role': 'user', 'content': '…'}}")
        content = tuple(content)
    elif not isinstance(content, str) or not content:
        raise BadInputError(f"{where}: 'prompt' must be a text that is not empty")
    output = fields.get("max_tokens", fields.get("max_completion_tokens"))
    if output is not None and (not isinstance(output, int) or isinstance(output, bool) or output < 1):
        raise BadInputError(f"{where}: 'max_tokens' {output}: must be a whole number of at least 1")
    arrival = fields.get("arrival_s")
    if arrival is not None and (not isinstance(arrival, (int, float)) or not 0.0 <= arrival < float("inf")):
        raise BadInputError(f"{where}: 'arrival_s' {arrival}: must be seconds since the start")
    return Ask(content, output, arrival_s=None if arrival is None else float(arrival))


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load.

    Attributes:
        name: that a study keeps it under.
        closed: requests for a closed loop.
        opened: requests with arrivals at a rate for an open one; with those they have, where that is ``None``.
        api: that its requests need; ``None`` for either.
    """

    name: str
    closed: Callable[[Prompts], Iterator[Ask]]
    opened: Callable[[Prompts, float | None], Iterator[Ask]]
    api: Api | None = None


def load_of_lengths(prompt: Lengths, output: Lengths, *, seed: int = 0) -> LoadPlan:
    """Requests of random lengths, without end; Poisson arrivals in an open loop."""

    def opened(prompts: Prompts, rate_per_s: float | None) -> Iterator[Ask]:
        if rate_per_s is None:
            raise BadInputError("`rate`: requests of random lengths arrive at a rate; give one")
        return asks_of_lengths(prompts, prompt, output, rate_per_s=rate_per_s, seed=seed)

    name = f"{prompt.label} in, {output.label} out"
    return LoadPlan(name, lambda prompts: asks_of_lengths(prompts, prompt, output, seed=seed), opened)


def load_of_trace(name: str, trace: Requests) -> LoadPlan:
    """The requests of a trace with made-up prompts of their lengths; begun again at its end in a closed loop.

    In an open loop at a rate, times between arrivals are scaled.
    """

    def opened(prompts: Prompts, rate_per_s: float | None) -> Iterator[Ask]:
        return asks_of_trace(prompts, _scaled(trace, rate_per_s))

    return LoadPlan(name, lambda prompts: asks_of_trace(prompts, trace, repeated=True), opened)


def load_of_file(path: Path, *, seed: int = 0) -> LoadPlan:
    """The requests of a file of JSON lines; Poisson arrivals in an open loop at a rate.

    Args:
        path: of the file.
        seed: of arrivals.

    Raises:
        BadInputError: it cannot be read.
    """
    asks = read_asks(path)
    arrivals = [ask.arrival_s for ask in asks if ask.arrival_s is not None]
    if arrivals != sorted(arrivals):
        raise BadInputError(f"{path}: requests must be in the order of their 'arrival_s'")
    chat = any(not isinstance(ask.content, str) for ask in asks)

    def opened(prompts: Prompts, rate_per_s: float | None) -> Iterator[Ask]:
        if rate_per_s is not None:
            gaps = np.random.default_rng(seed).exponential(1.0 / rate_per_s, len(asks))
            return (ask.at(float(arrival)) for ask, arrival in zip(asks, np.cumsum(gaps), strict=True))
        if len(arrivals) < len(asks):
            raise BadInputError(f"{path}: its requests have no 'arrival_s'; give a `rate`")
        return iter(asks)

    return LoadPlan(path.name, lambda prompts: iter(asks), opened, "chat" if chat else None)


def _scaled(trace: Requests, rate_per_s: float | None) -> Requests:
    """A trace at another rate: its times between arrivals are multiplied by one number."""
    if rate_per_s is None or len(trace) < 2:
        return trace
    own = (len(trace) - 1) / float(trace.arrival_s[-1] - trace.arrival_s[0])
    return Requests(trace.arrival_s * (own / rate_per_s), trace.prompt_tokens, trace.output_tokens)

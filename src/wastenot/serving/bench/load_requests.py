"""What is asked of a server: prompts, how long their answers are to be, and when they come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.serving.bench.prompts import Prompts
from wastenot.serving.model.requests import Requests

_LARGEST_CV = 10.0


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


def read_asks(path: Path, *, most: int | None = None) -> list[Ask]:
    """Requests of a file of JSON lines, each as OpenAI's servers take it.

    A line has ``prompt`` (a text) or ``messages`` (of a chat), perhaps ``max_tokens`` and ``arrival_s``; other fields are
    left out.

    Raises:
        BadInputError: it cannot be read; the text names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: byte {error.start}: is not UTF-8; give requests as JSON lines") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    found = [_ask(line, f"{path}:{number}") for number, line in islice(numbered, most)]
    if not found:
        raise BadInputError(f"{path}: holds no requests; write one JSON object a line, with a 'prompt' or 'messages'")
    return found


def _ask(line: str, where: str) -> Ask:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInputError(f"{where}: not JSON, or cut off; write one JSON object a line") from None
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
        raise BadInputError(f"{where}: 'arrival_s' {arrival}: must be seconds since the beginning")
    return Ask(content, output, arrival_s=None if arrival is None else float(arrival))

"""What the requests of a load are like, whatever their rate: kinds of them, each with its share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import COUNT, OUTPUT_BELOW, PROMPT_BELOW, class_of
from wastenot.serving.model.requests import Requests

SPREAD = 0.5
"""Standard deviation of the logarithm of lengths within a class, where only their means are known."""
_PARTS = 5
_KINDS = 128  # requests that stand for all of a load


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Kinds of requests.

    Attributes:
        prompt_tokens: of each kind; shape (kinds,).
        output_tokens: likewise; shape (kinds,).
        share: of the requests; sums to 1; shape (kinds,).

    Raises:
        BadInputError: no kinds, or shares that are none.
    """

    prompt_tokens: FloatArray
    output_tokens: FloatArray
    share: FloatArray

    def __post_init__(self) -> None:
        if not len(self.share) == len(self.prompt_tokens) == len(self.output_tokens) > 0:
            raise BadInputError("a mix needs at least one kind of request, each with a prompt, an answer and a share")
        if (self.share < 0).any() or not math.isclose(float(self.share.sum()), 1.0, rel_tol=1e-6):
            raise BadInputError(f"the shares of a mix must be at least 0 and sum to 1; these sum to {self.share.sum():g}")

    @property
    def prompt(self) -> float:
        """Mean tokens of a prompt."""
        return float(self.share @ self.prompt_tokens)

    @property
    def output(self) -> float:
        """Mean tokens of an answer."""
        return float(self.share @ self.output_tokens)

    @property
    def context(self) -> float:
        """Mean tokens in the cache of a request that decodes: long answers are there longer."""
        there = self.share * self.output_tokens
        return float(there @ (self.prompt_tokens + self.output_tokens / 2) / there.sum())

    def classes(self) -> IndexArray:
        """The class of each kind."""
        return class_of(np.rint(self.prompt_tokens).astype(np.intp), self.output_tokens)

    def draw(self, rate_per_s: float, duration_s: float, seed: int) -> Requests:
        """Requests like these that come independently of one another; for checks of what is computed from the mix."""
        random = np.random.default_rng(seed)
        count = int(random.poisson(rate_per_s * duration_s))
        kind = random.choice(len(self.share), size=count, p=self.share / self.share.sum())
        prompt, output = (
            np.maximum(np.rint(each[kind]), 1).astype(np.intp) for each in (self.prompt_tokens, self.output_tokens)
        )
        return Requests(np.sort(random.uniform(0.0, duration_s, count)), prompt, output)


def mix_of(requests: Requests) -> Mix:
    """Some of the requests, each as likely as another: evenly spaced by the length of their prompts.

    Raises:
        BadInputError: there are no requests.
    """
    if not len(requests):
        raise BadInputError("there are no requests to take a mix from")
    order = np.lexsort((requests.output_tokens, requests.prompt_tokens))
    some = order[evenly(len(order), _KINDS)]
    prompt, output = (each[some].astype(np.float64) for each in (requests.prompt_tokens, requests.output_tokens))
    return Mix(prompt, output, np.full(len(some), 1 / len(some)))


def evenly(count: int, kinds: int) -> IndexArray:
    """The middles of a number of equal parts of a row of things."""
    kinds = min(kinds, count)
    return ((np.arange(kinds) + 0.5) * count / kinds).astype(np.intp)


def mix_of_classes(rate_per_s: FloatArray, prompt_tokens: FloatArray, output_tokens: FloatArray) -> Mix:
    """From means by class: lengths within a class are taken to be log-normal and independent, and to stay in the class.

    Args:
        rate_per_s: of each class; only their ratios count; shape (9,).
        prompt_tokens: mean of each class; shape (9,).
        output_tokens: likewise; shape (9,).

    Raises:
        BadInputError: no class has a rate.
    """
    total = float(rate_per_s.sum())
    if not total > 0:
        raise BadInputError("no class has requests; a mix needs some")
    normal = NormalDist()
    parts = np.exp([SPREAD * normal.inv_cdf((part + 0.5) / _PARTS) for part in range(_PARTS)])
    parts /= parts.mean()
    prompts, outputs, share = [], [], []
    for number in range(COUNT):
        if rate_per_s[number] <= 0:
            continue
        prompt = _within(prompt_tokens[number] * parts, PROMPT_BELOW, number // 3)
        output = _within(output_tokens[number] * parts, OUTPUT_BELOW, number % 3)
        prompts.append(np.repeat(prompt, _PARTS))
        outputs.append(np.tile(output, _PARTS))
        share.append(np.full(_PARTS**2, rate_per_s[number] / total / _PARTS**2))
    return Mix(np.concatenate(prompts), np.concatenate(outputs), np.concatenate(share))


def _within(tokens: FloatArray, below: tuple[int, int], size: int) -> FloatArray:
    least, most = (1, *below)[size], (*below, math.inf)[size]
    return np.asarray(np.clip(tokens, least, most - 1))

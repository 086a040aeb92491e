"""Loads at a rate: made of a trace, or drawn at random."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.model.requests import Requests

_GOLDEN = (math.sqrt(5) - 1) / 2


def at_rate(requests: Requests, rate_per_s: float, duration_s: float, *, seed: int = 0) -> Requests:
    """A trace at another rate that still takes as long: an hour stays an hour, and its lengths stay together.

    The load is made of copies of the trace. Each copy is turned around the clock, its end coming before its beginning: copy
    ``i`` by ``i`` times the golden ratio of the duration, so that copies lie far from one another. The last copy is thinned
    at random to what is still wanted (at rates below the trace's own it is the only one). So bursts of the trace stay as
    dense as they are rather than growing with the rate, as with more users of the same kind; the load at a lower rate is
    part of that at a higher one.

    Args:
        requests: the trace.
        rate_per_s: wanted; the number of requests is at most about the square root of it off.
        duration_s: of the trace and of the load; longer than the last arrival.
        seed: of the requests that the last copy keeps.

    Raises:
        BadInputError: no requests, no rate, or a duration that the trace is longer than.
    """
    if not len(requests):
        raise BadInputError("there are no requests to make a load of")
    if not 0 < rate_per_s < math.inf:
        raise BadInputError(f"`rate_per_s` ({rate_per_s:g}) must be above 0")
    if not requests.arrival_s[-1] < duration_s < math.inf:
        raise BadInputError(
            f"`duration_s` ({duration_s:g}) must be above {requests.arrival_s[-1]:g} s, when the last one comes"
        )
    random, copies = np.random.default_rng(seed), rate_per_s * duration_s / len(requests)
    arrival, which = [], []
    for copy in range(math.ceil(copies)):
        kept = np.flatnonzero(random.random(len(requests)) < copies - copy)
        arrival.append((requests.arrival_s[kept] + duration_s * (copy * _GOLDEN % 1.0)) % duration_s)
        which.append(kept)
    at, of = np.concatenate(arrival), np.concatenate(which)
    order = np.argsort(at, kind="stable")
    cached = None if requests.cached_tokens is None else requests.cached_tokens[of[order]]
    return Requests(at[order], requests.prompt_tokens[of[order]], requests.output_tokens[of[order]], cached)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lengths whose logarithms are normally distributed, as those of prompts and answers nearly are.

    Attributes:
        median: in tokens.
        sigma: standard deviation of the logarithm; 0 for lengths that are all the same.
        most: longer ones are cut to this.
    """

    median: float
    sigma: float = 0.0
    most: int = 1 << 20

    def draw(self, count: int, random: np.random.Generator) -> IndexArray:
        """So many lengths, each at least 1."""
        drawn = np.rint(self.median * np.exp(self.sigma * random.standard_normal(count)))
        return np.clip(drawn, 1, self.most).astype(np.intp)


def poisson(rate_per_s: float, duration_s: float, prompt: LogNormal, output: LogNormal, *, seed: int = 0) -> Requests:
    """Requests that come independently of one another.

    Args:
        rate_per_s: on average.
        duration_s: of the load.
        prompt: lengths of prompts.
        output: lengths of answers.
        seed: of all that is drawn.

    Raises:
        BadInputError: a rate or duration that is not positive.
    """
    if not (0 < rate_per_s < math.inf and 0 < duration_s < math.inf):
        raise BadInputError(f"`rate_per_s` ({rate_per_s:g}) and `duration_s` ({duration_s:g}) must be above 0")
    random = np.random.default_rng(seed)
    count = int(random.poisson(rate_per_s * duration_s))
    arrival = np.sort(random.uniform(0.0, duration_s, count))
    return Requests(arrival, prompt.draw(count, random), output.draw(count, random))


def bursty(
    rate_per_s: float, duration_s: float, prompt: LogNormal, output: LogNormal, burstiness: float, *, seed: int = 0
) -> Requests:
    """Requests whose gaps are independent and gamma-distributed: in bursts, or more evenly than those of :func:`poisson`.

    Args:
        rate_per_s: on average.
        duration_s: of the load.
        prompt: lengths of prompts.
        output: lengths of answers.
        burstiness: coefficient of variation of the gaps: 1 for Poisson arrivals, more for bursts, less for even ones.
        seed: of all that is drawn.

    Raises:
        BadInputError: a rate, duration or burstiness that is not positive.
    """
    if not all(0 < each < math.inf for each in (rate_per_s, duration_s, burstiness)):
        raise BadInputError(
            f"`rate_per_s` ({rate_per_s:g}), `duration_s` ({duration_s:g}) and `burstiness` ({burstiness:g}) must be above 0"
        )
    random = np.random.default_rng(seed)
    # Begun long before the load does, so that its first moment is like any other.
    shape, before_s, mean_s = burstiness**-2, 20.0 * (1 + burstiness**2) / rate_per_s, 1 / rate_per_s
    arrival, parts = -before_s, []
    while arrival < duration_s:
        count = max(int((duration_s - arrival) * rate_per_s * 1.1), 64)
        times = arrival + np.cumsum(random.gamma(shape, mean_s / shape, count))
        parts.append(times)
        arrival = float(times[-1])
    arrival_s = np.concatenate(parts)
    arrival_s = arrival_s[(arrival_s >= 0) & (arrival_s < duration_s)]
    return Requests(arrival_s, prompt.draw(len(arrival_s), random), output.draw(len(arrival_s), random))

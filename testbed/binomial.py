"""Bounds on how often a statement may fail before it is not believed, from the binomial distribution.

A statement that holds with 95 % keeps :func:`least_hits` of independent draws except once in a thousand tests. Of 100 draws
these are 87, which a method that holds with 80 % misses 19 times in 20; of 40 they are 33, which it misses every other time.
"""

from __future__ import annotations

from scipy.stats import beta, binom

UNLIKELY = 1e-3  # probability that a method as good as it says misses a bound
ENOUGH = 100  # draws that tell 80 % from 95 %


def least_hits(draws: int, probability: float = 0.95) -> int:
    """Fewest of independent draws that hold where each holds with the given probability."""
    return int(binom.ppf(UNLIKELY, draws, probability))


def most_misses(draws: int, probability: float = 0.05) -> int:
    """Most of independent draws that miss where each misses with the given probability."""
    return draws - least_hits(draws, 1.0 - probability)


def share_bounds(hits: int, draws: int) -> tuple[float, float]:
    """The 95 % bounds (Clopper and Pearson) of the probability, where so many of independent draws held."""
    low = float(beta.ppf(0.025, hits, draws - hits + 1)) if hits else 0.0
    return low, float(beta.ppf(0.975, hits + 1, draws - hits)) if hits < draws else 1.0

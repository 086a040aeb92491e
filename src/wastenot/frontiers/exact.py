"""Sums and comparisons of times without rounding: a budget is kept or it is not."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction


def exact_sum(terms: Iterable[tuple[int, float]]) -> Fraction:
    """The sum of ``count * value`` over ``terms``, exact for the doubles given.

    A double is an integer over a power of two, so that all terms are brought to the largest such power and added as
    integers; this is far quicker than adding :class:`~fractions.Fraction` one by one.
    """
    ratios = [
        (count * numerator, denominator) for count, value in terms for numerator, denominator in (value.as_integer_ratio(),)
    ]
    common = max((denominator for _, denominator in ratios), default=1)
    return Fraction(sum(numerator * (common // denominator) for numerator, denominator in ratios), common)

"""The price of electricity."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.errors import BadInputError

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Price:
    """What a kilowatt-hour costs.

    Attributes:
        per_kwh: at least 0.
        currency: of the price, such as ``USD``.

    Raises:
        BadInputError: the price is negative or not a number.
    """

    per_kwh: float
    currency: str

    def __post_init__(self) -> None:
        if not 0.0 <= self.per_kwh < float("inf"):
            raise BadInputError(f"`price_per_kwh` {self.per_kwh}: must be a number of at least 0")

    def cost(self, energy_j: float) -> float:
        """What an energy in joules costs."""
        return energy_j / JOULES_PER_KWH * self.per_kwh

"""The price of electricity, and amounts of energy and money as people read them."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.core.errors import BadInputError
from wastenot.pages.formatting import MINUS, SPACE, number, quantity

JOULES_PER_KWH = 3.6e6
SECONDS_PER_YEAR = 8_760 * 3_600.0
_LEAST_COST = 0.001  # below which digits say nothing
_LEAST_WH = 1e-9


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

    def cost_text(self, energy_j: float) -> str:
        """What an energy in joules costs, with the currency: ``36.2 USD``; never with an exponent."""
        cost = self.cost(energy_j)
        if cost == 0.0:
            return f"0{SPACE}{self.currency}"
        if abs(cost) < _LEAST_COST:
            return f"less than {_LEAST_COST:g}{SPACE}{self.currency}"
        amount = number(cost, 3) if abs(cost) < 1e12 else f"{cost:,.0f}".replace("-", MINUS)
        return f"{amount}{SPACE}{self.currency}"


DEFAULT_PRICE = Price(0.15, "USD")
"""Of electricity, where none is given."""


def energy_text(energy_j: float) -> str:
    """An energy as electricity is sold: ``241 kWh``, or smaller units where that would be almost nothing."""
    kwh = energy_j / JOULES_PER_KWH
    if kwh == 0.0 or 1e-3 <= abs(kwh) < 1e12:
        return f"{number(kwh, 3)}{SPACE}kWh"
    if abs(kwh) >= 1e12:
        return f"{kwh:,.0f}{SPACE}kWh".replace("-", MINUS)
    if abs(kwh) * 1e3 < _LEAST_WH:
        return f"less than 1{SPACE}nWh"
    return quantity(kwh * 1e3, "Wh", 3)

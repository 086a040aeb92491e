"""Which run the headline of policies on one engine is of, and how far its saving may be off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wastenot.serving.model.band import Band, band, idle_varied
from wastenot.serving.model.engine import core_clocks_mhz

if TYPE_CHECKING:
    from wastenot.serving.model.steering import Steered, Steering

HINDSIGHT: Final = ("fixed", "oracle")
"""Policies that know the requests to come."""


def best_of(found: Steering) -> Steered:
    """The policy that saved most of those that attained what was asked; the maximum clock where no other did.

    This excludes those that know the requests to come: the fixed clock chosen in hindsight, and the oracle.
    """
    attained = [run for run in found.runs if found.attains(run) and run.name not in HINDSIGHT]
    return max(attained or found.runs[:1], key=found.saved)


def cap_of(found: Steering) -> Steered | None:
    """The run at the lowest clock throughout, where the best policy hardly leaves it: nothing else is needed then."""
    best, fixed = best_of(found), next((run for run in found.runs if run.name == "fixed"), None)
    lowest = lowest_mhz(found)
    if best is found.runs[0] or fixed is None or lowest is None or not found.attains(fixed):
        return None
    return fixed if all(stays_lowest(found, run) for run in (best, fixed)) else None


def stays_lowest(found: Steering, run: Steered) -> bool:
    """Whether a run hardly leaves the lowest clock."""
    mean, lowest = run.result.mean_core_mhz, lowest_mhz(found)
    return mean is not None and lowest is not None and mean <= 1.01 * lowest


def headline_run(found: Steering) -> Steered:
    """What the headline is of: the clock fixed in hindsight where policies do no more, else the best policy."""
    return cap_of(found) or best_of(found)


def band_of(found: Steering) -> Band | None:
    """What the headline's saving becomes with other idle power; ``None`` where nothing saves."""
    run, first, engine = headline_run(found), found.runs[0], found.engine
    if run is first:
        return None
    idle_w = engine.idle_gpu_w or 1.0
    sums = [(each.result.energy_j, each.served.energy_j["idle"] / idle_w) for each in (first, run)]
    return band(run.name, found.saved(run), idle_varied(*sums))


def lowest_mhz(found: Steering) -> float | None:
    """The lowest clock of the engine's tables; ``None`` where they name none."""
    clocks = core_clocks_mhz(found.engine)
    return None if clocks is None else float(clocks.min())

"""Forecasts of a cluster's load judged on weeks that were never looked at: errors half an hour ahead, and upper quantiles.

Two past weeks and a judged one are each varied from the digitised week (synthetic), by seeds that shaped nothing.
Controllers' view is judged: arrivals are seen each minute, and asked for is the slot of five minutes that begins half an
hour later. Slots of a day err together, so bounds are by bootstrap over weeks, 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import cast

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.serving_loads import TRACES
from benchmarks.verdict import Verdict
from wastenot.core.arrays import FloatArray
from wastenot.planning.tariff import DAY_S
from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.forecast import SLOT_S, UPPER, Past, forecast, template
from wastenot.serving.cluster.model import ClusterView
from wastenot.serving.cluster.traffic import RateCurve, SyntheticTraffic, read_curve, read_distribution, varied

KEPT = DATA / "serving" / "cluster-forecast.json"
SEEDS = range(72_007, 72_047)
"""That judge. Those below 70,000 may shape."""
VISIT_S = 60.0
AHEAD_S = 1800.0
FIRST_S = 900.0
"""From when on forecasts are judged: before, nothing was seen of the last quarter of an hour."""
_DRAWS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A week: relative errors half an hour ahead, shares that stay below, and what staying below takes.

    Attributes:
        template: mean error of the template.
        lately: of the last quarter of an hour.
        ours: of ours.
        below: share of the slots below our upper quantile.
        margin: our upper quantile above what came, on average.
        template_margin: the same of the template with a margin chosen in hindsight, which as many slots stay below.
    """

    template: float
    lately: float
    ours: float
    below: float
    margin: float
    template_margin: float


def shares() -> FloatArray:
    """Of classes, by the digitised distributions of lengths; shape (9,)."""
    lengths = [
        read_distribution(TRACES / "azure2024_week_token_cdf_digitised.csv", "conv", field)
        for field in ("ContextTokens", "GeneratedTokens")
    ]
    drawn = next(SyntheticTraffic(RateCurve(3600.0, np.array([20.0])), *lengths, seed=1).parts())
    count = np.bincount(class_of(drawn.prompt_tokens, drawn.output_tokens), minlength=COUNT)
    return np.asarray(count / count.sum())


def judged(curve: RateCurve, of_class: FloatArray, seed: int) -> Judged:
    """One week with its past."""
    random = np.random.default_rng([seed, 7])
    slots = np.arange(len(curve.rate_per_s))
    day = (slots * SLOT_S // DAY_S).astype(np.intp)

    def drawn() -> FloatArray:
        return varied(curve.rate_per_s, SLOT_S, day, random)

    before = np.concatenate([drawn(), drawn()])
    past = Past(random.poisson(before[:, None] * SLOT_S * of_class).astype(float), SLOT_S, curve.since_monday_s)
    visits = round(SLOT_S / VISIT_S)
    arrivals = random.poisson(np.repeat(drawn(), visits)[:, None] * VISIT_S * of_class)
    came = arrivals.reshape(len(slots), visits, COUNT).sum(axis=1) / SLOT_S
    usual, made = template(past, len(slots)), forecast(past, len(slots))
    demand, ahead = Demand.of(made), round(AHEAD_S / SLOT_S)
    rows = []
    for visit, arrived in enumerate(arrivals, 1):
        now_s = visit * VISIT_S
        demand.see(cast(ClusterView, SimpleNamespace(now_s=now_s, arrivals=arrived)))
        if visit % visits or now_s < FIRST_S or visit // visits + ahead >= len(slots):
            continue
        slot, then_s = visit // visits, now_s + AHEAD_S
        rows.append(
            (
                came[slot + ahead].sum(),
                usual[slot + ahead].sum(),
                demand.recent(900.0).sum(),
                demand.expected(then_s, then_s + SLOT_S).sum(),
                demand.peak(then_s, then_s + SLOT_S).sum(),
            )
        )
    total, told, lately, ours, upper = np.array(rows).T
    below = float(np.mean(total <= upper))
    return Judged(
        *(float(np.mean(np.abs(each / total - 1))) for each in (told, lately, ours)),
        below,
        float(np.mean(upper / total - 1)),
        float(np.mean(told * np.quantile(total / told, below) / total - 1)),
    )


def bounds(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean over weeks, between its 95 % bounds by bootstrap."""
    of = np.array(values)
    means = of[np.random.default_rng(0).integers(len(of), size=(_DRAWS, len(of)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(of.mean()), float(high)


def main(verdict: Verdict) -> None:
    """Judge all forecasts, and keep what came of it."""
    if not (TRACES / "azure2024_week_conv_rpm_digitised.csv").is_file():
        print(f"  skipped: no {TRACES / 'azure2024_week_conv_rpm_digitised.csv'}")
        return
    curve, of_class = read_curve(TRACES / "azure2024_week_conv_rpm_digitised.csv"), shares()
    found = [judged(curve, of_class, seed) for seed in SEEDS]
    row = {each.name: bounds([getattr(one, each.name) for one in found]) for each in fields(Judged)}
    print(f"  {len(found)} weeks (synthetic)", flush=True)
    for name, (low, mean, high) in row.items():
        print(f"    {name:16s} {mean:7.2%}  ({low:.2%} to {high:.2%})")
    verdict.at_most("our error over the template's", row["ours"][1] / row["template"][1], 0.9)
    verdict.at_most("our error over the last minutes'", row["ours"][1] / row["lately"][1], 0.9)
    verdict.at_least("slots below the upper quantile", row["below"][1], UPPER - 0.01)
    verdict.at_most("slots below it, no more than need be", row["below"][1], UPPER + 0.035)
    numbers = {name: [float(f"{each:.4g}") for each in values] for name, values in row.items()}
    keep(KEPT, {"ahead_s": AHEAD_S, "share": UPPER, "weeks": len(found)} | numbers)

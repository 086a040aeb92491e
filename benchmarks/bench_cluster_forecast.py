"""Forecasts of a cluster's load judged on weeks that were never looked at: errors half an hour ahead, and upper quantiles.

    two past weeks, a judged one      each varied from the digitised week (synthetic), by seeds that shaped nothing
    the digitised week itself         with two past weeks that are made up from it, as a scenario has them

Controllers' view is judged: arrivals are seen each minute, and asked for are the slot of five minutes that begins half an
hour later and the greatest slot until then. Slots of a day err together, so bounds are by bootstrap over weeks, 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from types import SimpleNamespace
from typing import cast

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.serving_loads import TRACES
from benchmarks.verdict import Verdict
from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import CLASSES, COUNT, NAMES
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.forecast import SLOT_S, UPPER, Past, forecast, template
from wastenot.serving.cluster.model import ClusterView
from wastenot.serving.cluster.traffic import DAY_S, RateCurve, SyntheticTraffic, read_curve, read_distribution, varied

KEPT = DATA / "serving" / "cluster-forecast.json"
SEEDS = range(72_007, 72_047)
"""That judge. Those below 70,000 may shape."""
VISIT_S = 60.0
AHEAD_S = 1800.0
FIRST_S = 900.0
"""From when on forecasts are judged: before, nothing was seen of the last quarter of an hour."""
_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Weeks:
    """Which weeks are judged: rates of the curve times a scale, with days and slots that vary so much."""

    name: str
    scale: float = 1.0
    day_sigma: float = 0.1
    slot_sigma: float = 0.05
    digitised: bool = False


WEEKS = (
    Weeks("as scenarios vary them"),
    Weeks("twice as varied", day_sigma=0.2, slot_sigma=0.1),
    Weeks("half a request a second", scale=0.011),
    Weeks("the digitised week", digitised=True),
)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A week: relative errors half an hour ahead, shares that stay below, and what staying below takes.

    Attributes:
        template: mean error of the template.
        lately: of the last quarter of an hour.
        ours: of ours.
        below: share of the slots below our upper quantile.
        span_below: share of the half hours whose greatest slot is.
        class_below: share of the slots by class, whatever was seen that day; shape (9,).
        margin: our upper quantile above what came, on average.
        template_margin: the same of the template with a margin chosen in hindsight, which as many slots stay below.
    """

    template: float
    lately: float
    ours: float
    below: float
    span_below: float
    class_below: FloatArray
    margin: float
    template_margin: float


def shares() -> FloatArray:
    """Of classes, by the digitised distributions of lengths; shape (9,)."""
    lengths = [
        read_distribution(TRACES / "azure2024_week_token_cdf_digitised.csv", "conv", field)
        for field in ("ContextTokens", "GeneratedTokens")
    ]
    drawn = next(SyntheticTraffic(RateCurve(3600.0, np.array([20.0])), *lengths, seed=1).parts())
    count = np.bincount(CLASSES.of(drawn.prompt_tokens, drawn.output_tokens), minlength=COUNT)
    return np.asarray(count / count.sum())


def judged(curve: RateCurve, weeks: Weeks, of_class: FloatArray, seed: int) -> Judged:
    """One week with its past."""
    random = np.random.default_rng([seed, 7])
    slots = np.arange(len(curve.rate_per_s))
    rates = curve.rate_per_s * weeks.scale
    day = (slots * SLOT_S // DAY_S).astype(np.intp)

    def drawn() -> FloatArray:
        return varied(rates, SLOT_S, day, random, day_sigma=weeks.day_sigma, slot_sigma=weeks.slot_sigma)

    before = np.concatenate([drawn(), drawn()])
    past = Past(random.poisson(before[:, None] * SLOT_S * of_class).astype(float), SLOT_S, curve.since_monday_s)
    true = rates if weeks.digitised else drawn()
    visits = round(SLOT_S / VISIT_S)
    arrivals = random.poisson(np.repeat(true, visits)[:, None] * VISIT_S * of_class)
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
                came[slot : slot + ahead].sum(axis=1).max(),
                demand.peak(now_s, then_s).sum(),
            )
        )
    total, told, lately, ours, upper, most, span = np.array(rows).T
    below = float(np.mean(total <= upper))
    return Judged(
        *(float(np.mean(np.abs(each / total - 1))) for each in (told, lately, ours)),
        below,
        float(np.mean(most <= span)),
        np.mean(came <= made.upper_per_s, axis=0),
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
    kept = []
    for weeks in WEEKS:
        found = [judged(curve, weeks, of_class, seed) for seed in SEEDS]
        row = {each.name: bounds([getattr(one, each.name) for one in found])
               for each in fields(Judged) if each.name != "class_below"}  # fmt: skip
        classes = np.mean([each.class_below for each in found], axis=0)
        print(f"  {weeks.name}: {len(found)} weeks (synthetic)", flush=True)
        for name, (low, mean, high) in row.items():
            print(f"    {name:16s} {mean:7.2%}  ({low:.2%} to {high:.2%})")
        print(f"    {'by class':16s} " + ", ".join(f"{name} {each:.1%}" for name, each in zip(NAMES, classes, strict=True)))
        numbers = {
            name: [float(f"{each:.4g}") for each in values] for name, values in (*row.items(), ("class_below", classes))
        }
        kept.append(asdict(weeks) | {"weeks": len(found)} | numbers)
        verdict.at_most(f"{weeks.name}: our error over the template's", row["ours"][1] / row["template"][1], 0.9)
        verdict.at_most(f"{weeks.name}: our error over the last minutes'", row["ours"][1] / row["lately"][1], 0.9)
        verdict.at_least(f"{weeks.name}: slots below the upper quantile", row["below"][1], UPPER - 0.01)
        if not weeks.digitised:  # it varies from its past less than that varies itself
            verdict.at_most(f"{weeks.name}: slots below it, no more than need be", row["below"][1], UPPER + 0.035)
        verdict.at_least(f"{weeks.name}: half hours whose greatest slot is below", row["span_below"][1], UPPER - 0.015)
        verdict.at_least(f"{weeks.name}: slots below it, in the class with the fewest", float(classes.min()), UPPER - 0.03)
    keep(KEPT, {"ahead_s": AHEAD_S, "share": UPPER, "rows": kept})

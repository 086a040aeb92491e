"""How far a cluster's headline may be off: with other idle power, and run again with other start-up, lengths, deadlines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.outcome import Comparison, Outcome
from wastenot.serving.cluster.scenario import Scenario, digest_of
from wastenot.serving.cluster.scenario_file import PredictorPart
from wastenot.serving.model.band import Band, Varied, band, idle_varied

RIGHT = 0.7
"""Fraction of answers whose kind is predicted correctly."""


def band_of(scenario: Scenario, found: Comparison) -> Band | None:
    """What the headline's saving becomes with other assumptions; ``None`` where nothing saves energy."""
    head = found.headline
    if head is None or found.objective != "energy":
        return None
    first, idle_w = found.outcomes[0], scenario.cluster.layouts[0].idle_gpu_w

    def sums(outcome: Outcome) -> tuple[float, float]:
        use = Counter[str]()
        for run in outcome.records:
            use.update(run.energy_by_use_j)
        parked_s = use["parked"] / (scenario.cluster.changes.parked_power_w or 1.0)
        return math.fsum(run.energy_j for run in outcome.records), use["idle"] / (idle_w or 1.0) + parked_s

    return band(head.policy, head.saved.mean, [*idle_varied(sums(first), sums(head)), *found.varied])


def variations(scenario: Scenario) -> dict[str, Scenario]:
    """The scenario with each assumption changed, by what was changed."""
    cluster, due, predictor = scenario.cluster, scenario.cluster.deadlines, scenario.parts.predictor
    later = replace(cluster.changes, start_s=tuple(2 * each for each in cluster.changes.start_s))
    sooner = replace(due, ttft_s=tuple(each / 2 for each in due.ttft_s), tbt_s=due.tbt_s / 2)
    found = {
        "start-up twice as long": replace(scenario, cluster=replace(cluster, changes=later)),
        "deadlines halved": replace(scenario, cluster=replace(cluster, deadlines=sooner)),
    }
    if predictor.confusion is None and predictor.right > RIGHT:
        parts = scenario.parts.model_copy(update={"predictor": PredictorPart(right=RIGHT)})
        found[f"{100 * RIGHT:.0f} % of lengths predicted"] = replace(scenario, parts=parts)
    return {what: replace(each, digest=digest_of([scenario.digest, what])) for what, each in found.items()}


def varied_runs(
    scenario: Scenario, policies: Sequence[str], beside: Callable[[Scenario], Sequence[Comparison]]
) -> list[dict[tuple[str, str], Varied]]:
    """Savings with each change by traffic and policy, from runs with the first seed.

    Args:
        scenario: that was run.
        policies: the one that savings are against, and those of headlines.
        beside: runs a scenario.
    """
    found = []
    for what, other in variations(scenario).items():
        try:
            compared = beside(other.with_run(policies=policies, seeds=scenario.parts.run.seeds[:1]))
        except BadInputError:  # no plan meets the deadlines
            compared = ()
        run = {
            (each.traffic, one.policy): Varied(what, one.saved.mean, one.failed)
            for each in compared
            for one in each.outcomes
        }
        missing = {(each.label, policy): Varied(what, None, True) for each in scenario.parts.traffic for policy in policies}
        found.append(missing | run)
    return found

"""What a policy said before the run that it keeps."""

from __future__ import annotations

from wastenot.pages.formatting import duration, number
from wastenot.serving.cluster.outcome import Outcome
from wastenot.serving.cluster.scenario import Scenario


def beforehand_text(scenario: Scenario, outcome: Outcome, traffic: str) -> str | None:
    """What a policy said before the run that it keeps, beside what came; ``None`` where it does not say."""
    said = [run.beforehand for run in outcome.records if run.beforehand is not None]
    if not said:
        return None
    start = duration(max(scenario.cluster.changes.start_s))
    forecast = any(part.kind == "curve" and part.label == traffic for part in scenario.parts.traffic)
    rise = f"; what rises beyond the forecast, once more instances have started ({start})" if forecast else ""
    bin_s, busiest = 60.0, 0.0
    for run in outcome.records:
        came, bins = [sum(row) for row in run.timeline.arrivals], max(round(60.0 / run.timeline.bin_s), 1)
        bin_s = bins * run.timeline.bin_s
        busiest = max(busiest, *(sum(came[at : at + bins]) / bin_s for at in range(len(came))))
    keeps, bursty = min(each.keeps_per_s for each in said), [each.bursty_per_s for each in said]
    least = min((each for each in bursty if each is not None), default=keeps)
    as_known = f", and up to {number(least, 3)} where they come in such bursts" if least < keeps else ""
    warning = " It warned that not much more than is known can be met." if any(each.warns for each in said) else ""
    return (
        f"Before the run {outcome.policy} said that it meets the deadlines up to {number(keeps, 3)} requests/s of lengths "
        f"like those known{as_known}{rise}.{warning} The busiest {duration(bin_s)} had {number(busiest, 3)}."
    )

"""What a policy said before the run that it keeps."""

from __future__ import annotations

from wastenot.pages.formatting import duration, number, percent
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
    keeps, known = min(each.keeps_per_s for each in said), [each.known_worst_class for each in said]
    least = min((each for each in known if each is not None), default=1.0)
    cannot = (
        " It cannot meet them where as much comes at once as in what is known: there all GPUs at the maximum clock met "
        f"those of {percent(least, 2)} of the worst class."
    )
    return (
        f"Before the run {outcome.policy} said that it meets the deadlines up to {number(keeps, 3)} requests/s of lengths "
        f"like those known{rise}.{cannot if least < scenario.parts.run.attain else ''} The busiest {duration(bin_s)} had "
        f"{number(busiest, 3)}."
    )

"""What is known of a job, in words, for terminals and for its page."""

from __future__ import annotations

from collections import Counter

from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.jobs.model.frontier import Pair
from wastenot.jobs.model.objective import objective_of
from wastenot.jobs.plan.learning_cost import FIRST_RUNS
from wastenot.jobs.plan.overview import JobOverview
from wastenot.jobs.tables.records import JobTerms
from wastenot.pages.formatting import SPACE, duration, percent, quantity, setting_text

_SAME = 0.005  # of a cost, which is no difference worth a word
FEW = 3
"""Runs of a batch size, below which what is said of it is said with care."""


def pair_text(pair: Pair) -> str:
    """A pair: ``batch size 64 at 175 W``; the setting is left out where nothing is set."""
    at = "" if pair.setting.is_auto else f" at {setting_text(pair.setting)}"
    return f"batch size {pair.batch_size:,}{at}"


def runs_of(pair: Pair) -> str:
    """Of which pair regret is counted in runs: ``runs of batch size 64 at 175 W``."""
    return f"runs of {pair_text(pair)}"


def cost_text(terms: JobTerms, cost: float, digits: int = 3) -> str:
    """A cost with its unit."""
    if objective_of(terms).saves != "time":
        return quantity(cost, "J", digits)
    return time_text(cost) if cost < 1e7 else quantity(cost, "s", digits)


def cost_beside_default(overview: JobOverview, cost: float, digits: int = 3) -> str:
    """A cost as people read it: weighted ones, which are neither energy nor time, in per cent of the default's."""
    if is_weighted(overview.terms) and overview.default is not None:
        return f"{percent(cost / overview.default.cost(overview.terms), 0)} of default"
    return cost_text(overview.terms, cost, digits)


def cost_unit(overview: JobOverview) -> str:
    """What the heading of a column of costs adds, where these are in per cent of the default's."""
    return ", % of default" if is_weighted(overview.terms) and overview.default is not None else ""


def cost_in_column(overview: JobOverview, cost: float) -> str:
    """A cost below such a heading."""
    return cost_beside_default(overview, cost).removesuffix(" of default")


def time_text(time_s: float) -> str:
    """A time as people say it, to three digits: ``12.3 s``, ``47.1 min``, ``7.85 h``."""
    return duration(time_s, 3) if time_s >= 90.0 else quantity(time_s, "s", 3)


def asked_text(terms: JobTerms) -> str:
    """What is minimised."""
    if terms.within_s is not None:
        return f"lowest energy within {time_text(terms.within_s)}"
    if terms.power_budget_w is not None:
        return f"shortest time at a mean power of at most {terms.power_budget_w:,.0f}{SPACE}W"
    if terms.eta == 0.0:
        return "shortest time (η = 0)"
    if terms.eta == 1.0:
        return "lowest energy (η = 1)"
    priced = "" if terms.max_power_w is None else f" and P{SPACE}={SPACE}{terms.max_power_w:,.0f}{SPACE}W"
    return f"η · energy + (1 − η) · P · time, with η{SPACE}={SPACE}{terms.eta:g}{priced}"


def target_text(terms: JobTerms) -> str:
    """What a run is to reach."""
    if terms.target is None:
        return "decided by the program"
    most = "" if terms.max_epochs is None else f", within {terms.max_epochs:,} epochs"
    return f"a metric of at {'least' if terms.higher_is_better else 'most'} {terms.target:g}{most}"


def outcomes_text(overview: JobOverview) -> str:
    """How many runs there were, and what became of them."""
    counts = Counter(each.run.outcome for each in overview.history)
    shown = [f"{count:,} {_OUTCOME_WORDS.get(outcome, outcome)}" for outcome, count in counts.most_common()]
    return ", ".join(shown) or "none yet"


_OUTCOME_WORDS = {
    "reached": "reached the target",
    "stopped": "stopped early",
    "missed": "missed the target",
    "no memory": "did not fit into memory",
    "running": "running",
}


def next_text(overview: JobOverview) -> str:
    """What would be run next, and why."""
    if overview.next is None:
        return "No batch size is left to run with"
    decision = overview.next
    pair = overview.next_pair
    what = f"batch size {decision.batch_size:,}" if pair is None else pair_text(pair)
    return f"{what[:1].upper()}{what[1:]}: {decision.why}" if decision.why else f"{what[:1].upper()}{what[1:]}"


def effect_text(overview: JobOverview) -> str:
    """What choosing has saved so far, in a clause."""
    against = overview.against_default
    if not overview.history:
        return "Has not run yet on this device"
    if against is None:
        reached = overview.reached
        if not reached:
            return f"No run has reached the target yet: {counted(len(overview.history), 'run')}"
        return f"{counted(reached, 'run')} reached the target; what the default would have cost is not known"
    return _too_few(overview, against.reached) or _against_default(overview, against.ratio - 1.0, against.reached)


def _against_default(overview: JobOverview, ratio: float, reached: int) -> str:
    times = f"{counted(reached, 'run')} of the default, batch size {overview.terms.default:,}{_resting_on(overview)}"
    if abs(ratio) < _SAME:
        return f"Has cost as much as {times}"
    return f"Has cost {percent(abs(ratio), 1)} {'less' if ratio < 0.0 else 'more'} than {times}"


def _too_few(overview: JobOverview, reached: int) -> str | None:
    """What is said instead where the comparison would rest on one run, of the job or of its default."""
    default, usual = overview.default, f"the default, batch size {overview.terms.default:,}"
    if reached == 1:
        return f"1 run reached the target: too few to compare with {usual}"
    if default is not None and not default.forecast and default.epochs.reached == 1:
        return f"{counted(reached, 'run')} reached the target; {usual}, ran only once: too few to compare"
    return None


def _resting_on(overview: JobOverview) -> str:
    """What the cost of the default rests on, where that is little."""
    default = overview.default
    if default is None:
        return ""
    if default.forecast:
        return " (whose epochs are a forecast)"
    few = default.epochs.reached < FEW
    return f" (judged by {counted(default.epochs.reached, 'run')} of it)" if few else ""


def next_effect_text(overview: JobOverview) -> str | None:
    """What the next pair is expected to save against the default; ``None`` where that is not known."""
    pair, default, terms = overview.next_pair, overview.default, overview.terms
    if pair is None or default is None or pair == default:
        return None
    if overview.no_memory is not None and default.batch_size >= overview.no_memory:
        return None
    ratio = pair.cost(terms) / default.cost(terms) - 1.0
    parts = [f"cost {percent(ratio, 1, sign=True)}", f"time {percent(pair.time_s / default.time_s - 1.0, 1, sign=True)}"]
    if pair.energy_j is not None and default.energy_j is not None:
        parts.append(f"energy {percent(pair.energy_j / default.energy_j - 1.0, 1, sign=True)}")
    careful = pair.forecast or min(pair.epochs.reached, default.epochs.reached) < FEW
    known = "forecast" if pair.forecast or default.forecast else "from few runs" if careful else "from the runs so far"
    return f"{', '.join(parts)} ({known})"


def saves_beside_default(overview: JobOverview) -> bool:
    """Whether enough runs say that the next pair is cheaper than the default."""
    pair, default, terms, against = overview.next_pair, overview.default, overview.terms, overview.against_default
    if pair is None or default is None or next_effect_text(overview) is None or against is None or against.reached < FEW:
        return False
    few = pair.forecast or default.forecast or min(pair.epochs.reached, default.epochs.reached) < FEW
    return not few and pair.cost(terms) / default.cost(terms) - 1.0 <= -_SAME


def choice_text(overview: JobOverview) -> str | None:
    """What to run next and how much cheaper it is than the default; ``None`` where that is not known, or it is not."""
    pair, default = overview.next_pair, overview.default
    if pair is None or default is None or not saves_beside_default(overview):
        return None
    limit = pair.setting.power_limit_w
    power_alone = limit is not None and pair.setting == Setting(power_limit_w=limit)
    what = f"batch size {pair.batch_size:,} and a limit of {limit:,.0f}{SPACE}W" if power_alone else pair_text(pair)
    return f"From now on, use {what}: {compared_text(pair, default)} per run than the default, estimated"


def compared_text(pair: Pair, default: Pair) -> str:
    """Energy and time of a pair against the default: ``37.2 % less energy and 6.4 % less time``."""
    known = pair.energy_j is not None and default.energy_j is not None
    changes = [("energy", pair.energy_j / default.energy_j - 1.0)] if known else []  # type: ignore[operator]
    changes.append(("time", pair.time_s / default.time_s - 1.0))
    return " and ".join(f"{percent(abs(each), 1)} {'less' if each <= 0.0 else 'more'} {name}" for name, each in changes)


def is_weighted(terms: JobTerms) -> bool:
    """Whether costs weigh energy against time, and so are neither."""
    return objective_of(terms).saves == "both"


def regret_text(overview: JobOverview) -> str | None:
    """Regret so far; ``None`` before it is known."""
    if overview.regret is None or overview.cheapest is None:
        return None
    shown = f"{overview.regret:.2f}".replace("-", "−")
    return f"{shown} {runs_of(overview.cheapest)}, the cheapest pair as far as is known"


def learning_text(overview: JobOverview) -> str | None:
    """What learning has cost and is expected to, beyond always running the default; ``None`` before that is known."""
    learning = overview.learning
    if learning is None:
        return None
    said = [f"{learning.so_far:+.1f} runs of the default so far".replace("-", "−")]
    if learning.expected is not None:
        most = f"{learning.expected:.1f} expected (90{SPACE}%: {learning.high:.1f})"
        said.append(f"highest within the first {FIRST_RUNS} runs: {most}")
    return "; ".join(said)

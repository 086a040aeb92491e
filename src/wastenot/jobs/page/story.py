"""What the page of a job says in ten seconds: what choosing has saved, what comes next and why, and what is asked."""

from __future__ import annotations

from wastenot.core.wording import counted
from wastenot.jobs.model.objective import objective_of
from wastenot.jobs.page.regret_figure import paid_back_after
from wastenot.jobs.page.words import (
    FEW,
    asked_text,
    choice_text,
    compared_text,
    effect_text,
    is_weighted,
    outcomes_text,
    pair_text,
    runs_of,
    saves_beside_default,
    target_text,
    time_text,
)
from wastenot.jobs.plan.overview import JobOverview
from wastenot.pages.formatting import SPACE, percent, quantity, setting_text
from wastenot.pages.panel import Line, Panel

_HALF = 0.5


def story_of(overview: JobOverview) -> tuple[str, str, tuple[Panel, ...]]:
    """The headline, what it rests on, and three panels."""
    effect, verdict, choice = effect_text(overview), _verdict(overview), choice_text(overview)
    if choice is not None:  # what was saved so far, trials included, is then the second thing to know
        effect, verdict = choice, _so_far_text(overview)
    return effect, verdict, (_next(overview), _so_far(overview), _asked(overview))


def _so_far_text(overview: JobOverview) -> str:
    """What all runs have cost, beside the default."""
    against, default = overview.against_default, overview.default
    assert against is not None
    runs = counted(len(overview.history), "run")
    used_j, time_s = _used(overview)
    if used_j is not None and default is not None and default.energy_j is not None and against.reached:
        energy, time = used_j / (against.reached * default.energy_j), time_s / (against.reached * default.time_s)
        return f"the {runs} so far, trials included: {_less(energy)} energy, {_less(time)} time than by default"
    cost = "cost" if is_weighted(overview.terms) else objective_of(overview.terms).quantity
    return f"{runs} so far: {_less(against.ratio)} {cost} than by default, trials included"


def _used(overview: JobOverview) -> tuple[float | None, float]:
    """Energy and time of all runs; ``None`` where the energy of any is not known."""
    runs = [each.run for each in overview.history]
    joules = [run.energy_j for run in runs]
    used_j = None if None in joules else sum(each for each in joules if each is not None)
    return used_j, sum(run.time_s for run in runs)


def _less(ratio: float) -> str:
    """A ratio of costs: ``5.1 % less``."""
    return f"{percent(abs(ratio - 1.0), 1)} {'less' if ratio <= 1.0 else 'more'}"


def _compared(overview: JobOverview) -> list[Line]:
    """What the comparison of all runs with the default rests on."""
    default, against = overview.default, overview.against_default
    if default is None or against is None or choice_text(overview) is None:
        return []
    energy = "" if default.energy_j is None else f"{quantity(against.reached * default.energy_j, 'J', 3)} in "
    took = f"{energy}{time_text(against.reached * default.time_s)}"
    rests = f"estimated from {counted(default.epochs.reached, 'run')} of batch size {default.batch_size:,}"
    lines = [
        Line(f"By default ({pair_text(default)})", f"the same {against.reached:,} results would have taken {took}, {rests}")
    ]
    if is_weighted(overview.terms) and overview.next_pair is not None:
        ratio = overview.next_pair.cost(overview.terms) / default.cost(overview.terms)
        text = f"{_less(against.ratio)} so far, {_less(ratio)} per run from now on"
        lines.append(Line(_weights(overview), text))
    return lines


def _verdict(overview: JobOverview) -> str:
    default = overview.default
    if default is None or default.forecast or overview.against_default is None:
        return f"{counted(len(overview.history), 'run')} so far on {overview.device}"
    rough = "roughly, " if default.epochs.reached < FEW else ""
    at = "" if default.setting.is_auto else f", for {setting_text(default.setting)}"
    return f"{rough}estimated from the epochs of {counted(default.epochs.reached, 'run')} at the default batch size{at}"


def _next(overview: JobOverview) -> Panel:
    decision, pair, default = overview.next, overview.next_pair, overview.default
    if decision is None:
        return Panel("Next run", "none", "no batch size is left to run with.")
    value = f"batch size {decision.batch_size:,}" if pair is None else pair_text(pair)
    text = f"{decision.why}." if decision.why else ""
    lines = []
    if pair is not None and default is not None and saves_beside_default(overview):
        first, _, rest = compared_text(pair, default).partition(" and ")
        than = f"{f'and {rest} ' if rest else ''}per run than with the default, {pair_text(default)}"
        value, text = first, f"{than}, with {value}{f': {decision.why}' if decision.why else ''}."
    if pair is not None:
        energy = "" if pair.energy_j is None else f"{quantity(pair.energy_j, 'J', 3)} in "
        lines.append(Line("Expected", f"{energy}{time_text(pair.time_s)}"))
    outlook = next((each for each in decision.outlook if each.batch_size == decision.batch_size), None)
    if outlook is not None:
        lines.append(Line("Chance of the target", percent(outlook.chance, 0)))
        lines.append(Line("Epochs expected", f"{outlook.epochs:.1f}"))
    return Panel("Next run", value, text, lines=tuple(lines))


def _so_far(overview: JobOverview) -> Panel:
    lines = []
    if overview.elsewhere:
        others = ", ".join(each for each in overview.devices if each != overview.device)
        lines.append(Line("Elsewhere", f"{counted(overview.elsewhere, 'run')} on {others}"))
    runs = [each.run for each in overview.history]
    time_s, used_j = sum(run.time_s for run in runs), [run.energy_j for run in runs if run.energy_j is not None]
    value, within = (quantity(sum(used_j), "J", 3), f"in {time_text(time_s)}; ") if used_j else (time_text(time_s), "")
    lines += _compared(overview)
    return Panel("Used so far", value if time_s else "nothing", f"{within}{outcomes_text(overview)}.", lines=tuple(lines))


def _asked(overview: JobOverview) -> Panel:
    """What learning cost, and what is asked."""
    terms, regret, cheapest = overview.terms, overview.regret, overview.cheapest
    sizes = ", ".join(f"{size:,}" for size in terms.batch_sizes)
    settings = [setting_text(setting) for setting in terms.settings if not setting.is_auto]
    lines = [
        Line("Target", target_text(terms)),
        Line("Batch sizes", f"{sizes}; {terms.default:,} by default"),
        Line(
            "Settings", f"{settings[0]} to {settings[-1]}, {len(settings)} settings" if len(settings) > 1 else "none are set"
        ),
    ]
    if overview.no_memory is not None:
        lines.append(Line("Does not fit into memory", f"{overview.no_memory:,} and more"))
    objective = _weights(overview) if is_weighted(terms) else asked_text(terms)
    if regret is None or cheapest is None or regret <= 0.0:
        return Panel("Objective", f"{objective[:1].upper()}{objective[1:]}", "", lines=tuple(lines))
    if not is_weighted(terms) or choice_text(overview) is None:  # else said beside what was used
        lines.append(Line("Cost of a run" if is_weighted(terms) else "Objective", objective))
    number = paid_back_after(overview)
    if number is not None:
        lines.insert(0, Line("Paid back", f"after run {number:,}, against always running the default"))
    text = f"beyond always taking the cheapest choice; as much as {regret:.2f} {runs_of(cheapest)} (regret)."
    return Panel("What learning cost", time_text(regret * cheapest.time_s), text, lines=tuple(lines))


def _weights(overview: JobOverview) -> str:
    """What a weighted cost is, in words: ``Half energy, half time (at 322 W)``."""
    terms = overview.terms
    power = "the highest power limit" if terms.max_power_w is None else f"{terms.max_power_w:,.0f}{SPACE}W"
    shares = ("half", "half") if terms.eta == _HALF else (percent(terms.eta, 0), percent(1.0 - terms.eta, 0))
    return f"{shares[0].capitalize()} energy, {shares[1]} time (at {power})"


def objective_text(overview: JobOverview) -> str:
    """What is minimised, with its symbols explained."""
    text = asked_text(overview.terms)
    if "η ·" not in text:
        return text
    return f"{text}; η weighs energy (1) against time (0), P is the GPU's highest power limit"

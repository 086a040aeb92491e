"""What the page of a job says in ten seconds: what choosing has saved, what comes next and why, and what is asked."""

from __future__ import annotations

from wastenot.core.wording import counted
from wastenot.jobs.page.words import (
    FEW,
    asked_text,
    choice_text,
    cost_text,
    effect_text,
    next_effect_text,
    outcomes_text,
    pair_text,
    regret_text,
    setting_text,
    target_text,
)
from wastenot.jobs.plan.overview import JobOverview
from wastenot.pages.formatting import SPACE, percent
from wastenot.pages.panel import Line, Panel


def story_of(overview: JobOverview) -> tuple[str, str, tuple[Panel, ...]]:
    """The headline, what it rests on, and three panels."""
    effect, verdict, choice = effect_text(overview), _verdict(overview), choice_text(overview)
    if choice is not None:  # what was saved so far, trials included, is then the second thing to know
        effect, verdict = choice, f"so far the job {effect[:1].lower()}{effect[1:]}, {verdict}"
    return effect, verdict, (_next(overview), _so_far(overview), _asked(overview))


def _verdict(overview: JobOverview) -> str:
    default = overview.default
    if default is None or default.forecast or overview.against_default is None:
        return f"{counted(len(overview.history), 'run')} so far on {overview.device}"
    rough = "roughly, " if default.epochs.reached < FEW else ""
    at = "" if default.setting.is_auto else f", at {setting_text(default.setting)}"
    return f"{rough}from the epochs of {counted(default.epochs.reached, 'run')} at the default batch size{at}"


def _next(overview: JobOverview) -> Panel:
    decision, pair = overview.next, overview.next_pair
    if decision is None:
        return Panel("Next run", "none", "no batch size is left to run with.")
    value = f"batch size {decision.batch_size:,}" if pair is None else pair_text(pair)
    lines = []
    outlook = next((each for each in decision.outlook if each.batch_size == decision.batch_size), None)
    if outlook is not None:
        low, high = (cost_text(overview.terms, each) for each in (outlook.low, outlook.high))
        lines.append(Line("Expected to cost", f"{cost_text(overview.terms, outlook.cost)}; {low} to {high} (95{SPACE}%)"))
        lines.append(Line("Chance of the target", percent(outlook.chance, 0)))
        lines.append(Line("Epochs expected", f"{outlook.epochs:.1f}"))
    effect = next_effect_text(overview)
    if effect is not None:
        lines.append(Line("Against the default", effect))
    return Panel("Next run", value, f"{decision.why}." if decision.why else "", lines=tuple(lines))


def _so_far(overview: JobOverview) -> Panel:
    lines = []
    against, regret = overview.against_default, regret_text(overview)
    if regret is not None:
        lines.append(Line("Cost of learning (regret)", regret))
    if against is not None:
        lines.append(Line("Time, compared with the default", percent(against.time_ratio - 1.0, 1, sign=True)))
        if against.energy_ratio is not None:
            lines.append(Line("Energy, compared with the default", percent(against.energy_ratio - 1.0, 1, sign=True)))
    if overview.elsewhere:
        others = ", ".join(each for each in overview.devices if each != overview.device)
        lines.append(Line("Elsewhere", f"{counted(overview.elsewhere, 'run')} on {others}"))
    value = cost_text(overview.terms, overview.total_cost) if overview.total_cost > 0.0 else "nothing"
    return Panel("Cost so far", value, f"{outcomes_text(overview)}.", lines=tuple(lines))


def _asked(overview: JobOverview) -> Panel:
    terms = overview.terms
    sizes = ", ".join(f"{size:,}" for size in terms.batch_sizes)
    settings = [setting_text(setting) for setting in terms.settings if not setting.is_auto]
    lines = [
        Line("Target", target_text(terms)),
        Line("Batch sizes", f"{sizes}; {terms.default:,} by default"),
        Line(
            "Settings", f"{settings[0]} to {settings[-1]}, {len(settings)} settings" if len(settings) > 1 else "none are set"
        ),
    ]
    if "η ·" in asked_text(terms):
        lines += [
            Line("η", "weight of energy, from 0 (only time counts) to 1 (only energy counts)"),
            Line("P", "the GPU's highest power limit, which makes time comparable with energy"),
        ]
    if overview.no_memory is not None:
        lines.append(Line("Does not fit into memory", f"{overview.no_memory:,} and more"))
    text = asked_text(terms)
    title = "Lowest cost of a run" if "η ·" in text else f"{text[:1].upper()}{text[1:]}"
    return Panel("Objective", title, f"cost: {text}." if "η ·" in text else "", lines=tuple(lines))

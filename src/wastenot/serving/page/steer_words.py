"""What the page and the table of policies say: how much each saves, whether it meets the deadlines, and what it rests on."""

from __future__ import annotations

import math

from wastenot.pages.formatting import SPACE, duration, number, percent, quantity
from wastenot.pages.panel import Line, Panel
from wastenot.pages.table import Listed, Table, listing
from wastenot.serving.model.steering import Steered, Steering
from wastenot.serving.page.engine_words import steps_text, waits_text


def best_of(found: Steering) -> Steered:
    """The policy that saved most of those that attained what was asked; the maximum clock where no other did.

    This excludes the oracle, which cannot be built.
    """
    attained = [run for run in found.runs if run.result.attainment >= found.share and run.name != "oracle"]
    return max(attained or found.runs[:1], key=found.saved)


def about(found: Steering) -> str:
    """Of what a figure is, and where its numbers come from."""
    engine = found.engine
    name = f"{engine.model or 'engine'} on {engine.device or 'an unnamed device'}"
    rate = f"{number(found.rate_per_s, 3)}{SPACE}requests/s"
    return f"{name} · {rate} · simulated, {steps_text((found.engine,))}"


def effect_text(found: Steering) -> str:
    """The headline."""
    best = best_of(found)
    if found.runs[0].result.attainment < found.share:
        kept = percent(found.runs[0].result.attainment, 1)
        return f"Even at the maximum clock only {kept} of the requests meet their deadlines"
    if best is found.runs[0]:
        return "No policy saves energy and meets the deadlines as the maximum clock does"
    saved, kept = percent(found.saved(best), 1), percent(best.result.attainment, 2)
    return f"{sentence_name(best)} saves {saved} of the energy; {kept} of requests met their deadlines"


def sentence_name(run: Steered) -> str:
    """A policy's name at the beginning of a sentence."""
    name = run.result.policy
    if run.name in ("price", "by-metrics"):
        return f"The {name}"
    return name if run.name == "throttllem" else name[:1].upper() + name[1:]


def verdict_text(found: Steering) -> str:
    """What the headline rests on."""
    return (
        f"against {percent(found.runs[0].result.attainment, 2)} at the maximum clock, over "
        f"{len(found.requests):,}{SPACE}requests in {duration(found.duration_s)} ({steps_text((found.engine,))})"
    )


def panels(found: Steering) -> tuple[Panel, Panel, Panel]:
    """The policy of least energy, the maximum clock, and what is asked."""
    best, greatest = best_of(found), found.runs[0]
    return (
        _run_panel("Lowest energy that meets the deadlines", best),
        _run_panel("Maximum clock", greatest),
        _asked(found),
    )


def _run_panel(title: str, run: Steered) -> Panel:
    result = run.result
    lines = [
        Line("Deadlines met", percent(result.attainment, 2)),
        Line("Power, mean", quantity(result.power_w, "W", 3)),
        Line("TBT, P99", quantity(result.tbt_p99_s, "s", 3)),
    ]
    if result.mean_core_mhz is not None:
        lines.append(Line("Clock, mean", f"{result.mean_core_mhz:,.0f}{SPACE}MHz"))
    lines.append(Line("Switches", f"{result.switches:,}"))
    return Panel(title, f"{number(result.energy_per_token_j, 3)}{SPACE}J per token", f"{result.policy}.", lines=tuple(lines))


def _asked(found: Steering) -> Panel:
    deadlines, engine = found.deadlines, found.engine
    lines = [
        Line("First token", " / ".join(quantity(each, "s", 3) for each in deadlines.ttft_s)),
        Line("Between tokens", quantity(deadlines.tbt_s, "s", 3)),
        Line("Must be met by", percent(found.share, 0)),
        Line("Clock-switch latency", quantity(engine.switch_s, "s", 3)),
        Line("Tokens per step", f"at most {engine.most_step_tokens:,}"),
    ]
    text = "."
    if found.capacity is not None:
        part = percent(found.rate_per_s / found.capacity.rate_per_s, 0)
        text = f"{part} of the {number(found.capacity.rate_per_s, 3)} that the maximum clock sustains."
    return Panel("Load", f"{number(found.rate_per_s, 3)}{SPACE}requests/s", text.lstrip("."), lines=tuple(lines))


def policies_table(found: Steering) -> Table:
    """Each policy in a row."""
    first = found.runs[0]
    columns: tuple[Listed[Steered], ...] = (
        Listed("Policy", lambda run: run.result.policy, numeric=False),
        Listed("Energy saved", lambda run: None if run is first else found.saved(run), lambda value: percent(value, 1)),
        Listed("Deadlines met", lambda run: run.result.attainment, lambda value: percent(value, 2)),
        Listed("Energy per token", lambda run: run.result.energy_per_token_j, lambda value: quantity(value, "J", 3)),
        Listed(
            "TTFT, P99",
            lambda run: next((each for each in run.result.ttft_p99_s if not math.isnan(each)), None),
            text_of=lambda run: waits_text([None if math.isnan(each) else each for each in run.result.ttft_p99_s], " / "),
        ),
        Listed("TBT, P99", lambda run: run.result.tbt_p99_s, lambda value: quantity(value, "s", 3)),
        Listed("Clock, mean", lambda run: run.result.mean_core_mhz, lambda value: f"{value:,.0f}{SPACE}MHz"),
        Listed("Power, mean", lambda run: run.result.power_w, lambda value: quantity(value, "W", 3)),
        Listed("Switches", lambda run: float(run.result.switches), text_of=lambda run: f"{run.result.switches:,}"),
    )
    note = "TTFT by prompt length."
    if any(run.result.attainment < found.share for run in found.runs):
        note += (
            f" A policy under which fewer than {percent(found.share, 0)} of the requests meet their deadlines "
            "saves at its users' expense."
        )
    return listing("Policies", found.runs, columns, note)

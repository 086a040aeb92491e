"""What the page and the table of policies say: how much each saves, whether it meets the deadlines, and what it rests on."""

from __future__ import annotations

import math
import shlex
from typing import Final

from wastenot.pages.formatting import SPACE, duration, number, percent, quantity
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Listed, Table, listing
from wastenot.serving.model.steering import PolicyName, Steered, Steering
from wastenot.serving.page.engine_words import clocks_note, steps_text, waits_text


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
    met = f"{kept} of requests met their deadlines"
    known = found.saved_within_known(best)
    if known is not None:
        rest = f"({saved} with assumed ones)"
        return f"{sentence_name(best)} saves {percent(known, 1)} of the energy at measured or fitted clocks {rest}; {met}"
    return f"{sentence_name(best)} saves {saved} of the energy; {met}"


def clocks_text(found: Steering) -> str | None:
    """Which clocks the policies could choose, where some are assumed."""
    return clocks_note((found.engine,), used=found.within_known is not None)


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
        Line("Mean power", quantity(result.power_w, "W", 3)),
        Line("Time between tokens, P99", quantity(result.tbt_p99_s, "s", 3)),
    ]
    if result.mean_core_mhz is not None:
        lines.append(Line("Mean clock", f"{result.mean_core_mhz:,.0f}{SPACE}MHz"))
    lines.append(Line("Clock changes", f"{result.switches:,}"))
    text = f"with the {result.policy}: {_ABOUT[run.name]}." if run.name == "price" else f"{_ABOUT[run.name]}."
    return Panel(title, f"{quantity(result.energy_per_token_j, 'J', 3)} per token", text, lines=tuple(lines))


_ABOUT: Final[dict[PolicyName, str]] = {
    "greatest": "the maximum clock at all times, as servers run today",
    "fixed": "the one clock of lowest energy among those that meet the deadlines, chosen in hindsight",
    "throttllem": "the lowest clock at which all requests present would meet their deadlines (HPCA'25)",
    "greenllm": "prompts and tokens each with a control loop of their own",
    "price": "it weighs the energy of each clock against the deadlines that it would miss",
    "by-metrics": "the clock chosen once a second from the server's metrics, as by wastenot serve control",
    "oracle": "knows all requests to come, and switches in no time",
}
"""What each policy does, in a few words."""


def next_step(found: Steering) -> Next:
    """How to have a running server's clock chosen likewise."""
    engine = shlex.quote(found.source) if found.source else "ENGINE.json"
    return Next(
        "See which clocks would be chosen for a running server; with --allow-clock-control they are set",
        (f"wastenot serve control {engine} --instance http://HOST:PORT=DEVICE",),
    )


def _asked(found: Steering) -> Panel:
    deadlines, engine = found.deadlines, found.engine
    lines = [
        Line("Deadline of the first token", " / ".join(quantity(each, "s", 3) for each in deadlines.ttft_s)),
        Line("Deadline between tokens", quantity(deadlines.tbt_s, "s", 3)),
        Line("Deadlines to be met by", f"{percent(found.share, 0)} of requests"),
        Line("Clock-switch latency", quantity(engine.switch_s, "s", 3)),
        Line("Tokens per step", f"at most {engine.most_step_tokens:,}"),
    ]
    text = "."
    if found.capacity is not None:
        part = percent(found.rate_per_s / found.capacity.rate_per_s, 0)
        text = f"{part} of the {number(found.capacity.rate_per_s, 3)}{SPACE}requests/s that the maximum clock sustains."
    return Panel("Load", f"{number(found.rate_per_s, 3)}{SPACE}requests/s", text.lstrip("."), lines=tuple(lines))


def policies_table(found: Steering) -> Table:
    """Each policy in a row."""
    first = found.runs[0]
    known: tuple[Listed[Steered], ...] = ()
    if found.within_known is not None:
        known = (
            Listed(
                "At known clocks",
                lambda run: None if run is first else found.saved_within_known(run),
                lambda value: percent(value, 1),
            ),
        )
    columns: tuple[Listed[Steered], ...] = (
        Listed("Policy", lambda run: run.result.policy, numeric=False),
        Listed("Energy saved", lambda run: None if run is first else found.saved(run), lambda value: percent(value, 1)),
        *known,
        Listed("Deadlines met", lambda run: run.result.attainment, lambda value: percent(value, 2)),
        Listed("Energy per token", lambda run: run.result.energy_per_token_j, lambda value: quantity(value, "J", 3)),
        Listed(
            "First token, P99",
            lambda run: next((each for each in run.result.ttft_p99_s if not math.isnan(each)), None),
            text_of=lambda run: waits_text([None if math.isnan(each) else each for each in run.result.ttft_p99_s], " / "),
        ),
        Listed("Between tokens, P99", lambda run: run.result.tbt_p99_s, lambda value: quantity(value, "s", 3)),
        Listed("Mean clock", lambda run: run.result.mean_core_mhz, lambda value: f"{value:,.0f}{SPACE}MHz"),
        Listed("Mean power", lambda run: run.result.power_w, lambda value: quantity(value, "W", 3)),
        Listed("Clock changes", lambda run: float(run.result.switches), text_of=lambda run: f"{run.result.switches:,}"),
    )
    note = "P99: 99 % waited at most this long; for the first token by prompt length, short / medium / long."
    if known:
        note += " At known clocks: energy saved by the same policy at clocks that were measured or fitted."
    if any(run.result.attainment < found.share for run in found.runs):
        note += (
            f" A policy under which fewer than {percent(found.share, 0)} of the requests meet their deadlines "
            "saves at its users' expense."
        )
    return listing("Policies", found.runs, columns, note)

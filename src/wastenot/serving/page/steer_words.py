"""What the page and the table of policies say: how much each saves, whether it meets the deadlines, and what it rests on."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import Final

from wastenot.pages.formatting import SPACE, duration, number, percent, quantity
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Listed, Table, listing
from wastenot.serving.model.steering import PolicyName, Steered, Steering
from wastenot.serving.page.simulated_words import band_text, by_deadline_note, clocks_note, waits_text


def about(found: Steering) -> str:
    """Of what a figure is, and where its numbers come from."""
    engine = found.engine
    name = f"{engine.model or 'engine'} on {engine.device or 'an unnamed device'}"
    return f"{name} · {number(found.rate_per_s, 3)}{SPACE}requests/s · simulated numbers"


def effect_text(found: Steering) -> str:
    """The headline."""
    best = found.best
    if found.runs[0].result.attainment < found.share:
        kept = percent(found.runs[0].result.attainment, 1)
        return f"Even at the maximum clock only {kept} of the requests meet their deadlines"
    if best is found.runs[0]:
        return "No policy saves energy and meets the deadlines as the maximum clock does"
    cap = found.cap
    told, name = (best, sentence_name(best)) if cap is None else (cap, f"A fixed clock of {found.lowest_mhz:,.0f}{SPACE}MHz")
    saved, kept = percent(found.saved(told), 1), percent(told.result.attainment, 2)
    name += "" if cap is None else ", chosen in hindsight,"
    return f"{name} saves {saved} of the energy; {kept} of requests met their deadlines"


def notes_on(found: Steering) -> list[str]:
    """What the headline rests on."""
    within = found.band
    notes = (None if within is None else band_text(within), clocks_text(found), by_deadline_text(found))
    return [note for note in notes if note is not None]


def clocks_text(found: Steering) -> str | None:
    """Which clocks the policies could choose, where some are assumed."""
    return clocks_note((found.engine,), used=found.with_assumed is not None)


def by_deadline_text(found: Steering) -> str | None:
    """What prefill by deadline adds to the best policy, where prompts are prefilled so."""
    if found.stock is None:
        return None
    best = found.best
    other = found.stock.again(best)
    met, energy = (other.result.attainment, best.result.attainment), best.result.energy_j / other.result.energy_j
    return by_deadline_note(_in_sentence(best), met, energy)


def sentence_name(run: Steered) -> str:
    """A policy's name at the beginning of a sentence."""
    name = _in_sentence(run)
    return name if run.name == "throttllem" else name[:1].upper() + name[1:]


def _in_sentence(run: Steered) -> str:
    name = run.result.policy
    return f"the {name}" if run.name in ("price", "by-metrics") else name


def verdict_text(found: Steering) -> str:
    """What the headline is compared with, and whether a policy adds to it."""
    kept = percent(found.runs[0].result.attainment, 2)
    more = "" if found.cap is None else "; no policy saves more"
    if more and all(found.stays_lowest(run) for run in found.runs[1:]):
        more = "; all policies stay at the lowest clock allowed"
    assumed = found.with_assumed
    if assumed is not None and (best := assumed.best) is not assumed.runs[0]:
        limit = found.engine.assumed_below_mhz or assumed.engine.assumed_below_mhz
        which = "unmeasured clocks" if limit is None else f"clocks below {limit:,.0f}{SPACE}MHz"
        more = f"; {percent(assumed.saved(best), 1)} with {_in_sentence(best)} if {which} behave as assumed"
    return f"compared with the maximum clock, at which {kept} did{more}"


def load_text(found: Steering) -> str:
    """How many requests there were, and what became of the trace for that."""
    requests = f"{len(found.requests):,}{SPACE}requests in {duration(found.duration_s)}"
    if found.trace_requests in (None, len(found.requests)):
        return requests
    how = "copies of" if len(found.requests) > (found.trace_requests or 0) else "drawn from"
    return f"{requests}, {how} the trace's {found.trace_requests:,}"


def _beside_it(found: Steering) -> tuple[Line, ...]:
    """What policies add to one clock throughout where that is nothing, else what those save who know the requests."""
    if found.cap is not None:
        best = found.best
        mean = f"{best.result.mean_core_mhz:,.0f}{SPACE}MHz on average"
        return (Line("The best policy", f"{best.result.policy} saves {percent(found.saved(best), 1)}, at {mean}"),)
    known = [run for run in found.runs if run.hindsight and found.attains(run)]
    if not known:
        return ()
    most = max(known, key=found.saved)
    how = "A fixed clock, chosen in hindsight" if most.name == "fixed" else "With full knowledge of the requests"
    return (Line(how, f"{percent(found.saved(most), 1)} saved"),)


def panels(found: Steering) -> tuple[Panel, Panel, Panel]:
    """The policy of least energy, the maximum clock, and what is asked."""
    best, greatest = found.best, found.runs[0]
    title = "Lowest energy that meets the deadlines"
    if best is greatest:
        return _run_panel(title, best), _run_panel("Maximum clock", greatest), _asked(found)
    told = found.headline
    if told.name == "fixed":
        title = "Fixed clock, chosen in hindsight"
    other = _run_panel("Maximum clock", greatest) if found.with_assumed is None else _assumed_panel(found.with_assumed)
    panel = _run_panel(title, told, f"{percent(found.saved(told), 1)} saved")
    return replace(panel, lines=(*panel.lines, *_beside_it(found))), other, _asked(found)


def _assumed_panel(more: Steering) -> Panel:
    """The best policy with assumed clocks, and those that fail there."""
    best = more.best
    panel = _run_panel("With assumed clocks too", best, f"{percent(more.saved(best), 1)} saved")
    failed = [
        f"{run.result.policy} ({percent(1.0 - run.result.attainment, 1)} late)" for run in more.runs if not more.attains(run)
    ]
    fixed = next((run for run in more.runs if run.name == "fixed" and run is not best and more.attains(run)), None)
    lines = [*panel.lines]
    if fixed is not None and fixed.result.mean_core_mhz is not None:
        saves = f"saves {percent(more.saved(fixed), 1)}, {percent(fixed.result.attainment, 2)} met their deadlines"
        lines.append(Line("Fixed, in hindsight", f"{fixed.result.mean_core_mhz:,.0f}{SPACE}MHz {saves}"))
    return replace(panel, lines=(*lines, Line("Too many late requests", ", ".join(failed) or "none")))


def _run_panel(title: str, run: Steered, value: str | None = None) -> Panel:
    result = run.result
    per_token = f"{quantity(result.energy_per_token_j, 'J', 3)} per token"
    lines = [
        *([] if value is None else [Line("Energy", per_token)]),
        Line("Deadlines met", percent(result.attainment, 2)),
        Line("Mean power", quantity(result.power_w, "W", 3)),
        Line("99 % of gaps between tokens within", quantity(result.tbt_p99_s, "s", 3)),
    ]
    if result.mean_core_mhz is not None:
        label = "Mean clock" if result.switches else "Clock"
        lines.append(Line(label, f"{result.mean_core_mhz:,.0f}{SPACE}MHz"))
    if result.switches:
        lines.append(Line("Clock changes", f"{result.switches:,}"))
    text = f"{_ABOUT[run.name]}." if value is None else f"with {_in_sentence(run)}: {_ABOUT[run.name]}."
    if value is not None and run.name == "fixed":
        text = f"with one core clock throughout: {_ABOUT[run.name]}."
    return Panel(title, value or per_token, text, lines=tuple(lines))


_ABOUT: Final[dict[PolicyName, str]] = {
    "greatest": "no control, as servers run today",
    "fixed": "of all clocks that meet the deadlines of these requests, the one of lowest energy",
    "throttllem": "the lowest clock at which all requests present would meet their deadlines (HPCA'25)",
    "greenllm": "a control loop for prompts, by their queue, and one for tokens, by the time between them (GreenLLM, 2025)",
    "price": "it weighs the energy of each clock against the deadlines that it would miss",
    "by-metrics": "the clock chosen once a second from the server's metrics, as by wastenot serve control",
    "oracle": "knows all requests to come, and switches in no time",
}
"""What each policy does, in a few words."""


def about_table(found: Steering) -> Table:
    """What each policy does."""
    columns: tuple[Listed[Steered], ...] = (
        Listed("Policy", lambda run: run.result.policy, numeric=False),
        Listed("What it does", lambda run: _ABOUT[run.name], numeric=False),
    )
    return listing("What the policies do", found.runs, columns)


def next_step(found: Steering) -> Next:
    """How to have a running server's clock chosen likewise."""
    engine, lowest = shlex.quote(found.source) if found.source else "ENGINE.json", found.lowest_mhz
    if found.cap is not None and lowest is not None:
        assumed = _assumed_clock(found)
        clocks = [lowest] if assumed is None else [lowest, assumed]
        load = f"--trace {shlex.quote(found.trace)} " if found.trace else ""
        load += (
            f"--rate {number(found.rate_per_s, 3)} --core {','.join(f'{each:g}' for each in clocks)} --allow-clock-control"
        )
        where = f"at its default clocks and at {lowest:,.0f}{SPACE}MHz"
        if assumed is not None:
            where = (
                f"at its default clocks, at {lowest:,.0f}{SPACE}MHz, and at {assumed:,.0f}{SPACE}MHz, the fixed clock that "
                "saves most if what is assumed holds"
            )
        return Next(
            f"Measure a running server {where} (replace HOST:PORT and DEVICE)",
            (f"wastenot serve bench http://HOST:PORT --device DEVICE {load}",),
        )
    if found.trace and all(run.name != "by-metrics" for run in found.runs):
        load = f"--trace {shlex.quote(found.trace)} --rate {found.rate_per_s:.4g}"
        return Next(
            "Simulate the policy that needs nothing but a server's metrics, as wastenot serve control applies it",
            (f"wastenot serve simulate {engine} {load} --policy by-metrics --page by-metrics.html",),
        )
    return Next(
        "Replace HOST:PORT and DEVICE by a running server and its GPU to see which clocks the metrics policy (here "
        "--policy by-metrics) would choose; with --allow-clock-control they are set",
        (f"wastenot serve control {engine} --instance http://HOST:PORT=DEVICE",),
    )


def _assumed_clock(found: Steering) -> float | None:
    """The fixed clock, in MHz, that saves most with assumed clocks, where it is one of them and meets the deadlines."""
    more, lowest = found.with_assumed, found.lowest_mhz
    run = None if more is None else next((run for run in more.runs if run.name == "fixed" and more.attains(run)), None)
    mhz = None if run is None else run.result.mean_core_mhz
    return None if mhz is None or lowest is None or mhz >= lowest else mhz


def _asked(found: Steering) -> Panel:
    deadlines, engine = found.deadlines, found.engine
    below = [f"below {each:,}" for each in deadlines.prompt_below]
    by = f", prompts {' / '.join(below)} tokens / longer" if below else ""
    lines = [
        Line(f"Deadline of the first token{by}", " / ".join(quantity(each, "s", 3) for each in deadlines.ttft_s)),
        Line("Deadline between tokens", quantity(deadlines.tbt_s, "s", 3)),
        Line("Deadlines to be met by", f"{percent(found.share, 0)} of requests"),
        Line("Clock-switch latency", quantity(engine.switch_s, "s", 3)),
        Line("Tokens processed in one step", f"at most {engine.most_step_tokens:,}"),
    ]
    text = f"{load_text(found)}."
    if found.capacity is not None:
        part = percent(found.rate_per_s / found.capacity.rate_per_s, 0)
        text = (
            f"{part} of the {number(found.capacity.rate_per_s, 3)}{SPACE}requests/s that the maximum clock sustains: {text}"
        )
    return Panel("Load", f"{number(found.rate_per_s, 3)}{SPACE}requests/s", text, lines=tuple(lines))


def policies_table(found: Steering) -> Table:
    """Each policy in a row."""
    first = found.runs[0]
    assumed: tuple[Listed[Steered], ...] = ()
    if found.with_assumed is not None:
        more = found.with_assumed
        assumed = (
            Listed(
                "Saved with assumed clocks",
                lambda run: None if run is first else more.saved(more.again(run)),
                lambda value: percent(value, 1),
            ),
            Listed("Deadlines met with those", lambda run: more.again(run).result.attainment, lambda part: percent(part, 2)),
        )
    columns: tuple[Listed[Steered], ...] = (
        Listed("Policy", lambda run: run.result.policy, numeric=False),
        Listed(
            "Energy saved",
            lambda run: None if run is first else found.saved(run),
            text_of=lambda run: saved_text(found, run),
        ),
        Listed("Deadlines met", lambda run: run.result.attainment, lambda value: percent(value, 2)),
        *assumed,
        Listed("Energy per token", lambda run: run.result.energy_per_token_j, lambda value: quantity(value, "J", 3)),
        Listed(
            "First token, P99",
            lambda run: next((each for each in run.result.ttft_p99_s if not math.isnan(each)), None),
            text_of=lambda run: waits_text([None if math.isnan(each) else each for each in run.result.ttft_p99_s]),
        ),
        Listed("Between tokens, P99", lambda run: run.result.tbt_p99_s, lambda value: quantity(value, "s", 3)),
        Listed("Mean clock", lambda run: run.result.mean_core_mhz, lambda value: f"{value:,.0f}{SPACE}MHz"),
        Listed("Clock changes", lambda run: float(run.result.switches), text_of=lambda run: f"{run.result.switches:,}"),
    )
    note = "P99: 99 % of waits are at most that long; for the first token by prompt length, short / medium / long."
    if found.with_assumed is not None:
        note += " All columns but those that say so are for known clocks only."
    return listing("Policies", found.runs, columns, note)


def saved_text(found: Steering, run: Steered) -> str:
    """What a policy saved, with the share of late requests where those are too many."""
    saved = percent(found.saved(run), 1)
    return saved if found.attains(run) else f"{saved}, but {percent(1.0 - run.result.attainment, 1)} late"

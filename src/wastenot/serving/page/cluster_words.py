"""What the page and the table of a simulated cluster say: which policy saves what, and what became of the deadlines."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence

from wastenot.core.wording import counted, sentence
from wastenot.pages.formatting import SPACE, duration, number, percent, quantity
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Column, Listed, Row, Table, listing
from wastenot.serving.cluster.classes import NAMES
from wastenot.serving.cluster.model import ChangeTimes
from wastenot.serving.cluster.objective import OBJECTIVES
from wastenot.serving.cluster.outcome import Comparison, Outcome, Spread
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.runs import RunRecord
from wastenot.serving.cluster.scenario import Scenario
from wastenot.serving.page.engine_words import clocks_note, waits_text


def about_cluster(scenario: Scenario) -> tuple[str, str]:
    """The model, and on what it runs."""
    cluster = scenario.cluster
    first = cluster.layouts[0]
    degrees = _listed([str(each.gpus) for each in cluster.layouts])
    engines = f"engines of {degrees} GPU{'' if degrees == '1' else 's'}"
    hosts = f"{counted(cluster.hosts, 'host')} of {counted(cluster.gpus_per_host, 'GPU')}"
    text = f"on {hosts}, {engines}, {first.device or 'an unnamed device'}"
    return first.model or "engine", text


def about(scenario: Scenario, found: Comparison) -> str:
    """Of what a figure is, and where its numbers come from."""
    return f"{' '.join(about_cluster(scenario))} · {found.traffic} · simulated numbers"


_DRAWN = {"trace": "", "poisson": "random ", "curve": "synthetic "}


def traffic_text(scenario: Scenario, found: Comparison) -> str:
    """What was asked of the cluster, and whether anybody ever asked it of one."""
    kind = next((_DRAWN[each.kind] for each in scenario.parts.traffic if each.label == found.traffic), "")
    first = found.outcomes[0].records
    requests = sum(each.requests for each in first) / len(first)
    rate = requests / first[0].duration_s
    runs = "one simulated run" if len(first) == 1 else f"{len(first)} simulated runs"
    cached = sum(each.cached_tokens for each in first) / max(sum(each.prompt_tokens for each in first), 1)
    prefixes = f", {percent(cached, 0)} of prompt tokens in a prefix cache" if cached else ""
    lasts = duration(first[0].duration_s)
    return f"{runs} of {requests:,.0f} {kind}requests in {lasts}, {number(rate, 3)} requests/s{prefixes}"


def effect_text(found: Comparison) -> str:
    """The headline."""
    best, first = found.best, found.outcomes[0]
    if best is None:
        return "No policy meets the deadlines of every class"
    if best is first:
        return f"No policy saves {OBJECTIVES[found.objective].noun} and meets the deadlines as {first.policy} does"
    worst = percent(_least(best, "worst_class"), 2)
    of = OBJECTIVES[found.objective].noun
    saves = f"Policy {best.policy} saves {_saving(best)} of the {of}"
    return f"{saves}; {worst} of requests met their deadlines in the worst class"


def verdict_text(scenario: Scenario, found: Comparison) -> str:
    """What the headline rests on, and what hindsight would have saved."""
    seers = "".join(
        f"; {each.policy}, chosen in hindsight, saves {saved_text(each)}" for each in found.outcomes[1:] if each.hindsight
    )
    best, first = found.best, found.outcomes[0]
    how = ""
    if best not in (None, first):
        how = f"{_serving_text(scenario, best)} instead of {_serving_text(scenario, first)}; "
    assumed = None if found.best is None else found.outcome_with_assumed(found.best.policy)
    if assumed is not None:
        seers += f"; with assumed clocks {saved_text(assumed)}"
    return f"{how}against {first.policy}, over {traffic_text(scenario, found)}{seers}"


def serving(scenario: Scenario, outcome: Outcome) -> tuple[float, float | None]:
    """GPUs that serve, and their core clock in MHz, on average over all runs; ``None`` where clocks are not known."""
    gpus, clocks = [], []
    for run in outcome.records:
        for counts, clock in zip(run.timeline.instances, run.timeline.clock_mhz, strict=True):
            gpus.append(sum(count * each.gpus for count, each in zip(counts, scenario.cluster.layouts, strict=True)))
            clocks += [] if clock is None else [clock]
    return math.fsum(gpus) / len(gpus), math.fsum(clocks) / len(clocks) if clocks else None


def _serving_text(scenario: Scenario, outcome: Outcome) -> str:
    gpus, clock = serving(scenario, outcome)
    return f"{gpus:.2g}{SPACE}GPUs" + ("" if clock is None else f" at {clock:,.0f}{SPACE}MHz")


def _latest_minute(outcome: Outcome) -> float:
    """The largest fraction of requests of a minute that were late, over all runs."""
    worst = 0.0
    for run in outcome.records:
        bins = max(round(60.0 / run.timeline.bin_s), 1)
        came, missed = ([sum(row) for row in rows] for rows in (run.timeline.arrivals, run.timeline.missed))
        for start in range(0, len(came), bins):
            worst = max(worst, sum(missed[start : start + bins]) / max(sum(came[start : start + bins]), 1))
    return worst


def failure_note(scenario: Scenario, found: Comparison) -> str | None:
    """Which policies failed, where any did."""
    failed = [each.policy for each in found.outcomes if each.failed]
    if not failed:
        return None
    asked = percent(scenario.parts.run.attain, 0)
    return f"Failed, fewer than {asked} of a class met their deadlines: {_listed(failed)}; saved at users' expense."


def notes_on(scenario: Scenario, found: Comparison) -> list[str]:
    """What to know before believing the table, first of failures."""
    failure = failure_note(scenario, found)
    notes = [] if failure is None else [failure]
    first = found.outcomes[0]
    if first.failed:
        notes.append(f"Savings are against {first.policy}, which failed itself: compare energies of those that did not.")
    notes += [
        f"{each.policy} left {counted(each.unanswered, 'request')} unanswered." for each in found.outcomes if each.unanswered
    ]
    hindsight = [each.policy for each in found.outcomes if each.hindsight]
    if hindsight:
        notes.append(f"Chosen in hindsight, with full knowledge of these requests: {_listed(hindsight)}.")
    clocks = clocks_note(scenario.cluster.layouts, used=found.with_assumed is not None)
    if clocks is not None:
        notes.append(sentence(clocks))
    bound = found.bound_per_token_j
    if bound is not None:
        notes.append(
            f"No policy can use less than {quantity(bound, 'J', 3)} per token: that is what the cheapest steps "
            "that generate these tokens use, without any idle time."
        )
    return notes


def policies_table(found: Comparison, currency: str = "") -> Table:
    """Each policy in a row; costs where they are known."""
    columns = (*_saving_columns(found, currency), *_running_columns())
    return listing("Policies", found.outcomes, columns, f"{_saving_note(found)} {_RUNNING_NOTE}".lstrip())


def savings_table(found: Comparison, currency: str = "") -> Table:
    """What each policy saves, and whether it met the deadlines: the first columns of :func:`policies_table`."""
    return listing("Policies", found.outcomes, _saving_columns(found, currency), _saving_note(found) or None)


def running_table(found: Comparison) -> Table:
    """How the cluster ran under each policy: the other columns of :func:`policies_table`."""
    name = Listed("Policy", _policy_of, numeric=False)
    return listing("Latency, power and actions", found.outcomes, (name, *_running_columns()), _RUNNING_NOTE)


def about_table(found: Comparison) -> Table:
    """What each policy does."""
    columns: tuple[Listed[Outcome], ...] = (
        Listed("Policy", _policy_of, numeric=False),
        Listed("What it does", lambda each: about_policy(each.policy), numeric=False),
    )
    return listing("What the policies do", found.outcomes, columns)


def about_policy(name: str) -> str:
    """A policy in a few words."""
    return POLICIES[name].about


_RUNNING_NOTE = (
    "P99: 99 % of requests waited, and 99 % of the timeline's bins drew, at most this. First token: by prompt length, "
    "short / medium / long."
)


def _saving_note(found: Comparison) -> str:
    seeds = len(found.outcomes[0].records)
    notes = []
    if any(each.failed for each in found.outcomes):
        notes.append("Misses deadlines: more requests of a class than are allowed to.")
    if seeds > 1:
        notes.append(f"Means over {seeds} runs (seeds), in brackets the range of savings; deadlines met: the minimum.")
    if found.objective != "energy":
        notes.append(f"Savings are in {OBJECTIVES[found.objective].noun}.")
    notes.append("Classes: length of the prompt, then of the answer: short (S), medium (M), long (L).")
    return " ".join(notes)


def _policy_of(outcome: Outcome) -> str:
    return outcome.policy


def _saving_columns(found: Comparison, currency: str) -> tuple[Listed[Outcome], ...]:
    first = found.outcomes[0]
    assumed: tuple[Listed[Outcome], ...] = ()
    if found.with_assumed is not None:
        of = {each.policy: each for each in found.with_assumed.outcomes}
        assumed = (
            Listed(
                "With assumed clocks",
                lambda each: None if each is first else of[each.policy].saved.mean,
                text_of=lambda each: saved_text(of[each.policy]),
            ),
        )
    return (
        Listed("Policy", _policy_of, numeric=False),
        _mean("Energy", lambda run: run.energy_j, lambda energy_j: quantity(energy_j, "J", 3)),
        *(_mean(title, of, text) for title, of, text in _costs(found, currency)),
        Listed(
            "Saved",
            lambda each: None if each is first else each.saved.mean,
            text_of=saved_text,
            unknown="failed" if first.failed else "–",
        ),
        *assumed,
        _mean("Energy per token", lambda run: run.energy_per_token_j, lambda token_j: quantity(token_j, "J", 3)),
        Listed("Deadlines met", lambda each: _least(each, "attainment"), lambda value: percent(value, 2)),
        Listed("Worst class", lambda each: _least(each, "worst_class"), text_of=_worst_text),
    )


def _running_columns() -> tuple[Listed[Outcome], ...]:
    return (
        Listed(
            "First token, P99",
            lambda each: next((wait for wait in each.ttft_p99_s() if wait is not None), None),
            text_of=lambda each: waits_text(each.ttft_p99_s(), " / "),
            unknown=lambda each: waits_text(each.ttft_p99_s(), " / "),
        ),
        _mean("Between tokens, P99", lambda run: run.tbt_p99_s, lambda gap_s: quantity(gap_s, "s", 2)),
        _mean("Median power", lambda run: run.power_p50_w, lambda power_w: quantity(power_w, "W", 3)),
        _mean("Power, P99", lambda run: run.power_p99_w, lambda power_w: quantity(power_w, "W", 3)),
        _mean("GPU time", lambda run: run.gpu_hours, lambda hours: f"{number(hours, 3)}{SPACE}h"),
        Listed(
            "Actions", lambda each: math.fsum(each.actions().values()), text_of=lambda each: actions_text(each.actions())
        ),
    )


_OfRun = Callable[[RunRecord], float | None]


def _mean(title: str, of: _OfRun, text: Callable[[float], str]) -> Listed[Outcome]:
    """A column of means over seeds."""

    def value(outcome: Outcome) -> float:
        return outcome.over(lambda run: of(run) or 0.0).mean

    return Listed(title, value, text)


def _least(outcome: Outcome, name: str) -> float:
    return outcome.over(lambda run: getattr(run, name)).least


def _worst_text(outcome: Outcome) -> str:
    worst = _least(outcome, "worst_class")
    return percent(worst, 2) if worst == 1.0 else f"{percent(worst, 2)} {_worst_name(outcome)}"


def _costs(found: Comparison, currency: str) -> list[tuple[str, _OfRun, Callable[[float], str]]]:
    """What runs cost, as columns; those that are known of all runs."""
    unit = f"{SPACE}{currency}" if currency else ""
    costs: list[tuple[str, _OfRun, Callable[[float], str]]] = [
        ("Cost", lambda run: run.cost, lambda cost: f"{number(cost, 3)}{unit}"),
        ("CO2e", lambda run: run.carbon_g, lambda carbon_g: quantity(carbon_g, "g", 3)),
    ]
    records = [run for one in found.outcomes for run in one.records]
    return [each for each in costs if all(each[1](run) is not None for run in records)]


def saved_text(outcome: Outcome) -> str:
    """A saving with its range over seeds, after a word of warning where a class missed its share."""
    return f"misses deadlines ({_saving(outcome)})" if outcome.failed else _saving(outcome)


def _saving(outcome: Outcome) -> str:
    least, most = (percent(each, 1) for each in (outcome.saved.least, outcome.saved.most))
    saved = percent(outcome.saved.mean, 1)
    return saved if least == most else f"{saved} ({least.removesuffix(f'{SPACE}%')} to {most})"


def actions_text(actions: dict[str, float]) -> str:
    """How many, clocks apart: they are many and cheap."""
    clocks = actions.get("SetClock", 0.0)
    others = math.fsum(count for name, count in actions.items() if name != "SetClock")
    return f"{others:,.0f}" + (f", {clocks:,.0f} clock changes" if clocks else "")


def _worst_name(outcome: Outcome) -> str:
    known = [(each, name) for each, name in zip(outcome.by_class(), NAMES, strict=True) if each is not None]
    return min(known)[1]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def classes_table(found: Comparison) -> Table:
    """The least attainment of each class over seeds, by policy."""
    count = [
        sum(sum(row[number] for row in run.timeline.arrivals) for run in found.outcomes[0].records) for number in range(9)
    ]
    there = [number for number in range(len(NAMES)) if count[number]]
    columns = (Column("Policy"), *(Column(NAMES[number], numeric=True) for number in there))
    rows = []
    for outcome in found.outcomes:
        kept = [outcome.by_class()[number] for number in there]
        texts = tuple("–" if each is None else percent(each, 2) for each in kept)
        rows.append(Row(None, (outcome.policy, *texts), (outcome.policy, *kept)))
    total = sum(count)
    shares = ", ".join(f"{NAMES[number]} {percent(count[number] / total, 0)}" for number in there)
    note = f"Length of the prompt, then of the answer: short, medium or long. Of all requests: {shares}."
    note += " Minimum over seeds." if len(found.outcomes[0].records) > 1 else ""
    return Table("Deadlines met, by class", columns, tuple(rows), note)


def panels(scenario: Scenario, found: Comparison) -> tuple[Panel, Panel, Panel]:
    """The policy that takes least, the one that savings are against, and what is asked."""
    first = found.outcomes[0]
    best = found.best or first
    return (
        _policy_panel(
            scenario, f"Lowest {OBJECTIVES[found.objective].noun} that meets the deadlines", best, saved=best is not first
        ),
        _policy_panel(scenario, "Compared with", first),
        _asked(scenario, found),
    )


def _policy_panel(scenario: Scenario, title: str, outcome: Outcome, *, saved: bool = False) -> Panel:
    token, power = outcome.over(lambda run: run.energy_per_token_j), outcome.over(lambda run: run.power_p50_w)
    per_token = f"{quantity(token.mean, 'J', 3)} per token"
    lines = (
        *((Line("Energy per token", quantity(token.mean, "J", 3)),) if saved else ()),
        Line("Deadlines met", percent(_least(outcome, "attainment"), 2)),
        Line("Worst class", f"{percent(_least(outcome, 'worst_class'), 2)}, {class_text(_worst_name(outcome))}"),
        Line("Worst minute", f"{percent(_latest_minute(outcome), 1)} of its requests late"),
        Line("Serving, on average", _serving_text(scenario, outcome)),
        Line("Energy", _spread_text(outcome.over(lambda run: run.energy_j), "J")),
        Line("Median power", quantity(power.mean, "W", 3)),
    )
    text = f"with {outcome.policy}: {about_policy(outcome.policy)}."
    return Panel(title, f"{percent(outcome.saved.mean, 1)} saved" if saved else per_token, text, lines=lines)


_LENGTHS = {"S": "short", "M": "medium", "L": "long"}


def class_text(name: str) -> str:
    """A class in words: ``short prompt, long answer``."""
    prompt, answer = name[0], name[1]
    return f"{_LENGTHS[prompt]} prompt, {_LENGTHS[answer]} answer"


def _spread_text(spread: Spread, unit: str) -> str:
    least, most = (quantity(each, unit, 3) for each in (spread.least, spread.most))
    return most if least == most else f"{least} to {most}"


def _asked(scenario: Scenario, found: Comparison) -> Panel:
    cluster, first = scenario.cluster, found.outcomes[0].records[0]
    deadlines = cluster.deadlines
    lines = (
        Line(
            "Deadline of the first token, short / medium / long prompt",
            " / ".join(quantity(each, "s", 3) for each in deadlines.ttft_s),
        ),
        Line("Deadline between tokens", quantity(deadlines.tbt_s, "s", 3)),
        Line("Deadlines to be met by", f"{percent(scenario.parts.run.attain, 0)} of each class"),
        Line(
            "Starting an instance takes",
            " / ".join(dict.fromkeys(quantity(each, "s", 3) for each in cluster.changes.start_s)),
        ),
        Line("GPUs", f"{cluster.gpus:,}"),
        Line("Power assumed", _assumed_power(cluster.changes)),
    )
    rate = first.requests / first.duration_s
    return Panel("Load", f"{number(rate, 3)}{SPACE}requests/s", f"of the traffic called {found.traffic}.", lines=lines)


def _assumed_power(changes: ChangeTimes) -> str:
    of = {
        "per GPU without an instance": changes.off_power_w,
        "per parked GPU": changes.parked_power_w,
        "per host": changes.host_power_w,
    }
    return ", ".join(f"{quantity(power_w, 'W', 3)} {where}" for where, power_w in of.items() if power_w) or "none at rest"


def next_step(scenario: Scenario, found: Comparison) -> Next | None:
    """How to see whether the headline holds; ``None`` where no policy is better than the first."""
    best, first = found.best, found.outcomes[0]
    if best is None or best is first:
        return None
    policies = f"--policy {shlex.quote(first.policy)} --policy {shlex.quote(best.policy)}"
    seeds = 2 * len(first.records) + 1
    command = f"wastenot serve simulate {shlex.quote(str(scenario.path))} {policies} --seeds {seeds} --page policies.html"
    text = f"See whether {best.policy} saves as much with more seeds, or first put your own traffic into the file"
    static = next((each for each in found.outcomes if each.hindsight and not each.failed), None)
    if static is None or (clock := serving(scenario, static)[1]) is None:
        return Next(text, (command,))
    gpus, run = serving(scenario, static)[0] / scenario.cluster.layouts[0].gpus, first.records[0]
    rate = f"--rate {run.requests / run.duration_s / gpus:.3g} --core {clock:.0f} --allow-clock-control"
    text += (
        f". {gpus:.3g} instances at a fixed {clock:,.0f}{SPACE}MHz save {percent(static.saved.mean, 1)} without any policy: "
        "measure one of yours at its part of the load (replace HOST:PORT and DEVICE)"
    )
    return Next(text, (command, f"wastenot serve bench http://HOST:PORT --device DEVICE {rate}"))

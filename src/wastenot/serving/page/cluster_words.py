"""What the page and the terminal say of a simulated cluster: which policy saves what, and what became of the deadlines."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from wastenot.core.wording import counted, listed, sentence
from wastenot.pages.formatting import SPACE, duration, fraction_of_whole, number, percent, percent_met, quantity
from wastenot.pages.panel import Line, Next, Panel
from wastenot.planning.objective_kinds import CLUSTERS
from wastenot.serving.cluster.band import band_of
from wastenot.serving.cluster.classes import NAMES
from wastenot.serving.cluster.model import ChangeTimes
from wastenot.serving.cluster.outcome import WITH_ROOM, Comparison, Outcome, Spread
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.scenario import Scenario
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.page.beforehand_text import beforehand_text
from wastenot.serving.page.simulated_words import band_text, by_deadline_note, clocks_note


def about_cluster(scenario: Scenario) -> tuple[str, str]:
    """The model, and on what it runs."""
    cluster = scenario.cluster
    first = cluster.layouts[0]
    degrees = listed([str(each.gpus) for each in cluster.layouts])
    engines = f"engines of {degrees} GPU{'' if degrees == '1' else 's'}"
    hosts = f"{counted(cluster.hosts, 'host')} of {counted(cluster.gpus_per_host, 'GPU')}"
    text = f"on {hosts}, {engines}, {first.device or 'an unnamed device'}"
    return first.model or "engine", text


def about(scenario: Scenario, found: Comparison) -> str:
    """Of what a figure is, and where its numbers come from."""
    return f"{' '.join(about_cluster(scenario))} · traffic: {found.traffic} · simulated numbers"


_DRAWN = {"trace": "", "poisson": "random ", "curve": "synthetic "}


def traffic_text(scenario: Scenario, found: Comparison) -> str:
    """What was asked of the cluster, and whether anybody ever asked it of one."""
    return f"{_requests_text(scenario, found)}, {number(_rate_per_s(found), 3)} requests/s{_cached_text(found)}"


def _requests_text(scenario: Scenario, found: Comparison) -> str:
    kind = next((_DRAWN[each.kind] for each in scenario.parts.traffic if each.label == found.traffic), "")
    first = found.outcomes[0].records
    requests = sum(each.requests for each in first) / len(first)
    runs = "one simulated run" if len(first) == 1 else f"{len(first)} simulated runs"
    return f"{runs} of {requests:,.0f} {kind}requests in {duration(first[0].duration_s)}"


def _rate_per_s(found: Comparison) -> float:
    first = found.outcomes[0].records
    return sum(each.requests for each in first) / len(first) / first[0].duration_s


def _cached_text(found: Comparison) -> str:
    first = found.outcomes[0].records
    cached = sum(each.cached_tokens for each in first) / max(sum(each.prompt_tokens for each in first), 1)
    return f", {percent(cached, 0)} of prompt tokens in a prefix cache" if cached else ""


_PLANS = ("single-pool", "best-static", "best-static-full-clock", WITH_ROOM, "best-static-in-one-pool")
_PLAIN = {"multi-pool": "pools by length", "parking": "instances in reserve", "dynamollm": "DynamoLLM"}
_PLAIN |= {"throttllem": "throttLL'eM", "greenllm": "GreenLLM"}


def plain_names(scenario: Scenario, found: Comparison) -> dict[str, str]:
    """What a page calls each policy: a plan that is kept by what serves, others in plain words."""
    names: dict[str, str] = {}
    for each in found.outcomes:
        name = plan_text(scenario, each) if each.policy in _PLANS else _PLAIN.get(each.policy, each.policy)
        names[each.policy] = f"{name} ({each.policy})" if name in names.values() else name
    return names


def effect_text(scenario: Scenario, found: Comparison) -> str:
    """The headline: what a fixed plan saves, since that can be had without control, or else what a policy saves."""
    fixed, policy, first = found.fixed_plan, found.policy_to_add, found.outcomes[0]
    noun = CLUSTERS[found.objective].quantity
    if first.failed and (kept := fixed or policy) is not None:
        token = quantity(kept.over(lambda run: run.energy_per_token_j).mean, "J", 3)
        what = plan_text(scenario, kept) if kept is fixed else plain_names(scenario, found)[kept.policy]
        return f"{token} per token with {what}; no saving is stated, as {first.policy} itself misses the deadlines"
    if fixed is not None:
        more = ""
        if policy is not None and policy.saved.mean > fixed.saved.mean:
            more = f", {percent(policy.saved.mean, 1)} with {plain_names(scenario, found)[policy.policy]}"
        return f"{percent(fixed.saved.mean, 1)} less {noun} with {plan_text(scenario, fixed)}{more}"
    if policy is not None:
        worst = percent_met(policy.worst_class)
        saves = f"Policy {plain_names(scenario, found)[policy.policy]} saves {percent(policy.saved.mean, 1)} of the {noun}"
        return f"{saves}; {worst} of requests met their deadlines in the worst class"
    if found.best is None:
        return "No policy meets the deadlines of every class"
    return f"No policy saves {noun} and meets the deadlines as {first.policy} does"


def verdict_text(scenario: Scenario, found: Comparison) -> str:
    """Whether a fixed plan meets the deadlines, and what it is compared with; what the policy of the headline rests on."""
    first, seeds = found.outcomes[0], len(found.outcomes[0].records)
    runs = "one simulated run" if seeds == 1 else f"{seeds} simulated runs"
    if (fixed := found.fixed_plan) is not None:
        met, asked = percent_met(fixed.worst_class), percent(scenario.parts.run.attain, 0)
        within = f"within the limit: {met} of the worst class met their deadlines, {asked} must"
        alone = next((each for each in found.outcomes if each.policy == "best-static-full-clock"), None)
        fewer = ""
        if alone is not None and not (first.failed or alone.failed):
            fewer = f"; {plan_text(scenario, alone)}, with no room left, save {percent(alone.saved.mean, 1)}"
        return f"{within}{fewer}. Chosen in hindsight; compared with {plan_text(scenario, first)}, over {runs}"
    policy = found.policy_to_add
    if policy is None:
        return f"over {traffic_text(scenario, found)}"
    return f"{_serving_text(scenario, policy)} instead of {_serving_text(scenario, first)}, over {runs}"


def plan_text(scenario: Scenario, outcome: Outcome) -> str:
    """What serves throughout: ``5 instances at 1,500 MHz``; over seeds and time a range, or GPUs where layouts differ."""
    counts, clocks = set[int](), set[int]()
    for run in outcome.records:
        lasts = max(int(run.duration_s / run.timeline.bin_s), 1)
        counts |= {round(math.fsum(each)) for each in run.timeline.instances[:lasts]}
        clocks |= {round(each) for each in run.timeline.clock_mhz[:lasts] if each is not None}
    if len(scenario.cluster.layouts) > 1 or not counts:
        return _serving_text(scenario, outcome)
    low, high = min(counts), max(counts)
    text = counted(high, "instance") if low == high else f"{low} to {counted(high, 'instance')}"
    if not clocks:
        return text
    slow, fast = (f"{choose(clocks):,}" for choose in (min, max))
    return f"{text} at {fast if slow == fast else f'{slow} to {fast}'}{SPACE}MHz"


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
    shown = f"{gpus:,.0f}" if gpus >= 10 else f"{gpus:.2g}"
    return f"{shown}{SPACE}GPUs" + ("" if clock is None else f" at {clock:,.0f}{SPACE}MHz")


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
    return f"Failed, fewer than {asked} of a class met their deadlines: {listed(failed)}; saved at users' expense."


def cautions_on(scenario: Scenario, found: Comparison) -> list[str]:
    """What to know before believing any number, first of failures."""
    failure = failure_note(scenario, found)
    notes = [] if failure is None else [failure]
    first = found.outcomes[0]
    if first.failed:
        notes.append(f"Savings are against {first.policy}, which failed itself: compare energies of those that did not.")
    notes += [
        f"{each.policy} left {counted(each.unanswered, 'request')} unanswered." for each in found.outcomes if each.unanswered
    ]
    notes += [text for each in found.outcomes if (text := beforehand_text(scenario, each, found.traffic)) is not None]
    within = band_of(scenario, found)
    more = (
        None if within is None else band_text(within),
        clocks_note(scenario.cluster.layouts, used=found.with_assumed is not None),
        _by_deadline_text(found),
    )
    return [*notes, *(sentence(each) for each in more if each is not None)]


def _by_deadline_text(found: Comparison) -> str | None:
    """What prefill by deadline adds to the best policy, or to the last where all failed, where prompts are prefilled so."""
    best = found.best or found.outcomes[-1]
    if found.stock is None:
        return None
    stock = found.stock.outcome(best.policy)
    first, then = (each.worst_class for each in (stock, best))
    energy_j, other_j = (each.over(lambda run: run.energy_j).mean for each in (best, stock))
    return by_deadline_note(f"{best.policy}, in the worst class,", (first, then), energy_j / other_j)


def notes_on(scenario: Scenario, found: Comparison) -> list[str]:
    """The cautions, which policies know too much, and what none of them can beat."""
    notes = cautions_on(scenario, found)
    hindsight = [each.policy for each in found.outcomes if each.hindsight]
    if hindsight:
        notes.append(f"Chosen in hindsight, with full knowledge of these requests: {listed(hindsight)}.")
    bound = found.bound_per_token_j
    if bound is not None:
        notes.append(
            f"No policy can use less than {quantity(bound, 'J', 3)} per token: that is what the cheapest steps "
            "that generate these tokens use, without any idle time."
        )
    return notes


def saved_text(outcome: Outcome) -> str:
    """A saving with its range over seeds, before a word of warning where too many of a class were late."""
    return f"{_saving(outcome)}, but too many late" if outcome.failed else _saving(outcome)


def _saving(outcome: Outcome) -> str:
    saved, ranges = percent(outcome.saved.mean, 1), _range_text(outcome.saved)
    return f"{saved} ({ranges})" if ranges else saved


def _range_text(saved: Spread) -> str:
    """The range over seeds; empty where it is none."""
    least, most = (percent(each, 1) for each in (saved.least, saved.most))
    return "" if least == most else f"{least.removesuffix(f'{SPACE}%')} to {most}"


def worst_name(outcome: Outcome) -> str:
    """The class of requests of which fewest kept their deadlines, such as ``ML``."""
    known = [(each, name) for each, name in zip(outcome.by_class(), NAMES, strict=True) if each is not None]
    return min(known)[1]


def panels(scenario: Scenario, found: Comparison) -> tuple[Panel, ...]:
    """The plan that never changes, the policy that takes least, and what is asked; what is missing is left out."""
    first, fixed, policy = found.outcomes[0], found.fixed_plan, found.policy_to_add
    noun = CLUSTERS[found.objective].quantity
    shown = []
    names = plain_names(scenario, found)
    if fixed is not None:
        text = f"{plan_text(scenario, fixed)} throughout, chosen knowing these requests: leave some room."
        if fixed.policy == WITH_ROOM:
            fewest = next((plan_text(scenario, each) for each in found.outcomes if each.policy == "best-static"), "fewer")
            room = percent(scenario.parts.run.head_room, 0)
            text = (
                f"{plan_text(scenario, fixed)} throughout: {fewest} would have done, and {room} more for safety, rounded up."
            )
        shown.append(_saving_panel(scenario, found, "A fixed clock, without any control", text, fixed))
    if policy is not None:
        title = f"Lowest {noun} that meets the deadlines" if fixed is None else "With a policy in control"
        text = f"{names[policy.policy]}: {POLICIES[policy.policy].about}."
        shown.append(_saving_panel(scenario, found, title, text, policy))
    if len(shown) < 2:
        token = first.over(lambda run: run.energy_per_token_j)
        text = f"{names[first.policy]}: {POLICIES[first.policy].about}."
        lines = _deadline_lines(first)
        shown.append(Panel("Compared with", f"{quantity(token.mean, 'J', 3)} per token", text, lines=lines))
    return (*shown, _asked(scenario, found))


def _saving_panel(scenario: Scenario, found: Comparison, title: str, text: str, outcome: Outcome) -> Panel:
    """What a policy saves, and what becomes of the deadlines."""
    first = found.outcomes[0]
    token = [quantity(each.over(lambda run: run.energy_per_token_j).mean, "J", 3) for each in (outcome, first)]
    assumed = None if found.with_assumed is None else found.with_assumed.outcome(outcome.policy)
    saved = _range_text(outcome.saved)
    lines = (
        *((Line(f"Saved in each of {len(first.records)} runs", saved),) if saved and not first.failed else ()),
        Line("Energy per token", " instead of ".join(token)),
        *_deadline_lines(outcome),
        *(() if outcome.hindsight else (Line("Serving, on average", _serving_text(scenario, outcome)),)),
        *(() if assumed is None else (Line("With assumed clocks", saved_text(assumed)),)),
    )
    head = f"{token[0]} per token" if first.failed else f"{percent(outcome.saved.mean, 1)} saved"
    return Panel(title, head, text, lines=lines)


def _deadline_lines(outcome: Outcome) -> tuple[Line, ...]:
    worst = outcome.worst_class
    return (
        Line("Deadlines met", percent_met(outcome.attainment)),
        Line("Worst class", f"{percent_met(worst)}{'' if worst == 1.0 else f', {class_text(worst_name(outcome))}'}"),
        Line("Worst minute", f"{fraction_of_whole(_latest_minute(outcome))} of its requests late"),
    )


_LENGTHS = {"S": "short", "M": "medium", "L": "long"}


def class_text(name: str) -> str:
    """A class in words: ``short prompt, long answer``."""
    prompt, answer = name[0], name[1]
    return f"{_LENGTHS[prompt]} prompt, {_LENGTHS[answer]} answer"


def _asked(scenario: Scenario, found: Comparison) -> Panel:
    cluster, against = scenario.cluster, found.outcomes[0]
    deadlines = cluster.deadlines
    plan, name = plan_text(scenario, against), plain_names(scenario, found)[against.policy]
    lines = (
        Line("Compared with", plan if plan == name else f"{name}, {plan}"),
        Line(
            f"Deadline of the first token, {_lengths_text(deadlines.prompt_below)}",
            " / ".join(quantity(each, "s", 3) for each in deadlines.ttft_s),
        ),
        Line("Deadline between tokens", quantity(deadlines.tbt_s, "s", 3)),
        Line("Deadlines to be met by", f"{percent(scenario.parts.run.attain, 0)} of each class"),
        Line(
            "Starting an instance takes",
            " / ".join(dict.fromkeys(quantity(each, "s", 3) for each in cluster.changes.start_s)),
        ),
        Line("Power assumed", f"{_assumed_power(cluster.changes)}; part of all energies, for {cluster.gpus:,} GPUs"),
    )
    text = f"in {_requests_text(scenario, found)}{_cached_text(found)}."
    return Panel("Load", f"{number(_rate_per_s(found), 3)}{SPACE}requests/s", text, lines=lines)


def _lengths_text(prompt_below: Sequence[float]) -> str:
    """What short, medium and long prompts are: ``short (below 256 tokens) / medium (below 1,024) / long prompt``."""
    if len(prompt_below) != 2:
        return "by prompt length"
    short, medium = (f"{each:,.0f}" for each in prompt_below)
    return f"short (below {short} tokens) / medium (below {medium}) / long prompt"


def _assumed_power(changes: ChangeTimes) -> str:
    of = {
        "per GPU without an instance": changes.off_power_w,
        "per parked GPU": changes.parked_power_w,
        "per host": changes.host_power_w,
    }
    return ", ".join(f"{quantity(power_w, 'W', 3)} {where}" for where, power_w in of.items() if power_w) or "none at rest"


def replay_command(deadlines: Deadlines) -> str:
    """What those who have servers of their own try next, with the deadlines of the scenario."""
    asked = ""
    by_length = deadlines.ttft_s != LITERATURE.ttft_s and deadlines.prompt_below == LITERATURE.prompt_below
    if by_length or not deadlines.prompt_below:
        asked = f" --ttft {','.join(f'{each:g}s' for each in deadlines.ttft_s)}"
    if deadlines.tbt_s != LITERATURE.tbt_s:
        asked += f" --tbt {deadlines.tbt_s:g}s"
    return f"wastenot serve control ENGINE.json --replay http://PROMETHEUS:9090{asked}"


def next_step(scenario: Scenario, found: Comparison) -> Next | None:
    """How to see whether the headline holds; ``None`` where nothing saves."""
    first, fixed, policy = found.outcomes[0], found.fixed_plan, found.policy_to_add
    compared = [each.policy for each in (first, fixed, policy) if each is not None]
    if len(compared) < 2:
        return None
    policies = " ".join(f"--policy {shlex.quote(each)}" for each in compared)
    seeds = 2 * len(first.records) + 1
    command = f"wastenot serve simulate {shlex.quote(str(scenario.path))} {policies} --seeds {seeds} --page policies.html"
    gpus, clock = (0.0, None) if fixed is None else serving(scenario, fixed)
    if clock is None:
        return Next("Put your own traffic into the file, and see whether this holds with more seeds", (command,))
    rate = _rate_per_s(found) * scenario.cluster.layouts[0].gpus / gpus
    bench = (
        f"wastenot serve bench http://HOST:PORT --device DEVICE --rate {rate:.3g} --core {clock:.0f} --allow-clock-control"
    )
    text = (
        "See what your own servers would have saved in the last hour, which only reads their Prometheus; measure one at its "
        f"part of the load, at the default clocks and at {clock:,.0f}{SPACE}MHz, while nobody else uses it (replace "
        "HOST:PORT and DEVICE); then run the scenario with your own traffic and more seeds"
    )
    return Next(text, (replay_command(scenario.cluster.deadlines), bench, command))

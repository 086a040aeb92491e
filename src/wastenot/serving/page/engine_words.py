"""What tables, pages and terminals say of an engine's profile."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.core.origin import Origin
from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.pages.formatting import SPACE, number, percent, quantity, setting_text
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Column, Listed, Row, Table, listing
from wastenot.serving.model.operating_points import OperatingPoint, PrefillPoint
from wastenot.serving.model.profile_file import EngineProfile, StatedError
from wastenot.serving.page.simulated_words import clocks_note

_HOW = {"measured": "steps as measured", "fitted": "fitted to steps", "kernels": "estimated from kernel measurements"}
_MOST_BATCHES = 8  # columns of a table
_LIMITS = (0.0, 0.02, 0.05)  # on how much longer a token may take
_TO_NAME = 0.0005  # a saving that is shown as more than 0.0 %


def origin_of(profile: EngineProfile) -> Origin:
    """Where its numbers come from: the weakest of its engines counts."""
    evidences = {each.tables.evidence for each in profile.engines}
    return "forecast" if "forecast" in evidences else "simulated" if "simulated" in evidences else "measured"


def source_text(profile: EngineProfile) -> str:
    """How its tables came about."""
    return " and ".join(dict.fromkeys(_HOW[each.tables.source] for each in profile.engines))


def name_of(profile: EngineProfile) -> tuple[str, str]:
    """Model and device, or words where they have no name."""
    return profile.model or "an engine", profile.device or "an unnamed device"


def profile_notes(profile: EngineProfile, *, assumed_clocks: bool) -> tuple[str, ...]:
    """Its caveats, with what to know of assumed clocks."""
    clocks = clocks_note(profile.engines, used=assumed_clocks)
    return profile.notes if clocks is None else (*profile.notes, clocks)


def about(profile: EngineProfile, context: float) -> str:
    """Of what a figure is, and where its numbers come from."""
    model, device = name_of(profile)
    return f"{model} on {device} · {context:,.0f}{SPACE}tokens of context · {origin_of(profile)} numbers"


def gpus_text(gpus: int) -> str:
    """A parallel degree."""
    return counted(gpus, "GPU").replace(" ", SPACE)


def clocks_table(points: Sequence[OperatingPoint], gpus: int, most: int | None = None) -> Table | None:
    """Energy per token by clock (rows) and batch (columns); the least of each batch is marked.

    Args:
        points: of all degrees.
        gpus: the degree.
        most: rows about as many of which are shown, those with a mark among them; by default all.

    Returns:
        ``None`` where there are no points.
    """
    mine = [each for each in points if each.gpus == gpus]
    if not mine:
        return None
    batches = sorted({each.batch for each in mine})
    batches = batches if len(batches) <= _MOST_BATCHES else [*batches[:: -(-len(batches) // _MOST_BATCHES)], batches[-1]]
    batches = sorted(set(batches))
    rows = []
    assumed = {each.setting for each in mine if each.assumed}
    settings = list(dict.fromkeys(each.setting for each in mine))
    every = 1 if most is None else -(-len(settings) // most)
    marked = {each.setting for each in mine if each.is_least and each.batch in batches}
    shown = [each for index, each in enumerate(settings) if (len(settings) - 1 - index) % every == 0 or each in marked]
    for setting in shown:
        by_batch = {each.batch: each for each in mine if each.setting == setting}
        cells = [by_batch.get(batch) for batch in batches]
        rows.append(
            Row(
                None,
                (
                    _clock_text(setting, assumed=setting in assumed),
                    *("" if each is None else _energy(each) for each in cells),
                ),
                (setting.core_mhz, *(None if each is None else each.energy_per_token_j for each in cells)),
            )
        )
    hidden = f" {len(shown)} of {len(settings)} clocks; --json lists all." if len(shown) < len(settings) else ""
    columns = (Column("Clock"), *(Column(f"batch {batch:,.0f}", True) for batch in batches))
    return Table(f"Energy per token, {gpus_text(gpus)}", columns, tuple(rows), f"*: the lowest of its batch size.{hidden}")


def frontier_table(points: Sequence[OperatingPoint], *, ends_only: bool = False) -> Table | None:
    """Points that no other beats in latency and energy per token, the fastest first; ``None`` where there are none.

    Args:
        points: of all degrees.
        ends_only: of each batch size only the fastest of them and the one of least energy.
    """
    if not points:
        return None
    best = sorted((each for each in points if each.on_frontier), key=lambda each: each.latency_s)
    note = "Every other batch size and clock is slower, or costs more per token than one of these."
    if ends_only and len(shown := _ends(best)) < len(best):
        note = (
            f"{len(shown)} of the {len(best)} best choices: of each batch size the fastest and the cheapest; --json lists "
            "all. Every other batch size and clock is slower, or costs more per token than one of these."
        )
        best = shown
    several = len({each.gpus for each in points}) > 1
    columns: tuple[Listed[OperatingPoint], ...] = (
        *((Listed("GPUs", lambda each: each.gpus),) if several else ()),
        Listed("Batch", lambda each: each.batch, lambda value: f"{value:,.0f}"),
        Listed("Clock", lambda each: each.setting.core_mhz, text_of=_clock, unknown=_clock),
        Listed("Between tokens", lambda each: each.latency_s, lambda value: quantity(value, "s", 3)),
        Listed("Per token", lambda each: each.energy_per_token_j, lambda value: f"{number(value, 3)}{SPACE}J"),
        Listed("Power", lambda each: each.power_w, lambda value: quantity(value, "W", 3)),
    )
    return listing("Best choices: latency and energy per token", best, columns, note)


def _ends(best: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """The first and the last of each batch size and degree, in the order given."""
    by_batch: dict[tuple[int, float], list[OperatingPoint]] = {}
    for each in best:
        by_batch.setdefault((each.gpus, each.batch), []).append(each)
    return [each for each in best if each in (by_batch[each.gpus, each.batch][0], by_batch[each.gpus, each.batch][-1])]


def prefill_table(points: Sequence[PrefillPoint]) -> Table | None:
    """Prompts at the maximum clock and at the one of least energy; ``None`` where there are no prefill steps."""
    by_prompt: dict[tuple[int, float], list[PrefillPoint]] = {}
    for each in points:
        by_prompt.setdefault((each.gpus, each.tokens), []).append(each)
    pairs = [(mine[-1], min(mine, key=lambda each: each.energy_j)) for mine in by_prompt.values()]
    columns: tuple[Listed[tuple[PrefillPoint, PrefillPoint]], ...] = (
        *((Listed("GPUs", lambda pair: pair[0].gpus),) if len({each.gpus for each in points}) > 1 else ()),
        Listed("Tokens", lambda pair: pair[0].tokens, lambda value: f"{value:,.0f}"),
        Listed("Time", lambda pair: pair[0].time_s, lambda value: quantity(value, "s", 3)),
        Listed("Energy", lambda pair: pair[0].energy_j, lambda value: quantity(value, "J", 3)),
        Listed("Lowest energy at", lambda pair: pair[1].setting.core_mhz, text_of=_least_clock, unknown=_least_clock),
        Listed("Time there", lambda pair: pair[1].time_s, lambda value: quantity(value, "s", 3)),
        Listed("Energy there", lambda pair: pair[1].energy_j, lambda value: quantity(value, "J", 3)),
    )
    return listing("Prompts", pairs, columns) if pairs else None


def _clock(point: OperatingPoint) -> str:
    return _clock_text(point.setting, assumed=point.assumed)


def _clock_text(setting: Setting, *, assumed: bool) -> str:
    return f"{setting_text(setting)}, assumed" if assumed else setting_text(setting)


def _least_clock(pair: tuple[PrefillPoint, PrefillPoint]) -> str:
    return setting_text(pair[1].setting)


def errors_table(profile: EngineProfile) -> Table | None:
    """How far the profile is from measurements; ``None`` where it was not judged."""
    columns: tuple[Listed[StatedError], ...] = (
        Listed("What", lambda each: each.quantity, numeric=False),
        Listed("GPUs", lambda each: each.gpus),
        Listed("Mean error", lambda each: each.mean, lambda value: percent(value, 1)),
        Listed("Largest", lambda each: each.largest, lambda value: percent(value, 1)),
        Listed("Steps", lambda each: each.points, lambda value: f"{value:,}"),
        Listed("Compared with", lambda each: each.judged_by, numeric=False),
    )
    return listing("Error against measurements", profile.errors, columns) if profile.errors else None


def effect_text(points: Sequence[OperatingPoint]) -> str:
    """The headline: what a clock saves within limits on the latency at a typical batch, where clocks can be compared."""
    if not points:
        return "Prompts only: there are no decode steps"
    mine = typical(points)
    if mine is None:
        low, high = (choose(each.energy_per_token_j for each in points) for choose in (min, max))
        return f"{quantity(low, 'J', 3)} to {quantity(high, 'J', 3)} per token, by batch size"
    at = f"at batch size {mine[-1].batch:,.0f}"
    least = min(mine, key=_energy_of)
    if _saved(least, mine) <= 0.0:
        return f"No lower clock saves energy {at}"
    best = headline_point(mine)
    assert best is not None
    where = f"{'' if best.setting.core_mhz is None else 'A core clock of '}{setting_text(best.setting)}"
    return f"{where} saves {percent(_saved(best, mine), 1)} of the energy per token {at}, {_slower(best, mine)}"


def headline_point(mine: Sequence[OperatingPoint] | None) -> OperatingPoint | None:
    """What the headline is of: the most that is saved within the limits on the latency, else at whatever latency."""
    if mine is None or _saved(least := min(mine, key=_energy_of), mine) <= 0.0:
        return None
    best = _within(mine, _LIMITS[-1])
    return best if _saved(best, mine) >= _TO_NAME else least


def verdict_text(profile: EngineProfile, points: Sequence[OperatingPoint]) -> str:
    """Whether that is within the limit and what lower ones save; else what it is compared with; how sure the steps are."""
    mine = typical(points) if points else None
    best = headline_point(mine)
    said = [] if mine is None else [f"compared with {setting_text(mine[-1].setting, 'the default clocks')}"]
    times = [each for each in profile.errors if each.quantity == "decode time"]
    right = (
        "" if not times else f", mean error {percent(sum(each.mean for each in times) / len(times), 1)} on held-out steps"
    )
    if mine is None or best is None or best is not _within(mine, _LIMITS[-1]):
        return ", ".join((*said, f"{source_text(profile)}{right}"))
    lower = [(each, _saved(_within(mine, each), mine)) for each in _LIMITS[-2::-1]]
    saves = [f"{_allowed(each)} saves {percent(saved, 1) if saved >= _TO_NAME else 'nothing'}" for each, saved in lower]
    limit = f"within the limit of {percent(_LIMITS[-1], 0)} slower, {said[0]}{right}"
    return f"{limit}; {', '.join(saves)}"


def next_step(profile: EngineProfile, points: Sequence[OperatingPoint], context: float) -> Next:
    """Measure a server at the clock of the headline, where there is one, and simulate policies that set it."""
    simulate = "wastenot serve simulate ENGINE.json --trace REQUESTS.csv --load 50% --page POLICIES.html"
    requests = "on your requests, a CSV file with arrival_s, prompt_tokens and output_tokens"
    best = headline_point(typical(points)) if points else None
    options = "" if best is None else clock_options(best.setting)
    if best is None or not options:
        return Next(f"Simulate policies that set this engine's clocks {requests}", (simulate,))
    load = f"--batch {best.batch:.0f} --prompt-tokens {context:.0f}"
    text = (
        f"Measure a server at the default clocks and at {setting_text(best.setting)} (replace HOST:PORT and DEVICE); then "
        f"simulate policies {requests}"
    )
    return Next(text, (f"wastenot serve bench http://HOST:PORT --device DEVICE {load}{options}", simulate))


def clock_options(setting: Setting) -> str:
    """How ``wastenot serve bench`` is told to measure a setting; empty for the default clocks."""
    values = (("--core", setting.core_mhz), ("--memory", setting.memory_mhz), ("--power-limit", setting.power_limit_w))
    options = "".join(f" {name} {value:g}" for name, value in values if value is not None)
    return f"{options} --allow-clock-control" if options else ""


def engine_lines(profile: EngineProfile) -> tuple[Line, ...]:
    """What the engine is, whatever its clock."""
    engine = profile.engines[0]
    return (
        Line("GPUs that share the model", ", ".join(gpus_text(each.gpus) for each in profile.engines)),
        Line("KV cache", f"{engine.cache_blocks * engine.block_tokens:,} tokens"),
        Line("Requests at once", f"at most {engine.most_running:,}"),
        Line("Time to switch clocks", quantity(engine.switch_s, "s", 2)),
    )


def panels(profile: EngineProfile, points: Sequence[OperatingPoint]) -> tuple[Panel, ...]:
    """What the headline is of, the cheapest token and the fastest one; what the engine is where one of them is missing."""
    model, device = name_of(profile)
    engine = Panel("Engine", model, f"on {device}.", lines=engine_lines(profile))
    if not points:
        return (engine,)
    cheapest, fastest = (min(points, key=of) for of in (_energy_of, lambda each: each.latency_s))
    energy, gap = quantity(fastest.energy_per_token_j, "J", 3), quantity(cheapest.latency_s, "s", 3)
    ends = (
        _panel(
            "Lowest energy",
            f"{quantity(cheapest.energy_per_token_j, 'J', 3)} per token",
            f"with {gap} between tokens.",
            cheapest,
        ),
        _panel("Lowest latency", f"{quantity(fastest.latency_s, 's', 3)} per token", f"at {energy} per token.", fastest),
    )
    mine = typical(points)
    return (
        (*ends, engine)
        if mine is None or _saved(cheap := min(mine, key=_energy_of), mine) <= 0.0
        else (_typical_panel(mine, cheap), *ends)
    )


def _typical_panel(mine: Sequence[OperatingPoint], least: OperatingPoint) -> Panel:
    """What is saved within each limit on the latency, and by the clock of least energy, at one batch size."""
    limit, default = _LIMITS[-1], mine[-1]
    best = _within(mine, limit)
    lines = [
        Line("Energy per token", _from_to(default.energy_per_token_j, best.energy_per_token_j, "J")),
        Line("Time between tokens", _from_to(default.latency_s, best.latency_s, "s")),
        Line("Power", _from_to(default.power_w, best.power_w, "W")),
        Line("However slow", f"{percent(_saved(least, mine), 1)} at {setting_text(least.setting)}, {_slower(least, mine)}"),
    ]
    text = (
        f"at {setting_text(best.setting)} and batch size {best.batch:,.0f}, which stands for usual loads; "
        f"{_slower(best, mine)} than at {setting_text(default.setting, 'the default clocks')}."
    )
    return Panel(_allowed(limit).capitalize(), f"{percent(_saved(best, mine), 1)} saved", text, lines=tuple(lines))


def _within(mine: Sequence[OperatingPoint], limit: float) -> OperatingPoint:
    """The point of least energy that takes no more than a fraction longer than the last, which is the default."""
    return min((each for each in mine if each.latency_s <= (1.0 + limit) * mine[-1].latency_s), key=_energy_of)


def _saved(best: OperatingPoint, mine: Sequence[OperatingPoint]) -> float:
    return 1.0 - best.energy_per_token_j / mine[-1].energy_per_token_j


def _slower(best: OperatingPoint, mine: Sequence[OperatingPoint]) -> str:
    return f"{percent(best.latency_s / mine[-1].latency_s - 1.0, 1)} slower"


def _allowed(limit: float) -> str:
    return f"at most {percent(limit, 0)} slower" if limit else "no slower"


def _from_to(before: float, after: float, unit: str) -> str:
    return f"{quantity(after, unit, 3)} instead of {quantity(before, unit, 3)}"


def _panel(title: str, value: str, text: str, point: OperatingPoint) -> Panel:
    lines = (
        Line("Clock", setting_text(point.setting)),
        Line("Batch size", f"{point.batch:,.0f} on {gpus_text(point.gpus)}"),
        Line("Power", quantity(point.power_w, "W", 3)),
    )
    return Panel(title, value, text, lines=lines)


def _energy_of(point: OperatingPoint) -> float:
    return point.energy_per_token_j


def typical(points: Sequence[OperatingPoint]) -> tuple[OperatingPoint, ...] | None:
    """Those at the batch nearest to 64 on the fewest GPUs, the default clocks or else the maximum clock last.

    Points that are assumed do not count.
    """
    points = [each for each in points if not each.assumed] or points
    gpus = min(each.gpus for each in points)
    batch = min((each.batch for each in points if each.gpus == gpus), key=lambda each: abs(each - 64.0))
    mine = tuple(each for each in points if (each.gpus, each.batch) == (gpus, batch))
    return None if len(mine) < 2 else mine


def _energy(point: OperatingPoint) -> str:
    return quantity(point.energy_per_token_j, "J", 3) + ("*" if point.is_least else SPACE)

"""What tables, pages and terminals say of an engine's profile."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.core.origin import Origin
from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.pages.formatting import SPACE, percent, quantity
from wastenot.pages.panel import Line, Panel
from wastenot.pages.table import Column, Row, Table
from wastenot.serving.model.operating_points import OperatingPoint, PrefillPoint
from wastenot.serving.model.profile_file import EngineProfile

_HOW = {"measured": "steps as they are", "fitted": "fitted to steps", "kernels": "composed of kernels"}
_MOST_BATCHES = 8  # columns of a table


def origin_of(profile: EngineProfile) -> Origin:
    """Where its numbers come from: the weakest of its engines counts."""
    evidences = {each.tables.evidence for each in profile.engines}
    return "forecast" if "forecast" in evidences else "simulated" if "simulated" in evidences else "measured"


def source_text(profile: EngineProfile) -> str:
    """How its tables came about."""
    return " and ".join(dict.fromkeys(_HOW[each.tables.source] for each in profile.engines))


def name_of(profile: EngineProfile) -> tuple[str, str]:
    """Model and device, or words where they have no name."""
    return profile.model or "an engine", profile.device or "a device without a name"


def about(profile: EngineProfile, context: float) -> str:
    """Of what a figure is, and where its numbers come from."""
    model, device = name_of(profile)
    return f"{model} on {device} · {context:,.0f}{SPACE}tokens of context · {origin_of(profile)}, {source_text(profile)}"


def setting_text(setting: Setting) -> str:
    """A setting in few words."""
    if setting.is_auto:
        return "auto"
    parts = [] if setting.core_mhz is None else [f"{setting.core_mhz:g}{SPACE}MHz"]
    if setting.memory_mhz is not None:
        parts.append(f"memory {setting.memory_mhz:g}{SPACE}MHz")
    if setting.power_limit_w is not None:
        parts.append(f"{setting.power_limit_w:g}{SPACE}W")
    return ", ".join(parts)


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
                (setting_text(setting), *("" if each is None else _energy(each) for each in cells)),
                (setting.core_mhz, *(None if each is None else each.energy_per_token_j for each in cells)),
            )
        )
    hidden = f" {len(shown)} of {len(settings)} clocks; --json lists all." if len(shown) < len(settings) else ""
    columns = (Column("Clock"), *(Column(f"batch {batch:,.0f}", True) for batch in batches))
    return Table(f"Energy per token, {gpus_text(gpus)}", columns, tuple(rows), f"*: the least of its batch size.{hidden}")


def frontier_table(points: Sequence[OperatingPoint]) -> Table | None:
    """Points that no other beats in latency and energy per token, the fastest first; ``None`` where there are none."""
    if not points:
        return None
    best = sorted((each for each in points if each.on_frontier), key=lambda each: each.latency_s)
    several = len({each.gpus for each in points}) > 1
    rows = tuple(
        Row(
            None,
            (
                *((f"{each.gpus}",) if several else ()),
                f"{each.batch:,.0f}",
                setting_text(each.setting),
                quantity(each.latency_s, "s", 3),
                quantity(each.energy_per_token_j, "J", 3),
                quantity(each.power_w, "W", 3),
            ),
            (
                *((each.gpus,) if several else ()),
                each.batch,
                each.setting.core_mhz,
                each.latency_s,
                each.energy_per_token_j,
                each.power_w,
            ),
        )
        for each in best
    )
    columns = (
        *((Column("GPUs", True),) if several else ()),
        Column("Batch", True),
        Column("Clock", True),
        Column("Between tokens", True),
        Column("Per token", True),
        Column("Power", True),
    )
    note = "Every other batch size and clock is slower, or costs more per token, than one of these."
    return Table("Best choices: latency and energy per token", columns, rows, note)


def prefill_table(points: Sequence[PrefillPoint]) -> Table | None:
    """Prompts at the greatest clock and at the one of least energy; ``None`` where there are no prefill steps."""
    rows = []
    for gpus, tokens in dict.fromkeys((each.gpus, each.tokens) for each in points):
        mine = [each for each in points if (each.gpus, each.tokens) == (gpus, tokens)]
        fastest, least = mine[-1], min(mine, key=lambda each: each.energy_j)
        texts = (
            f"{gpus}",
            f"{tokens:,.0f}",
            quantity(fastest.time_s, "s", 3),
            quantity(fastest.energy_j, "J", 3),
            setting_text(least.setting),
            quantity(least.time_s, "s", 3),
            quantity(least.energy_j, "J", 3),
        )
        values = (gpus, tokens, fastest.time_s, fastest.energy_j, least.setting.core_mhz, least.time_s, least.energy_j)
        rows.append(Row(None, texts, values))
    titles = ("GPUs", "Tokens", "Time", "Energy", "Least at", "Time there", "Energy there")
    return Table("Prompts", tuple(Column(title, True) for title in titles), tuple(rows)) if rows else None


def errors_table(profile: EngineProfile) -> Table | None:
    """How far the profile is from measurements; ``None`` where it was not judged."""
    rows = tuple(
        Row(
            None,
            (
                each.quantity,
                f"{each.gpus}",
                percent(each.mean, 1),
                percent(each.largest, 1),
                f"{each.points:,}",
                each.judged_by,
            ),
            (each.quantity, each.gpus, each.mean, each.largest, each.points, each.judged_by),
        )
        for each in profile.errors
    )
    columns = (
        Column("What"), Column("GPUs", True), Column("Mean error", True), Column("Largest", True), Column("Steps", True),
        Column("Judged by"),
    )  # fmt: skip
    return Table("How far it is from measurements", columns, rows) if rows else None


def effect_text(points: Sequence[OperatingPoint]) -> str:
    """The headline: what the best clock saves at a typical batch, where clocks can be compared."""
    if not points:
        return "Prompts only: there are no decode steps"
    found = _typical(points)
    if found is None:
        low, high = (choose(each.energy_per_token_j for each in points) for choose in (min, max))
        return f"{quantity(low, 'J', 3)} to {quantity(high, 'J', 3)} a token, by batch size"
    least, greatest = found
    saved = 1.0 - least.energy_per_token_j / greatest.energy_per_token_j
    if least is greatest:
        return f"No lower clock saves energy at a batch of {least.batch:,.0f}"
    slower = least.latency_s / greatest.latency_s - 1.0
    return (
        f"{percent(saved, 1)} less energy per token at {setting_text(least.setting)}, {percent(slower, 1)} slower, "
        f"at a batch of {least.batch:,.0f}"
    )


def verdict_text(profile: EngineProfile, points: Sequence[OperatingPoint]) -> str:
    """What that rests on."""
    found = _typical(points) if points else None
    against = "" if found is None else f"against {setting_text(found[1].setting)}; "
    times = [each for each in profile.errors if each.quantity == "decode time"]
    right = "" if not times else f", right to {percent(sum(each.mean for each in times) / len(times), 1)} on steps held out"
    return f"{against}{origin_of(profile)}, {source_text(profile)}{right}"


def panels(profile: EngineProfile, points: Sequence[OperatingPoint]) -> tuple[Panel, ...]:
    """The cheapest token and the fastest one, and what the engine is."""
    engine = profile.engines[0]
    lines = (
        Line("Parallel degrees", ", ".join(str(each.gpus) for each in profile.engines)),
        Line("Cache", f"{engine.cache_blocks * engine.block_tokens:,} tokens"),
        Line("Requests at once", f"{engine.most_running:,}"),
        Line("Clock changes in", quantity(engine.switch_s, "s", 2)),
    )
    model, device = name_of(profile)
    found = []
    if points:
        found.append(_panel("Cheapest token", min(points, key=lambda each: each.energy_per_token_j)))
        found.append(_panel("Fastest token", min(points, key=lambda each: each.latency_s)))
    return *found, Panel("Engine", model, f"on {device}.", lines=lines)


def _panel(title: str, point: OperatingPoint) -> Panel:
    lines = (
        Line("Clock", setting_text(point.setting)),
        Line("Batch", f"{point.batch:,.0f} on {gpus_text(point.gpus)}"),
        Line("Power", quantity(point.power_w, "W", 3)),
    )
    text = f"and {quantity(point.latency_s, 's', 3)} between two."
    return Panel(title, f"{quantity(point.energy_per_token_j, 'J', 3)} a token", text, lines=lines)


def _typical(points: Sequence[OperatingPoint]) -> tuple[OperatingPoint, OperatingPoint] | None:
    """At the batch nearest to 64 on the fewest GPUs: the point of least energy, and that at the greatest clock."""
    gpus = min(each.gpus for each in points)
    batch = min((each.batch for each in points if each.gpus == gpus), key=lambda each: abs(each - 64.0))
    mine = [each for each in points if (each.gpus, each.batch) == (gpus, batch)]
    return None if len(mine) < 2 else (min(mine, key=lambda each: each.energy_per_token_j), mine[-1])


def _energy(point: OperatingPoint) -> str:
    return quantity(point.energy_per_token_j, "J", 3) + ("*" if point.is_least else SPACE)

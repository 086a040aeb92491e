"""Operating points of servers and simulated runs of clusters as tables of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wastenot.core.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from wastenot.serving.bench.measure import Served, ServerSweepOutcome
    from wastenot.serving.tables.cluster_store import ClusterRunSummary
    from wastenot.serving.tables.records import ServingPoint
    from wastenot.serving.tables.store import ServingSummary, StoredRun


def servers_text(servers: Sequence[ServingSummary], runs: Sequence[StoredRun]) -> list[RenderableType]:
    """The servers of a study: what there is of each, and when it was measured or imported; nothing where there are none."""
    from rich.markup import escape

    from wastenot.terminal.tables import plain_table

    if not runs:
        return []
    table = plain_table(
        ("server of", "on", "load", "evidence"),
        ("points", "batch sizes", "settings", "lowest mJ per token", "lowest median ITL (ms)"),
        less_important=("settings", "evidence"),
    )
    for server in servers:
        unstable = f" ({server.unstable:,} unstable)" if server.unstable else ""
        least, most = server.max_running
        table.add_row(
            escape(server.model),
            escape(f"{server.gpus} × {server.gpu}" if server.gpus > 1 else server.gpu),
            escape(server.task),
            server.evidence,
            f"{server.points:,}{unstable}",
            f"{least:,}" if least == most else f"{least:,} to {most:,}",
            f"{server.settings:,}",
            "-" if server.energy_per_token_j is None else f"{1e3 * server.energy_per_token_j:.4g}",
            "-" if server.itl_p50_s is None else f"{1e3 * server.itl_p50_s:.4g}",
        )
    return ["", table, "", "points of servers", *(f"  {escape(_run_line(run))}" for run in runs)]


def _run_line(run: StoredRun) -> str:
    if not run.wanted:
        return f"{run.started_at:%Y-%m-%d %H:%M} UTC  {counted(run.points, 'point')} from {run.source}"
    how_far = f"{run.points:,} of {counted(len(run.wanted), 'point')} of {run.source}"
    if run.finished_at is not None:
        return f"{run.started_at:%Y-%m-%d %H:%M} UTC  {how_far}; finished"
    again = f"; resume it: {run.command}" if run.command else ""
    return f"{run.started_at:%Y-%m-%d %H:%M} UTC  {how_far}; not finished{again}"


def points_text(served: Served, outcome: ServerSweepOutcome) -> RenderableType:
    """The points of a sweep as a table, and what to know of them."""
    from rich.markup import escape

    from wastenot.serving.bench.measure import pareto
    from wastenot.terminal.tables import Group, plain_table

    best = pareto(outcome.points)
    metered = any(point.energy_per_token_j is not None for point in outcome.points)
    settings = len({point.setting for point in outcome.points}) > 1
    columns = ["running", "tokens/s"]
    columns += ["power (W)", "mJ per token", "J per request"] if metered else []
    columns += ["ITL median (ms)", "P99", "TTFT median (ms)", "P99 "]
    table = plain_table(
        ("load", "clocks") if settings else ("load",), tuple(columns), less_important=("P99 ", "power (W)", "running")
    )
    for point in outcome.points:
        load = f"{point.max_running:,}" if point.rate_per_s is None else f"{point.rate_per_s:g}/s"
        marked = f"{load} {'*' if point in best else '' if point.is_stable else '(unstable)'}".rstrip()
        row = [marked, *([str(point.setting)] if settings else [])]
        row += [_number(point.mean_running, ".1f"), f"{point.tokens_per_s:,.1f}"]
        row += [_number(point.power_w, ".1f"), _energy(point), _number(point.energy_per_request_j, ".4g")] if metered else []
        row += [_ms(point.itl.p50_s), _ms(point.itl.p99_s), _ms(point.ttft.p50_s), _ms(point.ttft.p99_s)]
        table.add_row(*row)
    kinds = dict.fromkeys(point.evidence for point in outcome.points)
    on = "" if served.gpu == "unknown" else f" on {served.gpus} × {served.gpu}"
    head = f"[bold]{escape(served.model)}[/]{escape(on)}, load {escape(served.task)}"
    lines: list[RenderableType] = [f"{head} ({', '.join(kinds)})", "", table]
    if len(best) > 1:
        lines.append("* no other point has both lower energy and a shorter median time between tokens (ITL)")
    notes = dict.fromkeys(
        f"  {load_of(point)}: {note}" for point in outcome.points for note in (point.why_unstable, *point.notes) if note
    )
    return Group(*lines, *(["", "notes", *map(escape, notes)] if notes else []))


def load_of(point: ServingPoint) -> str:
    """The load of a point, and its clocks."""
    load = f"batch {point.max_running:,}" if point.rate_per_s is None else f"{point.rate_per_s:g} requests/s"
    return load if point.setting.is_auto else f"{load} at {point.setting}"


def _energy(point: ServingPoint) -> str:
    if point.energy_per_token_j is None:
        return "-"
    error = "" if point.energy_per_token_se_j is None else f" ± {1e3 * point.energy_per_token_se_j:.2g}"
    return f"{1e3 * point.energy_per_token_j:.4g}{error}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:,.0f}" if seconds >= 10.0 else f"{1e3 * seconds:.4g}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:,{form}}"


def cluster_runs_text(runs: Sequence[ClusterRunSummary]) -> list[RenderableType]:
    """The simulated clusters of a study, a run in each line; nothing where there are none."""
    from rich.markup import escape

    from wastenot.pages.formatting import percent, quantity
    from wastenot.terminal.tables import plain_table

    if not runs:
        return []
    table = plain_table(
        ("simulated cluster", "traffic", "policy", "kept (UTC)"),
        ("seed", "requests", "energy", "worst class"),
        less_important=("requests", "kept (UTC)", "seed"),
    )
    for run in runs:
        table.add_row(
            escape(run.scenario),
            escape(run.traffic),
            escape(run.policy),
            f"{run.recorded_at:%Y-%m-%d %H:%M}",
            f"{run.seed}",
            f"{run.requests:,}",
            quantity(run.energy_j, "J", 4),
            percent(run.worst_class, 2) + (" failed" if run.failed else ""),
        )
    return ["", table]

"""Pipelines beside Perseus, lowtime and real ones, from data/pipelines, which benchmarks write (bench_pipeline_*.py)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.kept import DATA
from benchmarks.synthetic_pipeline import CLOCKS_MHZ, synthetic_rows
from docs.make.page import Page, figure, filled, percent, read_json, signed, table
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.pages.figure import export_figures
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedules import one_forward_one_backward
from wastenot.pipelines.page.frontier_figure import frontier_figure
from wastenot.pipelines.plan.overview import OthersPoints, pipeline_overview
from wastenot.pipelines.plan.planner import frontier_rungs, plan_pipeline, with_rungs

POINTS, SCALE = 30, 1.6  # of the picture
SETTINGS = {
    "instruction": "one for an instruction",
    "layer": "one for a layer",
    "kernel": "one for a kernel",
    "schedule": "stretches as long as a switch",
}


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json(DATA / "pipelines" / f"{name}.json")
    return found


def saved(row: dict[str, Any], name: str) -> str:
    return percent(1.0 - row[name] / row["highest_j"], 2)


def emulation() -> str:
    """Ours, and the bound, at every straggler."""
    rows = read("perseus-emulation")["rows"]
    sizes = sorted({row["micro_batches"] for row in rows})
    lines = []
    for straggler in sorted({row["straggler"] for row in rows}):
        each = {row["micro_batches"]: row for row in rows if row["straggler"] == straggler}
        name = "no straggler" if not straggler else f"{straggler:.0%} slower"
        cells = [f"{saved(each[size], 'ours_j')} (≤ {saved(each[size], 'bound_j')})" for size in sizes]
        lines.append([name, *cells])
    return table(f"the other pipeline | {' | '.join(f'{size} micro-batches' for size in sizes)}", lines)


def perseus() -> str:
    """Perseus' plans beside ours, where it was run."""
    rows = [row for row in read("perseus-emulation")["rows"] if row.get("perseus_j")]
    lines = []
    for row in rows:
        late = row["perseus_s"] / row["until_s"] - 1.0
        met = "none does" if row["perseus_met_j"] is None else saved(row, "perseus_met_j")
        lines.append([
            f"{row['micro_batches']}", "—" if not row["straggler"] else f"{row['straggler']:.0%}",
            saved(row, "perseus_j"), signed(100.0 * late, 2, " %"), met, saved(row, "ours_j"), saved(row, "bound_j"),
        ])  # fmt: skip
    heads = "micro-batches | straggler | Perseus | its time against the deadline | Perseus, plans in time | ours | bound"
    runs = sorted({(row["micro_batches"], row["perseus_iterations"], row["perseus_cpu_s"]) for row in rows})
    solver = "; ".join(f"{size} micro-batches: {count:,} iterations, {cpu:.0f} s" for size, count, cpu in runs)
    own = max(row["cpu_s"] for row in rows)
    words = (
        f"CPU time of Perseus' solver for its whole frontier: {solver}. Of ours for one of these plans: {own:.2f} s at most."
    )
    return table(heads, lines) + "\n" + filled(words, 120)


def lowtime() -> str:
    """8 x 64, each tenth deadline."""
    kept, own = read("lowtime-8x64"), read("lowtime-8x64-ours")
    lines = []
    points = list(zip(kept["points"], own["points"], own["cpu_s"], strict=True))
    for (_, claimed, _, cpu, time_s, energy), (_, own_s, own_j, bound, _), own_cpu in [*points[:-1:11], points[-1]]:
        lines.append([
            f"{time_s:.3f} s", f"{claimed:.3f} s", f"{energy:,.1f} J", f"{cpu:,.0f} s", f"{own_s:.3f} s", f"{own_j:,.1f} J",
            signed(100.0 * (own_j / energy - 1.0), 2, " %"), f"{bound:,.1f} J", f"{own_cpu:.2f} s",
        ])  # fmt: skip
    heads = (
"its time | as it claims | its energy | CPU until then | our time | our energy | less energy | bound | "
"CPU of ours"
)  # fmt: skip
    array = np.array(own["points"])
    less = array[:, 2] / array[:, 4] - 1.0
    gap = 1.0 - array[:, 3] / array[:, 2]
    frontier_gap = max(own["frontier_gaps"])
    words = (
        f"lowtime {kept['lowtime']} took {kept['solver_cpu_s']:,.0f} s of CPU time for {kept['iterations']:,} iterations "
        f"({kept['date']}; {kept['machine']}). Ours took {own['cpu_s'][-1]:.2f} s for the last deadline, and {own['frontier_cpu_s']:.1f} s for "
        f"{len(own['frontier_gaps'])} plans from its fastest to its slowest, {100 * frontier_gap:.2f} % above the bound at most. "
        f"At every one of {len(array)} deadlines of lowtime's our plan needs no more energy in no more time: "
        f"{signed(100 * less.min(), 2)} to {signed(100 * less.max(), 2)} %, {signed(100 * less.mean(), 2)} % in the mean; it is "
        f"{100 * gap.mean():.3f} % above the bound in the mean, {100 * gap.max():.3f} % at most."
    )
    return table(heads, lines) + "\n" + filled(words, 120)


def measured() -> str:
    """The plans that were measured."""
    found = read("measured-plans")
    spearman = found["spearman"]
    communication, spread = found["communication_s"]
    lines = [
        ["iteration time, no time for communication", *errors(found["without_communication"])],
        [
            f"iteration time, own forwards and backwards, and {1e3 * communication:.2f} ± {1e3 * spread:.2f} ms for communication",
            *errors(found["from_own_times"]),
        ],
        ["iteration time from clocks alone", *errors(found["from_clocks"])],
        ["the same, plans whose clocks the training half had", *errors(found["from_clocks_seen"])],
        ["energy from clocks alone", *errors(found["energy_from_clocks"])],
    ]
    first = table("of plans that nothing was fitted on | mean error | mean absolute error | largest", lines)
    rows = []
    for name, text in (
        ("all plans", "all"),
        ("one standard deviation apart", "any two differ by more than the noise of their difference"),
        ("apart", "any two differ by more than 1.96 times that"),
    ):
        rho, count = spearman[name]
        rows.append([text, f"{count:.1f}", f"{rho:.3f}", f"{spearman[f'{name}, without error'][0]:.3f}"])
    second = table("plans of the other half | number | Spearman's ρ | a predictor without error", rows)
    ranks = ", ".join(f"{rho:.2f}" for rho in found["spearman_by_rank"])
    words = (
        f"Noise from run to run is {found['run_to_run_j']:.0f} J, from {found['pairs_alike']} pairs of plans that hardly differ, of "
        f"energies of about 57,800 J. By GPU, all plans of the other half, ρ is {ranks}. {found['splits']} random halves."
    )
    shifts = found["correlation_by_shift"]
    layout = (
        f"All {found['clock_changes']:,} changes of clocks in the lists fall on a forward or a backward if a rank's steps are "
        "those of 1F1B, where a send is joined with the receive that follows it, with a load before each forward of the first "
        "and the last rank and three steps at the end; that also gives the lengths of the lists (518, 520, 518, 516). Times "
        f"of instructions correlate with one over the clock by {shifts['0']:.3f}; by {shifts['-1']:.3f} if the clock is that of the "
        f"entry before, and by {shifts['1']:.3f} and {shifts['2']:.3f} if it is that of the next or the one after, which often "
        "have the same clock."
    )
    return "\n".join([first, second, filled(words, 120), filled(layout, 120)])


def errors(each: dict[str, float]) -> list[str]:
    return [signed(100.0 * each["mean"], 3, " %"), percent(each["absolute"], 3), percent(each["largest"], 2)]


def inside() -> str:
    """Kernels' own clocks, planned and executed."""
    rows = read("kernels-inside")["rows"]
    lines = [
        [
            f"{row['card'].upper()}, {row['model']}, {row['stages']} × {row['micro_batches']}", f"{row['slowdown']:.0%}",
            SETTINGS[row["settings"]], percent(row["planned_saved"], 2), percent(row["bound_saved"], 2),
            f"{percent(row['free_saved'], 2)} ({signed(100 * row['free_time'], 2, ' %')})",
            f"{percent(row['own_saved'], 2)} ({signed(100 * row['own_time'], 2, ' %')})",
        ]
        for row in rows
    ]  # fmt: skip
    heads = (
"card, model, stages × micro-batches | slowdown | clocks | planned | at most | "
"run, switches free (time) | run, the card's switches (time)"
)  # fmt: skip
    said = []
    for row in rows:
        if row["settings"] != "instruction" or row["slowdown"]:
            continue
        key = row["card"], row["model"]
        kernel = next(
            each for each in rows
            if (each["card"], each["model"]) == key and each["settings"] == "kernel" and not each["slowdown"]
        )  # fmt: skip
        said.append(
            f"{key[1]} on the {key[0].upper()}: {100 * (kernel['bound_saved'] - row['bound_saved']):.1f} percentage points more "
            f"at most by kernels' own clocks; switching costs a plan by instruction {percent(row['free_saved'] - row['own_saved'], 1)} "
            f"of the energy and {percent(row['own_time'] - row['free_time'], 1)} of the time"
        )
    return table(heads, lines) + "\n" + filled("At no slowdown: " + "; ".join(said) + ".", 120)


def beside_lowtime() -> bytes:
    """Our frontier and the points of lowtime, both of the same made-up profile like an A100's."""
    kept = read("lowtime-8x64")
    rows = synthetic_rows(kept["stages"])
    ways: dict[tuple[int, str], list[tuple[float, float, Setting]]] = {}
    for stage, name, clock, time_s, energy_j in rows:
        ways.setdefault((stage, name), []).append((time_s, energy_j, Setting(float(clock))))
    fastest = max(CLOCKS_MHZ)
    profile = PipelineProfile(
        "eight uneven stages",
        "a made-up A100",
        "synthetic",
        {key: choice(each) for key, each in ways.items()},
        {(stage, name): (time_s, energy_j) for stage, name, clock, time_s, energy_j in rows if clock == fastest},
        kept["waiting_w"],
        baseline_clocks="highest",
    )
    made = plan_pipeline(profile, one_forward_one_backward(kept["stages"], kept["micro_batches"]))
    time_at, energy_at = (kept["columns"].index(name) for name in ("time_s", "energy_j"))
    points = tuple((point[time_at], point[energy_at]) for point in kept["points"])
    made = with_rungs(made, frontier_rungs(made, POINTS))
    overview = pipeline_overview(made.plan, others=[OthersPoints(f"lowtime {kept['lowtime']}", points)])
    drawn = frontier_figure(replace(overview, stragglers=()))
    return figure(partial(export_figures, [drawn], made.plan.origin), drawn.name, SCALE)


PAGES = (
    Page(
        "pipelines-evaluation",
        {"emulation": emulation, "perseus": perseus, "lowtime": lowtime, "measured": measured, "inside": inside},
        {"pipeline-lowtime.png": beside_lowtime},
    ),
)

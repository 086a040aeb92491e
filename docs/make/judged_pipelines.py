"""Pipelines beside Perseus, lowtime and real ones, from data/pipelines, which benchmarks write (bench_pipeline_*.py)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.kept import DATA
from docs.make.page import Page, filled, percent, read_json, signed, table

STRAGGLERS = (0.0, 0.1, 0.2, 0.5)  # how much slower the other pipeline is, of those in the data
_SAME = 1e-9
SETTINGS = {"instruction": "one per instruction", "kernel": "one per kernel"}


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
    for straggler in STRAGGLERS:
        each = {row["micro_batches"]: row for row in rows if row["straggler"] == straggler}
        name = "no straggler" if not straggler else f"{straggler:.0%} slower"
        cells = [f"{saved(each[size], 'ours_j')} (≤ {saved(each[size], 'bound_j')})" for size in sizes]
        lines.append([name, *cells])
    return table(f"the other pipeline | {' | '.join(f'{size} micro-batches' for size in sizes)}", lines)


def perseus() -> str:
    """Perseus' plans beside ours, where it was run."""
    rows = [row for row in read("perseus-emulation")["rows"] if row.get("perseus_j") and row["straggler"] in STRAGGLERS]
    lines = []
    for row in rows:
        late = row["perseus_s"] / row["until_s"] - 1.0
        met = "none does" if row["perseus_met_j"] is None else saved(row, "perseus_met_j")
        lines.append([
            f"{row['micro_batches']}", "—" if not row["straggler"] else f"{row['straggler']:.0%}",
            saved(row, "perseus_j"), signed(100.0 * late, 2, " %"), met, saved(row, "ours_j"),
        ])  # fmt: skip
    heads = (
        "micro-batches | straggler | Perseus | its time against the deadline | Perseus, plans that meet the deadline | ours"
    )
    runs = sorted({(row["micro_batches"], row["perseus_iterations"], row["perseus_cpu_s"]) for row in rows})
    solver = "; ".join(f"{size} micro-batches: {count:,} iterations, {cpu:.0f} s" for size, count, cpu in runs)
    own = max(row["cpu_s"] for row in rows)
    words = (
        f"CPU time of Perseus' solver for its whole frontier: {solver}. Of ours for one of these plans: {own:.2f} s at most."
    )
    return table(heads, lines) + "\n" + filled(words, 120)


def lowtime() -> str:
    """8 x 64, at every deadline of lowtime's."""
    kept, own = read("lowtime-8x64"), read("lowtime-8x64-ours")
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
    return filled(words, 120)


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
    ranks = ", ".join(f"{rho:.2f}" for rho in found["spearman_by_rank"])
    rho, least = spearman["all plans"][0], spearman["all plans, without error"][0]
    words = (
        f"Noise from run to run is {found['run_to_run_j']:.0f} J, of energies of about 57,800 J. The ranking of all plans by energy has "
        f"a Spearman's ρ of {rho:.3f}, where a predictor without error would have {least:.3f}; by GPU, ρ is {ranks}."
    )
    return first + "\n" + filled(words, 120)


def errors(each: dict[str, float]) -> list[str]:
    return [signed(100.0 * each["mean"], 3, " %"), percent(each["absolute"], 3), percent(each["largest"], 2)]


def inside() -> str:
    """Instructions' and kernels' own clocks at no slowdown, planned and executed."""
    lines = [
        [
            f"{row['card'].upper()}, {row['model']}, {row['stages']} × {row['micro_batches']}", SETTINGS[row["settings"]],
            percent(row["planned_saved"], 2), percent(row["bound_saved"], 2),
            f"{percent(row['free_saved'], 2)} ({signed(100 * row['free_time'], 2, ' %')})",
            f"{percent(row['own_saved'], 2)} ({signed(100 * row['own_time'], 2, ' %')})",
        ]
        for row in read("kernels-inside")["rows"]
        if row["settings"] in SETTINGS and not row["slowdown"]
    ]  # fmt: skip
    heads = (
"card, model, stages × micro-batches | clocks | planned | at most | run with free switching (time) | "
"run with the card's switching (time)"
)  # fmt: skip
    return table(heads, lines)


def confidence() -> str:
    """How often plans stayed within their limit, from the rows that the benchmark left."""
    rows: dict[tuple[str, float], dict[bool, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in read_json(DATA / "pipelines" / "confidence.json")["rows"]:
        rows[row["case"], row["slowdown"]][row["confident"]].append(row)
    lines = []
    for (case, slowdown), by in rows.items():
        cells = []
        for confident in (True, False):
            kept = sum(each["time_change"] <= slowdown + _SAME for each in by[confident])
            saved = -100.0 * float(np.mean([each["energy_change"] for each in by[confident]]))
            cells += [f"{kept} of {len(by[confident])}", f"{saved:.2f} %"]
        worst = 100.0 * (max(each["time_change"] for each in by[True]) - slowdown)
        lines.append([case, f"{slowdown:.0%}", *cells[:2], signed(max(worst, 0.0), 3, " points"), *cells[2:]])
    return table("pipeline, card | allowed | 95 %: kept | saved | late by at most | without: kept | saved", lines)


PAGES = (
    Page(
        "judged-pipelines",
        {
            "emulation": emulation, "perseus": perseus, "lowtime": lowtime, "measured": measured, "confidence": confidence,
            "inside": inside,
        },
    ),
)  # fmt: skip

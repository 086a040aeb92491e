"""Perseus' emulation of GPT-3 175B (8 stages, A100 SXM, its own profile), by Perseus and by ours.

For 12 to 96 micro-batches: what is saved against the highest clock throughout without slowing down (intrinsic), and while
another pipeline takes 5 to 50 % longer (stragglers; all GPUs of this pipeline wait for it). Perseus' plans are lowtime's at
quanta of 1 ms, where it was run (``lowtime_process``); deadlines and energies are recomputed from the measured points, for
both, without code of the package (``pipeline_audit``).

    python -m benchmarks.bench_pipeline_emulation [DATA [OUT.json [LOWTIME_12.npz ...]]]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.kept import BESIDE, keep
from benchmarks.lowtime_plans import LowtimePlans, clocks_of, read_plans
from benchmarks.pipeline_audit import Pipeline, rows_of
from benchmarks.verdict import Verdict, run_alone
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.schedules import one_forward_one_backward

FILE = "perseus/gpt3-175b-a100-sxm.csv"
STAGES, WAITING_W = 8, 70.0
MICRO_BATCHES = (12, 24, 48, 96)
STRAGGLERS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
GAP = {12: 0.001, 24: 0.001, 48: 0.002, 96: 0.002}


def emulate(file: Path, micro_batches: int, perseus: Path | None) -> list[dict[str, Any]]:
    """A row for each straggler; the first, 0, is none."""
    rows, pipeline = rows_of(file), Pipeline(STAGES, micro_batches)
    schedule = one_forward_one_backward(STAGES, micro_batches)
    graph = pipeline_graph(schedule, read_perseus_csv(file, waiting_w=WAITING_W))
    highest = pipeline.highest(rows)
    iteration = pipeline.recompute(rows, highest, WAITING_W)
    found: LowtimePlans | None = read_plans(perseus, rows, pipeline, WAITING_W) if perseus else None
    table = []
    for straggler in STRAGGLERS:
        until = iteration.exact_s * (1 + Fraction(str(straggler)))
        held = float(until) if straggler else 0.0
        began = time.process_time()
        plan = graph.least_energy(until, until_s=held or None)
        seconds = time.process_time() - began
        own = pipeline.recompute(rows, clocks_of(plan, graph, schedule), WAITING_W, held)
        assert own.exact_s <= until
        assert plan.lower_bound_j is not None
        row = {
            "micro_batches": micro_batches,
            "straggler": straggler,
            "until_s": float(until),
            "highest_j": pipeline.recompute(rows, highest, WAITING_W, held).energy_j,
            "ours_s": own.time_s,
            "ours_j": own.energy_j,
            "bound_j": plan.lower_bound_j,
            "own_bound_j": pipeline.bound(rows, WAITING_W, float(until), held) if micro_batches <= 24 else None,
            "cpu_s": seconds,
        }
        if found:
            row |= _perseus(found, float(until), held)
        table.append(row)
    return table


def _perseus(found: LowtimePlans, until_s: float, held_s: float) -> dict[str, Any]:
    """Its plan for the deadline by its own times, and the best of its plans that truly meets it."""
    energy = found.energy_j(WAITING_W, STAGES, held_s)
    in_time = [at for at in range(len(energy)) if found.claimed_s[at] <= until_s]
    chosen = max(in_time, key=lambda at: float(found.claimed_s[at]), default=None)
    if not held_s:
        chosen = len(energy) - 1  # without a straggler it runs the fastest plan of its frontier
    best = found.cheapest_within(until_s)
    return {
        "perseus_s": None if chosen is None else float(found.time_s[chosen]),
        "perseus_j": None if chosen is None else float(max(0.0, energy[chosen])),
        "perseus_met_s": None if best is None else float(found.time_s[best]),
        "perseus_met_j": None if best is None else float(energy[best]),
        "perseus_cpu_s": float(found.cpu_s[-1]),
        "perseus_iterations": len(energy),
    }


def main(verdict: Verdict, folder: Path = BESIDE, out: Path | None = None, perseus: Sequence[Path] = ()) -> None:
    if not (folder / FILE).is_file():
        print(f"  skipped: no {folder / FILE}")
        return
    runs = {int(each.stem.split("_")[-1]): each for each in perseus}
    table = [row for each in MICRO_BATCHES for row in emulate(folder / FILE, each, runs.get(each))]
    if out:
        header = {"source": f"{FILE} (Perseus artifact, ml-energy/zeus, Apache-2.0); results only", "lowtime": "0.3.0"}
        keep(out, {**header, "stages": STAGES, "waiting_w": WAITING_W, "rows": table})
    for row in table:
        against = row["highest_j"]
        peer = f", Perseus {1 - row['perseus_j'] / against:.2%} in {row['perseus_s']:.3f} s" if row.get("perseus_j") else ""
        gap = 1 - row["bound_j"] / row["ours_j"]
        print(
            f"  {row['micro_batches']:2} micro-batches, straggler {row['straggler']:.0%}: until {row['until_s']:.3f} s, "
            f"ours saves {1 - row['ours_j'] / against:.2%} (bound {1 - row['bound_j'] / against:.2%}, gap {gap:.3%}){peer}"
        )
    for each in MICRO_BATCHES:
        gaps = [1 - row["bound_j"] / row["ours_j"] for row in table if row["micro_batches"] == each]
        verdict.at_most(f"largest gap, {each} micro-batches", max(gaps), GAP[each])
    off = [abs(row["own_bound_j"] / row["bound_j"] - 1) for row in table if row["own_bound_j"]]
    verdict.at_most("bounds against a linear program of our own", max(off), 1e-6)


if __name__ == "__main__":
    paths = [Path(each) for each in sys.argv[1:]]
    run_alone(main, *paths[:2], paths[2:])

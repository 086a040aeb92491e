"""How often default plans keep their slowdown, and intervals hold the truth: simulated cards and real tables with noise.

    python -m benchmarks.bench_coverage cards|tables|schedules|refined [SEEDS]

Cards: every seed draws another card, the constants of a preset each changed by about 15 %, and sweeps a workload that
nothing was developed on. Plans are compared with the simulator's truth at the temperature of the sweep's baselines, at which
expectations are stated. Tables: what others measured is taken as the truth, noise is added to the times and energies of a
random four fifths of the kernels, at most ``MOST_KERNELS``. Schedules: what can be applied today, on drawn cards, where
switches cost what they are taken to cost. Refined: the same from sweeps refined around the settings of a schedule.

Decided before the method was last changed: tables of ``DEVELOPED_ON`` shape it, all others judge it, some also with few
clocks, as on a V100. Seeds from ``FIRST_SEED`` on judge, lower ones are for development. The method was last judged once.

Every number of plans kept comes with the least that a binomial distribution of the promised 95 % leaves one in a thousand.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict, run_alone
from testbed.binomial import least_hits, share_bounds
from testbed.measured_sweeps import DATA, MEASURED_SWEEPS, MeasuredSweep
from testbed.tables import Noise, table_of
from wastenot.devices.open import open_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.preset import find_preset, preset_toml
from wastenot.kernels.run.refine import Finalists
from wastenot.kernels.verbs import refine
from wastenot.meters.tasks import find_tasks
from wastenot.planning.latency import switching_of
from wastenot.planning.noise.temperature import baseline_temperature_c
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.planning.scheduling import Scheduling
from wastenot.study.store import open_study
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.measure import measure_sweep
from wastenot.workloads.identity import GRANULARITIES, Granularity

PRESETS = ("rtx-3080-ti", "rtx-a4000", "v100", "h200", "mi300x")
WORKLOAD, CORE_STEP_MHZ = "llama-8b", 210.0
SLOWDOWNS = (0.0, 0.01, 0.02, 0.05)
REFINED_AT = 0.02  # the slowdown of the plan that a sweep is refined for
SEEDS = 12  # of each preset, and of each table and noise
FIRST_SEED = 5000
MOST_KERNELS = 33
FEW_CLOCKS = 5
SMALL = ("V100, CUDA samples", "V100, microbenchmarks", "RTX 8000, CUDA samples")
"""Tables that are judged with ``FEW_CLOCKS``, too."""

TRAINING = tuple(
    MeasuredSweep(
        f"{card}, training jobs by power limit", "judging", f"forecast/zeus-{card.lower().replace(' ', '')}.csv", "v100"
    )
    for card in ("A40", "P100", "RTX 6000")
)
"""Epochs of the Zeus artifact, a job and batch size as a kernel; the card's preset is not asked for."""

NOISES = {
    "1 %, stated": Noise(0.01, 0.01, 1, 1.0),
    "0.3 and 0.5 %, half of it stated": Noise(0.003, 0.005, 1, 0.5),
    "0.7 %, two readings": Noise(0.007, 0.007, 2, 0.0),
}
DEVELOPED_ON = ("rtx3080ti", "gpu-dvfs", "perseus", "serving")
_CONSTANTS = (
    "flops_per_s", "bytes_per_s", "issue_bytes_per_s", "clock_w", "flop_j", "byte_j", "issue_byte_j", "leakage_w",
    "run_time", "run_power",
)  # fmt: skip
_CHANGED = re.compile(rf"^((?:{'|'.join(_CONSTANTS)}) = )(\S+)$", re.MULTILINE)
_SPREAD = 0.15


@dataclass(frozen=True, slots=True)
class Outcome:
    """One plan: what it was made for, what it promised and what was true; changes against auto."""

    case: str
    granularity: Granularity
    slowdown: float
    kept: bool
    time_in: bool
    energy_in: bool
    energy_change: float
    as_measured_time: float
    as_measured_energy: float
    best_energy: float = np.nan


def outcomes(case: str, planner: Planner, changes, granularities: Iterable[Granularity]) -> Iterator[Outcome]:
    """Default plans of a sweep at every granularity and slowdown; ``changes`` gives true ones of costs and rows."""
    for granularity in granularities:
        at = planner.at(granularity)
        for slowdown in SLOWDOWNS:
            plans = [Objective("waste", slowdown), Objective("waste", slowdown, as_measured=True)]
            rows, lucky = (at.measured.rows(at.choose(objective).options) for objective in plans)
            expected = at.expected(rows, plans[0])
            assert expected is not None and at.corrects(plans[0])
            true, lucky_true = changes(at.costs, rows), changes(at.costs, lucky)
            yield Outcome(
                case, granularity, slowdown, true[0] <= slowdown + 1e-9,
                _holds(expected.time_change_interval, true[0]), _holds(expected.energy_change_interval, true[1]),
                true[1], *lucky_true,
            )  # fmt: skip


def _holds(interval: tuple[float, float], value: float) -> bool:
    return interval[0] - 1e-7 <= value <= interval[1] + 1e-7


def drawn_card(preset: str, seed: int, folder: Path) -> str:
    """The name of a card that is about like a preset."""
    rng = np.random.default_rng((PRESETS.index(preset), seed))

    def changed(line: re.Match[str]) -> str:
        return f"{line[1]}{float(line[2]) * np.exp(_SPREAD * rng.standard_normal()):.6g}"

    text = _CHANGED.sub(changed, preset_toml(find_preset(preset)))
    path = folder / f"{preset}-{seed}.toml"
    path.write_text(text, encoding="utf-8")
    return f"sim:{path}"


def card_outcomes(seeded: tuple[str, int]) -> list[Outcome]:
    """All plans of one drawn card."""
    planner, totals = _drawn_sweep(*seeded)

    def changes(costs, rows: np.ndarray) -> tuple[float, float]:
        once = costs.count, np.arange(len(rows))
        time, energy = (totals(costs, *once, rows) / totals(costs, *once, costs.start[:-1]) - 1.0).tolist()
        return time, energy

    return list(outcomes(seeded[0], planner, changes, GRANULARITIES))


def refined_outcomes(seeded: tuple[str, int]) -> list[Outcome]:
    """The schedules of one drawn card, its sweep refined around the settings of one."""
    return schedule_outcomes(seeded, Finalists(1, 0.5 * CORE_STEP_MHZ, 1))


def schedule_outcomes(seeded: tuple[str, int], again: Finalists | None = None) -> list[Outcome]:
    """The schedules of one drawn card."""
    planner, totals = _drawn_sweep(*seeded, again)
    costs, found = planner.costs, []
    for slowdown in SLOWDOWNS:
        made = Scheduling(planner, Objective("waste", slowdown), "global", switching_of(planner.sweep), 0.0, None)
        best = made.objective.least(made)
        rung = made.with_intervals(made.rung(best.setting), best.setting)
        counts = made.line.counts(best.setting, *made.rows.shape)
        setting, kernel = np.nonzero(counts)
        auto = totals(costs, costs.count, np.arange(len(costs.count)), costs.start[:-1])
        true = totals(costs, counts[setting, kernel], kernel, made.rows[setting, kernel])
        switching = made.work.switching(best.setting)
        true += np.array([switching.time_s.sum(), switching.energy_j.sum()])
        time, energy = (true / auto - 1.0).tolist()
        kept, sure = time <= slowdown + 1e-9, (rung.time_change_interval, rung.energy_change_interval)
        time_in, energy_in = (_holds(interval, true) for interval, true in zip(sure, (time, energy), strict=True))
        found.append(Outcome(seeded[0], "kernel", slowdown, kept, time_in, energy_in, energy, np.nan, np.nan))
    return found


def _drawn_sweep(preset: str, seed: int, again: Finalists | None = None):
    """The planner of a drawn card's sweep, and what gives the true totals of so many calls of kernels at rows."""
    with tempfile.TemporaryDirectory() as folder:
        name = drawn_card(preset, seed, Path(folder))
        tasks = find_tasks(WORKLOAD, name)
        device = open_device(name, seed=1000 * PRESETS.index(preset) + seed)
        assert isinstance(device, SimulatedDevice)
        study = open_study(Path(folder) / "study.db", create=True)
        measure_sweep(device, tasks, study, Grid(CORE_STEP_MHZ).settings(device.clocks.supported_clocks()))
        if again is not None:
            refine(study, device, workload=tasks.name, max_slowdown=REFINED_AT, finalists=again)
        sweep = study.read(tasks.name)
    temperature_c = baseline_temperature_c(sweep)
    known: dict[tuple[int, object], tuple[float, float]] = {}

    def totals(costs, calls: np.ndarray, kernels: np.ndarray, rows: np.ndarray) -> np.ndarray:
        places = list(zip(kernels.tolist(), rows.tolist(), strict=True))
        for kernel, row in places:
            if (kernel, row) not in known:
                point = device.truth(tasks.tasks[kernel], costs.setting(row), temperature_c)
                known[kernel, row] = (point.time_s, point.time_s * point.power_w)
        return calls @ np.array([known[place] for place in places])

    return Planner(sweep), totals


def table_outcomes(name: str, noise: str, seed: int) -> list[Outcome]:
    """All plans of one noisy table, by kernel."""
    whole, _, few = name.partition("; ")
    sweep = next(each for each in (*MEASURED_SWEEPS, *TRAINING) if each.name == whole).read(DATA)
    rng = np.random.default_rng((2031, *f"{name}; {noise}".encode(), seed))
    table = table_of(name, sweep).some(rng, min(0.8, MOST_KERNELS / len(sweep.kernels)))
    table = table.thinned(FEW_CLOCKS) if few else table
    planner = Planner(table.sweep(rng, NOISES[noise]))
    found = outcomes(f"{name}; {noise}", planner, table.changes, ("kernel",))
    best = planner.measured.with_numbers(*table.of(planner.costs))
    limits = [best.best(Objective("waste", slowdown), "global") for slowdown in SLOWDOWNS]
    energies = [table.changes(planner.costs, best.rows(limit.options))[1] for limit in limits]
    return [replace(plan, best_energy=energy) for plan, energy in zip(found, energies, strict=True)]


def judged(verdict: Verdict, found: list[Outcome], what: str) -> None:
    """Print shares by case, granularity and slowdown; judge those of every case, and all together."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in found:
        groups[outcome.case, outcome.granularity].append(outcome)
    for (case, granularity), plans in groups.items():
        parts = []
        for slowdown in SLOWDOWNS:
            here = [plan for plan in plans if plan.slowdown == slowdown]
            saved, lucky, slow = (
                float(np.mean([getattr(plan, name) for plan in here]))
                for name in ("energy_change", "as_measured_energy", "as_measured_time")
            )
            kept, held = (sum(getattr(plan, name) for plan in here) for name in ("kept", "energy_in"))
            beside = "" if np.isnan(lucky) else f" (as measured {lucky:+.1%} at {slow:+.2%})"
            if not np.isnan(here[0].best_energy):
                beside += f" of {np.mean([plan.best_energy for plan in here]):+.1%}"
            parts.append(f"{slowdown:.0%}: kept {kept}, energy held {held} of {len(here)}, {saved:+.1%}{beside}")
        print(f"  {case}, by {granularity}: {'; '.join(parts)}", flush=True)
    for (case, granularity), plans in groups.items():
        # Plans of one sweep share its errors: the worst slowdown of each is judged, as many draws as seeds.
        kept = min(sum(plan.kept for plan in plans if plan.slowdown == each) for each in SLOWDOWNS)
        seeds = len(plans) // len(SLOWDOWNS)
        verdict.at_least(f"{case}, by {granularity}: kept at the worst slowdown, of {seeds}", kept, least_hits(seeds))
    for slowdown in SLOWDOWNS:
        here = [plan for plan in found if plan.slowdown == slowdown]
        change, best = (
            100.0 * float(np.mean([getattr(plan, name) for plan in here])) for name in ("energy_change", "best_energy")
        )
        none, kept = sum(plan.energy_change == 0.0 for plan in here), sum(plan.kept for plan in here)
        print(
            f"    {slowdown:.0%}: {change:+.3f} % (best {best:+.3f} %), kept {kept}, nothing saved in {none} of {len(here)}"
        )
    _share(verdict, f"{what}: plans that keep their slowdown", [plan.kept for plan in found], 0.95, 0.98)
    # Default clocks alone change nothing, and their interval is a point: they say nothing of intervals.
    plans = [plan for plan in found if plan.energy_change != 0.0]
    _share(verdict, f"{what}: 95 % intervals of time that hold", [plan.time_in for plan in plans], 0.94, 0.97)
    _share(verdict, f"{what}: 95 % intervals of energy that hold", [plan.energy_in for plan in plans], 0.94, 0.97)


def _share(verdict: Verdict, what: str, hits: list[bool], least: float, most: float) -> None:
    number, kept = len(hits), sum(hits)
    low, high = share_bounds(kept, number)
    text = f"{what}, {kept} of {number} (binomial {low:.3f} to {high:.3f})"
    verdict.at_least(text, kept / number, least)
    verdict.at_most(text, kept / number, most)


def cards(verdict: Verdict, seeds: int = SEEDS) -> None:
    """Default plans of drawn cards."""
    judged(verdict, _of_cards(card_outcomes, seeds), "drawn cards")


def schedules(verdict: Verdict, seeds: int = SEEDS) -> None:
    """Schedules on drawn cards."""
    judged(verdict, _of_cards(schedule_outcomes, seeds), "schedules on drawn cards")


def refined(verdict: Verdict, seeds: int = SEEDS) -> None:
    """Schedules on drawn cards, from refined sweeps."""
    judged(verdict, _of_cards(refined_outcomes, seeds), "schedules of refined sweeps")


def _of_cards(outcomes_of: Callable[[tuple[str, int]], list[Outcome]], seeds: int) -> list[Outcome]:
    wanted = [(preset, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds) for preset in PRESETS]
    with ProcessPoolExecutor(2) as pool:
        found = [outcome for each in pool.map(outcomes_of, wanted) for outcome in each]
    return sorted(found, key=lambda plan: (plan.case, plan.granularity))


def tables(verdict: Verdict, seeds: int = SEEDS) -> None:
    """Default plans of tables that others measured, with noise."""
    others = [each for each in (*MEASURED_SWEEPS, *TRAINING) if not each.file.startswith(DEVELOPED_ON)]
    there = [each.name for each in others if (DATA / each.file).exists()]
    if not there:
        print(f"  skipped: no tables but those that the method was developed on in {DATA}")
        return
    there += [f"{name}; {FEW_CLOCKS} clocks" for name in there if name in SMALL]
    judges = range(FIRST_SEED, FIRST_SEED + seeds)
    wanted = [(name, noise, seed) for seed in judges for name in there for noise in NOISES]
    with ProcessPoolExecutor(2) as pool:
        found = [outcome for each in pool.map(table_outcomes, *zip(*wanted, strict=True), chunksize=4) for outcome in each]
    judged(verdict, sorted(found, key=lambda plan: plan.case), "tables with noise")


def main(verdict: Verdict) -> None:
    cards(verdict)
    schedules(verdict)
    refined(verdict)
    tables(verdict)


if __name__ == "__main__":
    run_alone(
        {"cards": cards, "tables": tables, "schedules": schedules, "refined": refined}[sys.argv[1]], *map(int, sys.argv[2:])
    )

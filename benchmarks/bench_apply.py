"""Plans at work on simulated jobs, in virtual time: what a schedule gives beside what it promises, and what the guard keeps.

    nice python -m benchmarks apply        about 8 minutes

Schedules are made from a sweep without noise, for clocks that take 5, 15 and 50 ms to change with a jitter of 0.3. Jobs then
run them on every preset, each with a seed of its own, from 7000 on, which nothing was tuned on. Truth is the simulator's:
each iteration knows what it took, and what the same iteration would have taken at the default clocks and the same
temperature.

- executed against predicted: iterations at the plan's clocks, without those that settle after a block, at the temperature
  that the sweep was taken at;
- interval: whether the live interval holds the truth of the iterations so far, at several numbers of pairs; looks at one job
  are not independent, so that shares are of jobs, at one number of pairs each;
- bound: jobs whose iterations differ by 0.2 to 1 %, and which are up to 3 % slower at the plan's clocks than planned, from
  some iteration on; mean slowdown of all iterations, default blocks included, against the bound plus 0.1 points;
- 3 % slower: how many iterations after the job slows are beyond its bound by more than 0.1 points;
- false steps: jobs just as planned.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import count, islice

import numpy as np

from benchmarks.verdict import Verdict
from testbed.known_truth import true_sweep
from testbed.scheduled_jobs import SUBJECT, gpu
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.course import Change, Course, Ran, Spread
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.planning.schedule import Rung, Schedule
from wastenot.planning.scheduling import make_schedule
from wastenot.planning.switching import SwitchTime
from wastenot.runtime.controller import Controller
from wastenot.runtime.marker import ITERATION, Marker
from wastenot.runtime.simulated_job import Programme, programme_of, run_job
from wastenot.runtime.status import Estimate, Proof, Summary
from wastenot.setting import Setting
from wastenot.tasks import WorkloadTasks, tasks_of
from wastenot.workloads.build import build_workload

MODELS = {"h200": "gpt3-xl", "mi300x": "gpt3-xl"}  # elsewhere a small one, so that iterations take about a second everywhere
BOUNDS = {"rtx-3080-ti": 0.01, "rtx-a4000": 0.01}  # elsewhere 3 %: nothing much is saved below
LATENCIES_S = (0.005, 0.015, 0.05)
JITTER = 0.3
FIRST_SEED = 7000  # of thousands
PAIRS = (3, 5, 8)
TOLERANCE = 0.001
MANY = 20  # segments of an iteration, which take long to simulate: fewer jobs


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A job that ended: its iterations, whether each ran at the plan's own clocks and had settled, and what was shown."""

    summary: Summary
    ran: list[Ran]
    own: list[bool]
    shown: list[tuple[int, int, Proof]]

    def truth(self, iterations: int | None = None) -> tuple[float, float]:
        """Change of time and energy at the plan's own clocks."""
        ran = [one for one, own in zip(self.ran[:iterations], self.own, strict=False) if own]
        time_change = float(np.mean([one.time_s / one.auto_time_s for one in ran])) - 1.0
        return time_change, float(np.mean([one.energy_j / one.auto_energy_j for one in ran])) - 1.0

    def slowdowns(self) -> list[float]:
        """Of each iteration against the default clocks."""
        return [one.time_s / one.auto_time_s - 1.0 for one in self.ran]


@cache
def workload(preset: str) -> tuple[WorkloadTasks, Programme]:
    """What runs on a preset."""
    tasks = tasks_of(build_workload(MODELS.get(preset, "gpt3-small")))
    return tasks, programme_of(tasks.kernels, tasks.tasks)


@cache
def schedule(preset: str, latency_s: float) -> Schedule:
    """The schedule of a plan made without noise."""
    device = gpu(preset)
    physics = device.engine.physics
    assert isinstance(physics, ModelPhysics)
    clocks, memory = physics.core_mhz.tolist(), sorted(physics.preset.clocks.memory_mhz)[-2:]
    core = sorted({clocks[round(part * (len(clocks) - 1) / 15)] for part in range(5, 16)})
    sweep = true_sweep(device, workload(preset)[0], [Setting(c, m) for c in core for m in memory])
    switching = SwitchTime(core_s=latency_s, memory_s=latency_s, basis="given", source="given", jitter=JITTER)
    made = make_schedule(
        Planner(sweep), Objective("waste", BOUNDS.get(preset, 0.03)), "global", switching, memory_mhz=memory[-1]
    )
    assert made is not None
    return made


def run(
    preset: str,
    latency_s: float,
    seed: int,
    iterations: int,
    spread: Spread,
    change: Change | None = None,
    *,
    every_s: float = 2.0,
    constant: bool = False,
) -> Run:
    """Run a job under its plan, from cold or always at the temperature of the plan's numbers."""
    device = gpu(preset, seed=seed, latency_s=latency_s, jitter=JITTER, constant=constant)
    plan = schedule(preset, latency_s)
    controller = Controller(plan, [device], SUBJECT, seed=seed)
    own: list[bool] = []
    shown: list[tuple[int, int, Proof]] = []
    take_note = controller.mark

    def mark(marker: Marker) -> None:
        take_note(marker)
        if marker.name == ITERATION:
            stretch = controller._stretch
            own.append(stretch is not None and not stretch.default and stretch.part != "settle" and stretch.rung == 0)

    def watch(controller: Controller) -> bool:
        status = controller.status()
        pairs = len(controller._ledger.time_pairs(0))
        if status.iteration is not None and (not shown or shown[-1][0] != pairs):
            shown.append((pairs, status.iteration, status.proof))
        return False

    controller.mark = mark  # type: ignore[method-assign]
    changes = () if change is None else (change,)
    summary, (job,) = run_job(
        controller,
        workload(preset)[1],
        iterations,
        seed=seed,
        spread=spread,
        changes=changes,
        watch=watch,
        watch_every_s=every_s,
    )
    return Run(summary, job.ran, own, shown)


def slower(device: SimulatedDevice, preset: str, rung: Rung, slowdown: float) -> float:
    """What makes a job at a rung slower by so much, and less at higher clocks."""
    programme = workload(preset)[1]
    course = Course(device.engine.physics, programme.tasks, programme.order, [0])
    temperature_c = 60.0
    most = 0.0
    for segment in rung.segments:
        if not segment.setting.is_auto:
            one = slowdown / course.slower_by(segment.setting, slowdown, temperature_c)
            most += one * segment.time_s / rung.time_s
    return slowdown / most


def pairs_of_presets() -> list[tuple[str, float]]:
    """Presets and latencies at which there is anything to apply."""
    return [(p, s) for p in preset_names() for s in LATENCIES_S if len(schedule(p, s).rungs) > 1]


def execution(verdict: Verdict) -> None:
    """Executed schedules against predictions."""
    worst_time = worst_energy = 0.0
    seeds = count(FIRST_SEED)
    for preset, latency_s in pairs_of_presets():
        plan = schedule(preset, latency_s)
        rung = plan.rungs[0]
        found = []
        for _ in range(2):
            ran = run(preset, latency_s, next(seeds), 60, Spread(0.0, 0.0), constant=True)
            found.append(ran.truth())
        time_change, energy_change = np.mean(found, axis=0)
        off = 100.0 * (time_change - rung.time_change), 100.0 * (energy_change - rung.energy_change)
        print(
            f"    {preset}, {1e3 * latency_s:g} ms: {len(rung.segments)} segments, energy {100 * rung.energy_change:+.2f} % "
            f"predicted {100 * energy_change:+.2f} % executed, time {100 * rung.time_change:+.2f} % and "
            f"{100 * time_change:+.2f} %",
            flush=True,
        )
        worst_time, worst_energy = max(worst_time, abs(off[0])), max(worst_energy, abs(off[1]))
    verdict.at_most("executed energy, off by points", worst_energy, 0.3)
    verdict.at_most("executed time, off by points", worst_time, 0.1)


def interval(verdict: Verdict, jobs: int = 30) -> None:
    """Whether live intervals hold the truth."""
    held: Counter[tuple[str, int, bool]] = Counter()
    half: dict[tuple[str, int], list[float]] = {}
    seeds = count(FIRST_SEED + 3000)
    for preset in preset_names():
        if len(schedule(preset, 0.015).rungs) < 2:
            continue
        for job in range(jobs // 3 if len(schedule(preset, 0.015).rungs[0].segments) > MANY else jobs):
            noise = (0.003, 0.005)[job % 2]
            ran = run(preset, 0.015, next(seeds), 320, Spread(noise, noise), every_s=1.0)
            for pairs, until, proof in ran.shown:
                if pairs not in PAIRS or proof.energy_change is None or proof.time_change is None:
                    continue
                saved_j = math.fsum(one.auto_energy_j - one.energy_j for one in ran.ran[:until])
                time_change, energy_change = ran.truth(until)
                shown = {
                    "time": (proof.time_change, time_change),
                    "energy": (proof.energy_change, energy_change),
                    "saved": (proof.saved_j, saved_j),
                }
                for what, (estimate, truth) in shown.items():
                    if estimate is not None:
                        held[what, pairs, _holds(estimate, truth)] += 1
                        half.setdefault((what, pairs), []).append(0.5 * (estimate.high - estimate.low))
        print(
            f"    {preset}: {sum(held.values())} looks so far, {sum(n for (*_, hit), n in held.items() if not hit)} missed"
        )
    for what in ("time", "energy", "saved"):
        for pairs in PAIRS:
            hits, misses = held[what, pairs, True], held[what, pairs, False]
            if not hits + misses:
                continue
            width = "" if what == "saved" else f", ± {100 * float(np.median(half[what, pairs])):.2f} %"
            print(f"    {what}, {pairs} pairs{width}: {_share(hits, hits + misses)}")
            verdict.at_least(f"interval of {what}, {pairs} pairs", hits / (hits + misses), 0.9)
            verdict.at_most(f"interval of {what}, {pairs} pairs", hits / (hits + misses), 0.98)


def bound(verdict: Verdict, jobs: int = 5) -> None:
    """Whether jobs keep their slowdown."""
    kept = strictly = runs = 0
    seeds = count(FIRST_SEED + 2000)
    for preset, latency_s in pairs_of_presets():
        plan = schedule(preset, latency_s)
        for seed in islice(seeds, 1 if len(plan.rungs[0].segments) > MANY else jobs):
            rng = np.random.default_rng(seed)
            noise, slowdown = float(rng.uniform(0.002, 0.01)), float(rng.uniform(0.0, 0.03))
            change = Change(int(rng.integers(0, 100)), slower(gpu(preset), preset, plan.rungs[0], slowdown))
            ran = run(preset, latency_s, seed, 250, Spread(noise, noise), change, every_s=1e9)
            took, auto = (math.fsum(getattr(one, name) for one in ran.ran) for name in ("time_s", "auto_time_s"))
            runs += 1
            strictly += took / auto - 1.0 <= plan.max_slowdown
            kept += took / auto - 1.0 <= plan.max_slowdown + TOLERANCE
        print(f"    {preset}, {1e3 * latency_s:g} ms: {kept} of {runs} so far keep their bound", flush=True)
    print(f"    within 0.1 points: {_share(kept, runs)}; to the last digit: {_share(strictly, runs)}")
    verdict.at_least("jobs that keep their bound", kept / runs, 0.95)


def three_percent(verdict: Verdict, jobs: int = 4) -> None:
    """Jobs that slow by 3 % at the plan's clocks."""
    seeds = count(FIRST_SEED + 1000)
    for noise in (0.002, 0.005, 0.01):
        beyond: list[int] = []
        late: list[float] = []
        for preset, latency_s in pairs_of_presets():
            plan = schedule(preset, latency_s)
            for seed in islice(seeds, 1 if len(plan.rungs[0].segments) > MANY else jobs):
                begins = 45 + 7 * (seed % 8)
                change = Change(
                    begins, slower(gpu(preset), preset, plan.rungs[0], 0.03 + plan.max_slowdown - plan.rungs[0].time_change)
                )
                ran = run(preset, latency_s, seed, begins + 40, Spread(noise, noise), change, every_s=1e9)
                slowdowns = ran.slowdowns()
                beyond.append(sum(each > plan.max_slowdown + 0.002 for each in slowdowns[begins:]))
                late.append(float(np.mean(slowdowns[begins + 20 :])) - plan.max_slowdown)
        most = np.quantile(beyond, [0.5, 0.95, 1.0])
        what, back = f"noise {100 * noise:g} %", int(np.sum(np.array(late) <= TOLERANCE))
        print(
            f"    {what}: median {most[0]:.0f}, most {most[2]:.0f} iterations beyond; "
            f"back within 20: {_share(back, len(late))}",
            flush=True,
        )
        verdict.at_most(f"iterations beyond the bound after 3 %, {what} (95 % of jobs)", float(most[1]), 20)
        verdict.at_least(f"jobs back within their bound after 20 iterations, {what}", back / len(late), 0.95)


def false_steps(verdict: Verdict) -> None:
    """Jobs as planned step nowhere."""
    iterations = steps = 0
    for seed, (preset, latency_s) in enumerate(pairs_of_presets(), FIRST_SEED + 4000):
        if len(schedule(preset, latency_s).rungs[0].segments) <= MANY:
            noise = (0.002, 0.01)[seed % 2]
            ran = run(preset, latency_s, seed, 500, Spread(noise, noise), every_s=1e9)
            iterations += len(ran.ran)
            steps += sum(event.kind == "stepped" for event in ran.summary.status.events)
    print(f"    {steps} steps in {iterations} iterations")
    verdict.at_most("steps without reason in 1,000 iterations", 1e3 * steps / iterations, 0.2)


def cost(verdict: Verdict) -> None:
    """What the controller itself takes."""
    preset = "rtx-3080-ti"
    device, plan = gpu(preset), schedule(preset, 0.005)
    controller = Controller(plan, [device], SUBJECT)
    spent = {"mark": [], "act": []}  # type: dict[str, list[float]]
    for name, took in spent.items():
        inner = getattr(controller, name)

        def timed(argument: object, inner=inner, took=took) -> None:  # type: ignore[no-untyped-def]
            began = time.perf_counter()
            inner(argument)
            took.append(time.perf_counter() - began)

        setattr(controller, name, timed)
    run_job(controller, workload(preset)[1], 150)
    for name, took in spent.items():
        verdict.at_most(f"median {name}, µs", 1e6 * float(np.median(took)), 50.0)


def _share(hits: int, of: int) -> str:
    """A share with its 95 % interval (Wilson's)."""
    z, share = 1.96, hits / of
    middle, half = share + z**2 / (2 * of), z * math.sqrt(share * (1.0 - share) / of + z**2 / (4 * of**2))
    low, high = ((middle + side * half) / (1.0 + z**2 / of) for side in (-1.0, 1.0))
    return f"{hits} of {of} ({100 * share:.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f} %)"


def _holds(shown: Estimate, truth: float) -> bool:
    return shown.low <= truth <= shown.high


def main(verdict: Verdict) -> None:
    began = time.monotonic()
    for part in (cost, execution, three_percent, bound, interval, false_steps):
        print(f"  {part.__doc__} ({time.monotonic() - began:.0f} s so far)", flush=True)
        part(verdict)

"""A plan at work, made by hand: what its status and its summary look like."""

import math
import random

from wastenot.control.status import Estimate, Event, GpuStatus, Instant, Moment, Proof, Status, Summary

GPU = GpuStatus(
    device="sim:rtx-3080-ti", model="GeForce RTX 3080 Ti (simulated)", unique_id="SIM-rtx-3080-ti-0", target_core_mhz=1470.0,
    target_memory_mhz=None, target_power_limit_w=None, core_mhz=1470.0, memory_mhz=9501.0, power_w=289.5, temperature_c=64.0,
    energy_j=52_000.0,
)  # fmt: skip
PROOF = Proof(
    time_change=Estimate(value=0.001, low=-0.001, high=0.003), energy_change=Estimate(value=-0.081, low=-0.086, high=-0.076),
    saved_j=Estimate(value=4_200.0, low=3_900.0, high=4_500.0), plan_iterations=540, default_iterations=60, blocks=40,
)  # fmt: skip
NO_PROOF = Proof(time_change=None, energy_change=None, saved_j=None, plan_iterations=4, default_iterations=0, blocks=1)


def status(**changed):
    """A status in the middle of a run."""
    made = Status(
        origin="simulated", plan="plan.json", plan_digest="5f1c2ab0", workload="gpt3-xl", process=4242,
        started_unix_s=1_790_000_000.0, elapsed_s=180.0, dry_run=False, max_slowdown=0.02, iteration=599, marker="backward",
        rung=0, rungs=4, at_default=False, predicted_time_change=0.0, predicted_energy_change=-0.083, proof=PROOF,
        gpus=(GPU,), events=(Event(at_s=0.0, kind="started", text="plan.json on sim:rtx-3080-ti"),),
    )  # fmt: skip
    return made.model_copy(update=changed)


def _estimates(at_s, rung):
    """What is known of time and energy at a moment: nothing at first, then ever more, anew for each comparison."""
    pairs = int(at_s / 9.0)
    if pairs < 2:
        return {}
    wobble = math.sin(1.7 * pairs) / pairs
    time, energy = (0.024 if rung == 0 else 0.001) + 0.004 * wobble, (-0.09 if rung == 0 else -0.081) + 0.008 * wobble
    half = 0.03 / pairs
    return {
        "time_change": Estimate(value=time, low=time - half, high=time + half),
        "energy_change": Estimate(value=energy, low=energy - 2 * half, high=energy + 2 * half),
    }


def summary(*, seconds=180.0, points=900, stepped=True, **changed):
    """The summary of a run: blocks at the default clocks now and then, and one step towards speed."""
    noise = random.Random(7)
    passes = [("forward", 0.3, 1470.0, 270.0), ("loss", 0.05, 1600.0, 300.0), ("backward", 0.55, 1350.0, 285.0),
              ("optimizer", 0.1, 900.0, 230.0)]  # fmt: skip
    moments, saved = [], 0.0
    for index in range(points):
        at_s = seconds * index / points
        share = math.fmod(at_s, 0.3) / 0.3
        name, target, power = "forward", 1470.0, 270.0
        begun = 0.0
        for name, length, target, power in passes:  # noqa: B007
            begun += length
            if share < begun:
                break
        at_default = int(at_s / 4.5) % 9 in (0, 4)
        rung = 1 if stepped and at_s > 0.6 * seconds else 0
        target += 90.0 * rung
        saved += 0.0 if at_default else (26.0 - 8.0 * rung) * seconds / points
        moments.append(Moment(
            at_s=at_s, power_w=power * (1.09 if at_default else 1.0) + noise.gauss(0.0, 3.0),
            core_mhz=1710.0 if at_default else target, target_core_mhz=None if at_default else target, marker=name,
            at_default=at_default, rung=rung, saved_j=saved if at_s > 9.0 else None,
            **_estimates(at_s, rung),
        ))  # fmt: skip
    events = [Event(at_s=0.0, kind="started", text="plan.json on sim:rtx-3080-ti")]
    if stepped:
        events.append(Event(at_s=0.6 * seconds, kind="stepped",
                            text="slowdown 2.6 % (2.2 to 3.0 %) is above 2 %: one rung towards speed"))  # fmt: skip
    events.append(Event(at_s=seconds, kind="ended", text="job ended; clocks given back"))
    last = status(elapsed_s=seconds, rung=1 if stepped else 0, events=tuple(events), **changed)
    return Summary(
        status=last, ended="job ended", exit_code=0, time_line=tuple(moments), close_up=tuple(instants(seconds - 3.0))
    )


def instants(begins_s, iterations=4, at_default=()):
    """Iterations of 0.3 s: two requests each, ahead of what they are for; those at the default clocks have none."""
    for number in range(iterations):
        start_s, default = begins_s + 0.3 * number, number in at_default
        for after_s, marker, target in (
            (0.0, "iteration", 1350.0), (0.0, "forward", 1350.0), (0.005, None, 1470.0), (0.09, "loss", 1470.0),
            (0.10, None, 1350.0), (0.105, "backward", 1350.0), (0.27, "optimizer", 1350.0),
        ):  # fmt: skip
            if not (default and marker is None):
                yield Instant(
                    at_s=start_s + after_s, marker=marker, at_default=default,
                    target_core_mhz=None if default else target, target_memory_mhz=None, target_power_limit_w=None,
                )  # fmt: skip

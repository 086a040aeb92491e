"""Schedules made by hand for a small model on simulated GPUs, and jobs that run them."""

from __future__ import annotations

from wastenot.control.controller import Controller
from wastenot.control.driver import Subject
from wastenot.control.simulated_job import Programme, programme_of
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.course import Course
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import find_preset
from wastenot.meters.tasks import tasks_of
from wastenot.planning.schedule import MarkerTime, Rung, Schedule, Segment
from wastenot.planning.switching import SwitchTime
from wastenot.workloads.build import build_workload

SUBJECT = Subject("plan.json", "sha256:0", "gpt3-small", "simulated")


def gpu(
    preset: str, *, seed: int = 0, latency_s: float = 0.015, jitter: float = 0.3, constant: bool = False
) -> SimulatedDevice:
    """A simulated GPU whose clocks take so long to change; it may stay at the temperature that its numbers are stated at."""
    card = find_preset(preset).model_copy(update={"switching": Switching.of(latency_s, jitter)})
    if constant:
        still = {"ambient_c": card.thermal.reference_c, "resistance_c_per_w": 0.0}
        card = card.model_copy(update={"thermal": card.thermal.model_copy(update=still)})
    return simulated_device(card, f"sim:{preset}", seed=seed)


def programme(model: str = "gpt3-small") -> Programme:
    """An iteration of a model."""
    tasks = tasks_of(build_workload(model))
    return programme_of(tasks.kernels, tasks.tasks)


def schedule(device: SimulatedDevice, iteration: Programme, *, latency_s: float = 0.015, allowed: float = 0.005) -> Schedule:
    """Two segments, forward at a lower clock than backward, and rungs of higher clocks.

    Args:
        device: whose physics says what is expected.
        iteration: to schedule.
        latency_s: of its switches.
        allowed: slowdown beyond that of the schedule.
    """
    physics = device.engine.physics
    assert isinstance(physics, ModelPhysics)
    temperature_c = physics.preset.thermal.reference_c
    clocks = physics.core_mhz.tolist()
    course = Course(physics, iteration.tasks, iteration.order, [0])
    markers = dict(iteration.markers)
    backward, whole = markers["backward"], len(iteration.order)

    def used(setting: Setting, first: int, last: int) -> tuple[float, float]:
        until_s, until_j = course.until(setting, temperature_c)
        return until_s[last] - until_s[first], until_j[last] - until_j[first]

    def segment(begins: str, setting: Setting, first: int, last: int) -> Segment:
        time_s, energy_j = used(setting, first, last)
        return Segment(
            begins=begins,
            offset_s=0.0,
            core_mhz=setting.core_mhz,
            memory_mhz=None,
            power_limit_w=None,
            early_s=latency_s,
            time_s=time_s,
            energy_j=energy_j,
        )

    auto_s, auto_j = used(AUTO, 0, whole)

    def rung(*segments: Segment) -> Rung:
        time_s, energy_j = sum(one.time_s for one in segments), sum(one.energy_j for one in segments)
        return Rung(
            segments=segments,
            time_s=time_s,
            energy_j=energy_j,
            time_change=time_s / auto_s - 1.0,
            energy_change=energy_j / auto_j - 1.0,
        )

    rungs = []
    for low, high in ((0.72, 0.8), (0.8, 0.86), (0.88, 0.92)):
        first, second = (Setting(core_mhz=clocks[round(part * (len(clocks) - 1))]) for part in (low, high))
        rungs.append(rung(segment("iteration", first, 0, backward), segment("backward", second, backward, whole)))
    rungs.append(rung(segment("iteration", AUTO, 0, whole)))
    until_s, _ = course.until(AUTO, temperature_c)
    return Schedule(
        switching=SwitchTime(core_s=latency_s, memory_s=latency_s, basis="given", source="given"),
        min_dwell_s=0.0,
        max_slowdown=max(rungs[0].time_change, 0.0) + allowed,
        markers=tuple(MarkerTime(name=name, after_s=until_s[call]) for name, call in iteration.markers),
        rungs=tuple(rungs),
        lower_bound_j=rungs[0].energy_j,
        gap=0.0,
    )


def controller(device: SimulatedDevice, of: Schedule, *, seed: int = 0, dry_run: bool = False) -> Controller:
    """A controller of one GPU."""
    return Controller(of, [device], SUBJECT, now_s=device.engine.now_s, seed=seed, dry_run=dry_run)

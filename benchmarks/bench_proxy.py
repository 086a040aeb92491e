"""Tuning jobs that report no iterations, by their memory traffic, beside the same jobs with hooks, on simulated GPUs.

First, by the exact physics: how far units of memory traffic, and cycles in which multiprocessors are active, would misjudge
the time of an iteration. Then jobs with hooks teach each card its error, and jobs without hooks are tuned: does what is held
keep the slowdown, and how much of the saving is left?

Nobody has published how traffic depends on the core clock. So kernels' bytes grow with a power of it: exponents are drawn of
each job and kernel (:data:`LEAK`, a guess). What shaped the method: GPT-3 XL and small training, Llama 8B decoding, seeds
below 100.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.bench_tune import Job, Search, programme, text
from benchmarks.verdict import Verdict, run_alone
from testbed.unhooked_jobs import LeakyCourse, UnheardTuner, in_turn
from wastenot.control.proxy_error import learned
from wastenot.control.simulated_job import Programme
from wastenot.control.traffic import Traffic
from wastenot.control.tuner import Tuner
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.devices.simulated.device import SimulatedDevice

PRESETS = ("h200", "b200", "mi300x")
LEARNED: dict[str, dict[str, object]] = {
    "gpt3-large": {"name": "gpt3-large", "batch": 8},
    "llama-1b, decoding": {"name": "llama-1b", "phase": "decode", "batch": 64},
}
COMPUTE: dict[str, object] = {"name": "gpt3-medium", "batch": 8}
MIXED: dict[str, object] = {"name": "llama-1b", "batch": 8, "optimizer": "adamw", "attention": "flash"}
MEMORY: dict[str, object] = {"name": "llama-3b", "phase": "decode", "batch": 32}
SLOWDOWNS = (0.02, 0.05)
LEAK, COMMON = 0.02, 0.01  # standard deviations of the exponents: of a kernel, and of all kernels of a job together
FIRST_LEARNED, FIRST_SEED = 150, 300
CLOCKS = (0.95, 0.9, 0.8, 0.7)  # of the highest


def main(verdict: Verdict, seeds: int = 2, *presets: str) -> None:
    """Judge it, on some of the cards or all."""
    presets = presets or PRESETS
    memory, mixed = programme(**MEMORY), programme(**MIXED)
    jobs = {
        "compute": programme(**COMPUTE), "mixed": mixed, "memory": memory,
        "phases": in_turn((memory, 100), (mixed, 4)),
    }  # fmt: skip
    _by_clock(jobs, presets)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        for preset in presets:
            for seed in range(FIRST_LEARNED, FIRST_LEARNED + 3):
                for options in LEARNED.values():
                    Job(preset, programme(**options), seed).tuned(0.05, _followed, _leaky(seed))
            found = learned(open_device(f"sim:{preset}").identity)
            print(f"sim:{preset}: {found.jobs} jobs with hooks: off by at most {found.error:.2%}", flush=True)
        _tune(verdict, jobs, seeds, presets)


def _tune(verdict: Verdict, jobs: dict[str, Programme], seeds: int, presets: Sequence[str]) -> None:
    every = {allowed: (list[Search](), list[Search]()) for allowed in SLOWDOWNS}
    for preset in presets:
        for label, each in jobs.items():
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                for allowed in SLOWDOWNS:
                    what = f"sim:{preset}, {label}, {allowed:.0%} slower, seed {seed}"
                    job, course = Job(preset, each, seed), _leaky(seed)
                    found = [job.tuned(allowed, kind, course) for kind in (_unheard, Tuner)]
                    for place, one in enumerate(found):
                        every[allowed][place].append(one)
                    times = ", ".join(f"{one.slowdown:+.2%} time, {one.saved:.2%} saved" for one in found)
                    print(f"{what}: by proxy and hooks {times}", flush=True)
    for allowed, (proxy, hooks) in every.items():
        print(f"at most {allowed:.0%} slower\n  by proxy {text(proxy)}\n  by hooks {text(hooks)}")
        share = sum(one.saved for one in proxy) / sum(one.saved for one in hooks)
        verdict.at_least(f"{allowed:.0%}: slowdown kept by proxy, fraction of jobs", _kept(proxy), 0.95)
        verdict.at_least(f"{allowed:.0%}: saved by proxy, fraction of what hooks save", share, 0.6)


def _kept(found: list[Search]) -> float:
    return float(np.mean([one.kept for one in found]))


def _followed(gpus: list[Device], *others: object, **named: object) -> Tuner:
    return Tuner(gpus, *others, traffic=Traffic(gpus), **named)  # type: ignore[arg-type]


def _unheard(gpus: list[Device], *others: object, **named: object) -> Tuner:
    return UnheardTuner(gpus, *others, traffic=Traffic(gpus), **named)  # type: ignore[arg-type]


def _leaky(seed: int) -> Callable[..., LeakyCourse]:
    common = COMMON * float(np.random.default_rng([seed, 72]).standard_normal())
    return partial(LeakyCourse, leak=LEAK, common=common, leak_seed=seed)


def _by_clock(jobs: dict[str, Programme], presets: Sequence[str]) -> None:
    """What either proxy says of the time of an iteration, against its true time, with kernels whose bytes never change."""
    for preset in presets:
        device = open_device(f"sim:{preset}")
        assert isinstance(device, SimulatedDevice)
        cores = device.clocks.supported_clocks()[max(device.clocks.supported_clocks())]
        for label, each in jobs.items():
            said = []
            auto_s, auto_cycles = _used(device, each, AUTO)
            for ratio in CLOCKS:
                core_mhz = min(cores, key=lambda clock: abs(clock - ratio * cores[-1]))
                time_s, cycles = _used(device, each, Setting(core_mhz, None))
                said.append(f"{core_mhz:.0f} MHz {cycles / auto_cycles - 1.0:+.1%} of {time_s / auto_s - 1.0:+.1%} time")
            print(f"sim:{preset}, {label}: traffic +0.0 %; active cycles of an iteration {', '.join(said)}", flush=True)


def _used(device: SimulatedDevice, each: Programme, setting: Setting) -> tuple[float, float]:
    """Time of an iteration, and cycles in which multiprocessors are active: all, as their warps wait for the memory."""
    calls = np.bincount(each.order, minlength=len(each.tasks))
    points = [device.truth(task, setting) for task in each.tasks]
    times_s = np.array([point.time_s for point in points])
    mhz = np.array([point.core_mhz for point in points])
    return float(calls @ times_s), float(calls @ (times_s * mhz))


if __name__ == "__main__":
    run_alone(main, *map(int, sys.argv[1:2]), *sys.argv[2:])

"""Power profiles on a real GPU, the subjects of FinGraV: GEMMs, GEMVs, interleavings, collectives.

    export WASTENOT_READ_ONLY=1
    PYTHONPATH=src:. python benchmarks/h200/fingrav.py OUT --jobs alone --budget 60        # about 9 minutes
    PYTHONPATH=src:. python benchmarks/h200/fingrav.py OUT --jobs context --budget 30      # about 3 minutes
    PYTHONPATH=src:. python benchmarks/h200/fingrav.py OUT --jobs collectives --budget 25  # about 4 minutes, two GPUs

Stores each profile's numbers as JSON as soon as it is complete, and all runs that it is based on, with executions merged
into units of about a millisecond. Only reads the GPU's state. ``--device sim:h200`` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.raw_runs import write_units
from wastenot.core.errors import WastenotError
from wastenot.devices.instrument import Burst, BurstRun
from wastenot.devices.open import open_device
from wastenot.profiles.profile import profile_kernel
from wastenot.profiles.result import Profile
from wastenot.profiles.session import Options
from wastenot.workloads.primitives import primitive

# Kernel, its units, what comes before, and a factor on the budget: resolving the inside of the largest GEMM takes longer.
Job = tuple[str, int | None, tuple[str, ...], float]
SIZES = ("64KB", "128KB", "512MB", "1GB")
JOBS: dict[str, tuple[Job, ...]] = {
    "alone": (
        ("gemm:8192", None, (), 3.5),
        *((name, None, (), 1.0) for name in ("gemv:8192", "gemm:4096", "gemm:2048", "gemv:4096", "gemv:2048")),
    ),
    # The interleavings of FinGraV's Fig. 9, with as many preceding kernels as this GPU's power sensor can see.
    "context": (
        ("gemm:8192", 12, ("gemm:2048x700",), 1.0),
        ("gemm:2048", 20, ("gemv:4096x1500",), 1.0),
        ("gemm:2048", 20, ("gemm:8192x6", "gemm:4096x60"), 1.0),
        ("gemv:8192", 20, ("gemv:4096x1500",), 1.0),
        ("gemv:4096", 20, ("gemm:8192x6", "gemm:4096x60"), 1.0),
    ),
    "collectives": tuple(
        (f"{kind}:{size}", None, (), 0.5 if size.endswith("KB") else 1.0)
        for kind in ("all-gather", "all-reduce")
        for size in SIZES
    ),
}


class Kept:
    """A device whose instrument stores every run."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.instrument_ = device.instrument()
        self.runs: list[tuple[Burst, list[BurstRun]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def instrument(self) -> KeptInstrument:
        """The device's instrument, storing runs."""
        return KeptInstrument(self)


class KeptInstrument:
    """An instrument that stores every run."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept.instrument_, name)

    @contextmanager
    def prepare(self, burst: Burst) -> Iterator[KeptBench]:
        """Prepare the burst."""
        with self._kept.instrument_.prepare(burst) as bench:
            runs: list[BurstRun] = []
            self._kept.runs.append((burst, runs))
            yield KeptBench(bench, runs)


class KeptBench:
    """A burst whose runs are stored."""

    def __init__(self, bench: Any, runs: list[BurstRun]) -> None:
        self._bench, self._runs = bench, runs

    def run(self, rest_s: float) -> BurstRun:
        """Run it once."""
        self._runs.append(self._bench.run(rest_s))
        return self._runs[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="nvidia:0")
    parser.add_argument("--jobs", choices=tuple(JOBS), default="alone")
    parser.add_argument("--only", default="", metavar="KERNELS", help="only the jobs of these kernels, separated by commas")
    parser.add_argument("--budget", type=float, default=50.0, help="seconds per profile")
    parser.add_argument("--stop-after", type=float, default=560.0, help="seconds after which no further profile is started")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for name, units, before, times in JOBS[chosen.jobs]:
        if chosen.only and name not in chosen.only.split(","):
            continue
        budget = times * chosen.budget
        if time.monotonic() - began + budget > chosen.stop_after:
            print(f"{name}: no time left", flush=True)
            continue
        label = "-after-".join([name, *before]).replace(":", "-")
        device = Kept(open_device(chosen.device))
        started = time.monotonic()
        try:
            options = Options(budget_s=budget, units=units, check=not before)
            if name.endswith("KB"):  # the host cannot keep up with collectives this short: no more than fit in the queue
                options = replace(options, units=3, longest_run_s=2.8e-3, check=False)
            first = [primitive(one) for one in before]
            profile = profile_kernel(device, primitive(name)[0], before=first, options=options)
        except WastenotError as error:
            print(f"{label}: {error}", flush=True)
        else:
            print_profile(profile, label, time.monotonic() - started)
            (chosen.out / f"{label}.json").write_text(json.dumps(numbers_of(profile), indent=1))
        for index, (burst, runs) in enumerate(device.runs):
            if runs:
                write_units(chosen.out / f"{label}-{index}.npz", device.instrument_, burst, runs)
    sys.stdout.flush()


def print_profile(profile: Profile, label: str, took_s: float) -> None:
    """Print a profile in a few lines."""
    for state in profile.states:
        total = state.channels["total"]
        print(
            f"{label}: {state.name} {state.unit}: {1e6 * state.time_s:.1f} µs, {total.mean_w:.1f} W ± "
            f"{total.mean_error_w:.1f}, {'shape known' if total.resolved else 'mean only'}; {profile.golden_runs} of "
            f"{profile.runs} runs; noise {profile.channels[0].noise_w:.1f} W; {took_s:.0f} s",
            flush=True,
        )
    if profile.counter is not None:
        off = profile.counter.difference
        print(f"    counter {profile.counter.counter_w:.1f} W, profile differs by {off:+.2%}", flush=True)
    print("    " + "; ".join(profile.notes), flush=True)


def numbers_of(profile: Profile) -> dict[str, Any]:
    """A profile's numbers; not the package's own document, whose dependencies the machine may lack."""
    counter = profile.counter
    return {
        "kernel": profile.kernel,
        "before": profile.before,
        "device": profile.device,
        "driver": profile.driver,
        "executions_in_unit": profile.group,
        "runs": [profile.golden_runs, profile.runs],
        "states": {
            state.name: {"unit": state.unit, "time_s": state.time_s}
            | {name: {"mean_w": one.mean_w, "error_w": one.mean_error_w} for name, one in state.channels.items()}
            for state in profile.states
        },
        "counter": None if counter is None else [counter.counter_w, counter.profile_w, counter.seconds],
        "notes": profile.notes,
    }


if __name__ == "__main__":
    main()

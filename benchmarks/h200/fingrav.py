"""Power profiles on a real GPU, as FinGraV has them: products, matrices times vectors, one after another, collectives.

    export WASTENOT_READ_ONLY=1
    PYTHONPATH=src:. python benchmarks/h200/fingrav.py OUT --budget 50               # about 8 minutes
    PYTHONPATH=src:. python benchmarks/h200/fingrav.py OUT --collectives --budget 10  # two GPUs

Each profile is kept as soon as it is there (a pickle of the product's own result), and every run that it rests on. Only
reads the GPU's state. ``--device sim:h200`` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.h200.fingrav_raw import write_runs
from wastenot.devices.fine_grain import Burst, Run, instrument_of
from wastenot.devices.open import open_device
from wastenot.errors import WastenotError
from wastenot.measurement.fingrav.profile import Options, profile_kernel
from wastenot.workloads.primitives import primitive

ALONE = ("gemm:8192", "gemv:8192", "gemm:4096", "gemm:2048", "gemv:4096", "gemv:2048")
# Kernel, units of it, and what comes before: light after heavy, heavy after light, and the same among products.
IN_CONTEXT = (
    ("gemv:8192", 20, ("gemm:8192x12",)),
    ("gemm:8192", 12, ("gemv:8192x600",)),
    ("gemm:2048", 20, ("gemm:8192x12",)),
    ("gemm:2048", 20, ("gemv:8192x600",)),
)
COLLECTIVES = tuple(f"{kind}:{size}" for kind in ("all-gather", "all-reduce") for size in ("64KB", "128KB", "512MB", "1GB"))


class Kept:
    """A device whose instrument keeps every run."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.instrument_ = instrument_of(device)
        self.runs: list[tuple[Burst, list[Run]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def instrument(self) -> KeptInstrument:
        """The device's, keeping runs."""
        return KeptInstrument(self)


class KeptInstrument:
    """An instrument that keeps every run."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept.instrument_, name)

    @contextmanager
    def prepare(self, burst: Burst) -> Iterator[KeptBench]:
        """The burst, made ready."""
        with self._kept.instrument_.prepare(burst) as bench:
            runs: list[Run] = []
            self._kept.runs.append((burst, runs))
            yield KeptBench(bench, runs)


class KeptBench:
    """A burst whose runs are kept."""

    def __init__(self, bench: Any, runs: list[Run]) -> None:
        self._bench, self._runs = bench, runs

    def run(self, rest_s: float) -> Run:
        """Run it once."""
        self._runs.append(self._bench.run(rest_s))
        return self._runs[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="nvidia:0")
    parser.add_argument("--budget", type=float, default=50.0, help="seconds for each profile")
    parser.add_argument("--context-budget", type=float, default=25.0)
    parser.add_argument("--collectives", action="store_true")
    parser.add_argument("--stop-after", type=float, default=560.0, help="seconds after which no profile is begun")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    jobs = [(name, None, ()) for name in (COLLECTIVES if chosen.collectives else ALONE)]
    if not chosen.collectives:
        jobs += IN_CONTEXT  # type: ignore[arg-type]
    for name, units, before in jobs:
        budget = chosen.context_budget if before else chosen.budget
        if time.monotonic() - began + budget > chosen.stop_after:
            print(f"{name}: no time left", flush=True)
            continue
        label = "-after-".join([name, *before]).replace(":", "-")
        device = Kept(open_device(chosen.device))
        started = time.monotonic()
        try:
            options = Options(budget_s=budget, units=units, check=not before)
            first = [primitive(one) for one in before]
            profile = profile_kernel(device, primitive(name)[0], before=first, options=options)
        except WastenotError as error:
            print(f"{label}: {error}", flush=True)
        else:
            (chosen.out / f"{label}.pickle").write_bytes(pickle.dumps(profile))
            for state in profile.states:
                total = state.channels["total"]
                known = "shape known" if total.resolved else "mean only"
                print(
                    f"{label}: {state.name} {state.unit}: {1e6 * state.time_s:.1f} µs, {total.mean_w:.1f} W ± "
                    f"{total.mean_error_w:.1f}, {known}; {profile.golden_runs} of {profile.runs} runs; "
                    f"noise {profile.channels[0].noise_w:.1f} W; {time.monotonic() - started:.0f} s",
                    flush=True,
                )
            if profile.counter is not None:
                off = profile.counter.difference
                print(f"    counter {profile.counter.counter_w:.1f} W, profile off by {off:+.2%}", flush=True)
            print("    " + "; ".join(profile.notes), flush=True)
        for place, (burst, runs) in enumerate(device.runs):
            if runs:
                write_runs(chosen.out / f"{label}-runs-{place}.npz", device.instrument_, burst, runs)
    sys.stdout.flush()


if __name__ == "__main__":
    main()

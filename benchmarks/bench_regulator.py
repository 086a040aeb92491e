"""The regulator of `sim:h200` beside those of real H200s: what the clock does from rest and after products.

    python -m benchmarks regulator

The run from rest is of the card to which the regulator was adjusted by hand. The wakes
are of other cards and of kernels that were not looked at for it: light kernels of GPT-3 XL and Llama 8B, each after products
of 0.1 s, twice (data/h200/natural/ops.npz.xz). A wake counts where it begins below 1,600 MHz.

Goals are of what a natural sweep needs: clocks that last about as long as on the card, so that it sees as many of each.
"""

from __future__ import annotations

import io
import json
import lzma
from dataclasses import dataclass

import numpy as np

from benchmarks.kept import DATA
from benchmarks.verdict import Verdict
from wastenot.core.arrays import FloatArray
from wastenot.devices.open import open_device
from wastenot.devices.timeline import REST, Phase, Subject
from wastenot.workloads.build import build_workload, run_named
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.primitives import primitive

NATURAL = DATA / "h200" / "natural"
PRODUCT = primitive("gemm:8192")[0]
WORKLOADS = {"gpt3-xl": "gpt3-xl", "llama-8b-batch4-flash-adamw": "llama-8b-batch4-flash-adamw"}
BELOW_MHZ, RISEN = 1600.0, 0.63
ALONE_S, PRODUCTS_S, WAKE_S, WAKES = 0.3, 0.1, 0.24, 2  # as in the runs of data/h200/natural/ops.npz.xz


@dataclass(frozen=True, slots=True)
class Wake:
    """How long the clock stayed after products ended, and until it had risen by 63 % of what it rose, in seconds."""

    held_s: float
    risen_s: float


def wake_of(since_s: FloatArray, core_mhz: FloatArray) -> Wake | None:
    """A wake by the clocks of groups; ``None`` where the clock was not down, or did not recover."""
    begins, ends = float(np.median(core_mhz[:3])), float(np.median(core_mhz[-5:]))
    if begins > BELOW_MHZ or ends < begins + 200.0:
        return None
    held = np.argmax(core_mhz > begins + 12.0)
    risen = np.argmax(core_mhz > begins + RISEN * (ends - begins))
    return Wake(float(since_s[held]), float(since_s[risen]))


def light_kernels() -> dict[str, KernelSpec]:
    """Those of the measured workloads that do not run on tensor cores, by the names of the measurements."""
    found = {}
    for prefix, name in WORKLOADS.items():
        run = run_named(name)
        assert run is not None
        for kernel in build_workload(run.model, run.shape).kernels:
            if kernel.op not in ("gemm", "attention", "attention_backward"):
                found[f"{prefix}:{kernel.name}"] = kernel
    return found


def measured_wakes(names: set[str]) -> list[Wake]:
    """Wakes on two other cards."""
    raw = np.load(io.BytesIO(lzma.decompress((NATURAL / "ops.npz.xz").read_bytes())))
    operations = json.loads(str(raw["operations"].ravel()[0]))
    bounds = np.concatenate([[0], np.cumsum(raw["groups_per_operation"].astype(int))])
    found = []
    for index, operation in enumerate(operations):
        if operation["name"] not in names:
            continue
        of = slice(bounds[index], bounds[index + 1])
        phase, core_mhz, at_s = raw["phase"][of], 0.1 * raw["mhz"][of], 1e-6 * np.cumsum(raw["at_us"][of].astype(float))
        for number in range(2, int(phase.max()) + 1, 2):
            mine = phase == number
            wake = wake_of(at_s[mine] - at_s[mine][0], core_mhz[mine])
            found += [] if wake is None else [wake]
    return found


def simulated_wakes(kernels: dict[str, KernelSpec]) -> list[Wake]:
    """The same programmes on the simulated card."""
    device, found = open_device("sim:h200", seed=11), []
    for kernel in kernels.values():
        with device.timelines().prepare([Subject(PRODUCT), Subject(kernel)]) as ready:
            ran = ready.run([Phase(1, ALONE_S), *[Phase(0, PRODUCTS_S), Phase(1, WAKE_S)] * WAKES])
        for number in range(2, 2 * WAKES + 1, 2):
            mine = ran.phase == number
            wake = wake_of(ran.begin_s[mine] - ran.begin_s[mine][0], ran.core_mhz[mine])
            found += [] if wake is None else [wake]
    return found


def _spread(what: str, measured: list[float], simulated: list[float]) -> tuple[float, float]:
    for name, values in (("measured", measured), ("simulated", simulated)):
        low, middle, high = 1e3 * np.quantile(values, [0.1, 0.5, 0.9])
        print(f"    {what}, {name} ({len(values)}): {middle:.0f} ms, from {low:.0f} to {high:.0f} (80 %)")
    return 1e3 * float(np.median(measured)), 1e3 * float(np.median(simulated))


def wakes(verdict: Verdict) -> None:
    """The clock after products, on cards and kernels that shaped nothing."""
    kernels = light_kernels()
    measured, simulated = measured_wakes(set(kernels)), simulated_wakes(kernels)
    real_ms, sim_ms = _spread("held", [wake.held_s for wake in measured], [wake.held_s for wake in simulated])
    verdict.at_most("median hold, off by ms", abs(sim_ms - real_ms), 10.0)
    real_ms, sim_ms = _spread("risen by 63 %", [wake.risen_s for wake in measured], [wake.risen_s for wake in simulated])
    verdict.at_most("median rise, off by ms", abs(sim_ms - real_ms), 20.0)


def rest(verdict: Verdict) -> None:
    """How long products from rest run before the clock falls at all."""
    real = np.load(NATURAL / "probe-rest.npz")
    device = open_device("sim:h200", seed=13)
    with device.timelines().prepare([Subject(PRODUCT)]) as ready:
        ran = ready.run([Phase(REST, 0.4), Phase(0, 0.15)] * 12)
    found = []
    for begin_s, phases, core_mhz in (
        (real["begin_s"], real["phase"], real["core_mhz"]),
        (ran.begin_s, ran.phase, ran.core_mhz),
    ):
        falls = []
        for phase in np.unique(phases):
            mine = phases == phase
            falls.append(float((begin_s[mine] - begin_s[mine][0])[np.argmax(core_mhz[mine] < 0.97 * core_mhz[mine][2])]))
        found.append(falls)
    real_ms, sim_ms = _spread("from rest until the clock falls", *found)
    verdict.at_most("reaction from rest, off by ms", abs(sim_ms - real_ms), 10.0)


def main(verdict: Verdict) -> None:
    rest(verdict)
    wakes(verdict)

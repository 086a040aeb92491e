"""Curves of kernels from whole natural sweeps of simulated cards, against the truth.

Each card is drawn anew (``drawn_cards``): regulator, voltage, overlap, power sensor, and every kernel's split between core
and memory. Nothing is set: the sweep chooses its programmes by what it has seen. Even cards run GPT-3 XL training, odd ones
Llama 8B prefill, which tuned nothing. Seeds from ``JUDGES`` on judge. Errors of a card have much in common: bands are
judged over all cards; the range judged is that of the curves within 1.45 to 1.98 GHz.

    python -m benchmarks.bench_natural [CARDS [FIRST]]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.drawn_cards import JUDGES, natural_card
from benchmarks.predicted_mixtures import predict_mixture
from benchmarks.verdict import Verdict
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.natural.curves import KernelCurve, NaturalCurves
from wastenot.natural.estimate import estimate
from wastenot.natural.storage import read_curves
from wastenot.natural.sweep import HEAVY, natural_sweep, seen_of
from wastenot.setting import AUTO
from wastenot.study.store import open_study
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.tasks import WorkloadTasks, find_tasks
from wastenot.workloads.build import build_shape
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.primitives import primitive

CARDS = 10
RANGE_MHZ = (1450.0, 1983.0)
TIME, POWER, BANDS, SECONDS = 0.005, 0.02, (0.90, 0.98), 900.0
EACH_MIXTURE, MEAN_MIXTURE = 0.02, 0.01
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Card:
    """Errors of one card; arrays of shape (knots of all kernels,) and (mixtures,)."""

    time: np.ndarray
    power: np.ndarray
    time_z: np.ndarray
    power_z: np.ndarray
    auto: np.ndarray
    mixed_time: np.ndarray
    mixed_energy: np.ndarray
    seconds: float
    kernels: int


def main(verdict: Verdict, cards: int = CARDS, first: int = JUDGES) -> None:
    found: list[Card] = []
    for seed in range(first, first + cards):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found.append(judged(seed, Path(folder)))
        one = found[-1]
        print(
            f"  card {seed}: {one.kernels} kernels in {one.seconds:.0f} s of device time; time {_rms(one.time):.2%}, power "
            f"{_rms(one.power):.2%}, bands hold {_held(one.time_z):.0%} and {_held(one.power_z):.0%}; auto energy "
            f"{_rms(one.auto):.2%}; mixtures: time {_rms(one.mixed_time):.2%}, energy at most "
            f"{np.abs(one.mixed_energy).max():.2%} ({time.perf_counter() - began:.0f} s)",
            flush=True,
        )

    def all_of(name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name) for one in found])

    verdict.at_most("time by clock, error, RMS over cards, kernels and clocks", _rms(all_of("time")), TIME)
    verdict.at_most("power by clock, the same", _rms(all_of("power")), POWER)
    for name in ("time", "power"):
        held = _held(all_of(f"{name}_z"))
        verdict.at_least(f"95 % bands of {name} hold", held, BANDS[0])
        verdict.at_most(f"95 % bands of {name} hold", held, BANDS[1])
    verdict.at_most("device time for GPT-3 XL, longest, s", max(one.seconds for one in found[:1] + found[::2]), SECONDS)
    verdict.at_most("energy of a mixture by the counter, largest error", np.abs(all_of("mixed_energy")).max(), EACH_MIXTURE)
    verdict.at_most("energy of mixtures, mean error", np.abs(all_of("mixed_energy")).mean(), MEAN_MIXTURE)


def judged(seed: int, folder: Path) -> Card:
    """A sweep of a card, held against its truth."""
    tasks = _tasks(seed)
    kernels = [task.steps[0][0] for task in tasks.tasks]
    device = open_device(natural_card(seed, kernels, folder), seed=seed)
    assert isinstance(device, SimulatedDevice)
    began_s = device.time.now_s()
    study = open_study(folder / "study.db", create=True)
    natural_sweep(device, tasks, study)
    seconds = device.time.now_s() - began_s
    curves = read_curves(study, tasks.name)
    seen = seen_of(study, tasks)
    runs = [run for task in tasks.tasks for run in seen.get(task.name, ())]
    # A sweep measures kernels that are alike once, but on drawn cards each is drawn by itself.
    kernels = [kernel for kernel in kernels if seen.get(kernel.name)]
    estimated = estimate(runs)  # once more, for the product that kernels were measured beside
    physics = device.timelines()._bench.physics
    errors = {name: [] for name in ("time", "power", "time_z", "power_z", "auto")}
    for kernel in kernels:
        curve = curves[kernel.name]
        time_s, power_w = truth(physics, kernel, curve.core_mhz, estimated.temperature_c)
        inside = (curve.core_mhz >= RANGE_MHZ[0]) & (curve.core_mhz <= RANGE_MHZ[1])
        off = {"time": np.log(curve.time_s / time_s)[inside], "power": np.log(curve.power_w / power_w)[inside]}
        for name, covariance in (("time", curve.log_time_cov), ("power", curve.log_power_cov)):
            errors[name].append(off[name])
            errors[f"{name}_z"].append(off[name] / np.sqrt(np.diag(covariance))[inside])
        if not curve.auto.limited:  # a clock of the curve; that of others is the regulator's to choose
            at_auto = truth(physics, kernel, np.array([curve.auto.core_mhz]), estimated.temperature_c)
            errors["auto"].append(np.log(curve.auto.energy_j / (at_auto[0] * at_auto[1])))
    found = {name: np.concatenate(each) for name, each in errors.items()}
    products = {curve.kernel: curve for curve in estimated.beside}
    mixed = _mixtures(device, kernels, curves, products, np.random.default_rng(seed))
    return Card(**found, mixed_time=mixed[0], mixed_energy=mixed[1], seconds=seconds, kernels=len(kernels))


def truth(physics, kernel: KernelSpec, core_mhz: np.ndarray, temperature_c: float) -> tuple[np.ndarray, np.ndarray]:
    """Time and power of a kernel at clocks in effect."""
    response = physics.response(kernel, core_mhz, AUTO)
    warmer_c = temperature_c - physics.preset.thermal.reference_c
    return response.time_s, response.power_w.sum(axis=0) + physics.leakage_w_per_c(core_mhz) * warmer_c


def _mixtures(
    device: SimulatedDevice,
    kernels: Sequence[KernelSpec],
    curves: NaturalCurves,
    products: dict[str, KernelCurve],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of time and energy of kernels in turn with products, by the energy counter."""
    product = primitive(HEAVY[0])[0]
    every = {curve.kernel: curve for curve in curves} | products
    light = [kernel for kernel in kernels if kernel.op != "gemm" and not curves[kernel.name].auto.limited]
    times, energies = [], []
    for kernel in rng.permutation(np.array(light, dtype=object))[:4]:
        calls = max(round(float(rng.uniform(2e-3, 8e-3)) / curves[kernel.name].auto.time_s), 1)
        task = Task("mixture", ((kernel, calls), (product, int(rng.integers(1, 5)))))
        point = measure_point(device, task, AUTO, PointOptions(warm_up_s=3.0, window_s=6.0))
        steps = [(step.name, number) for step, number in task.steps]
        assert point.effective_core_mhz is not None
        clocks = {name: float(np.clip(point.effective_core_mhz, every[name].core_mhz[0], every[name].core_mhz[-1]))
                  for name, _ in steps}  # fmt: skip
        predicted = predict_mixture(steps, every, clocks)
        times.append(np.log(predicted.time_s / point.time_s))
        energies.append(np.log(predicted.energy_j / point.energy_j))
    return np.array(times), np.array(energies)


def _tasks(seed: int) -> WorkloadTasks:
    if seed % 2 == 0:
        return find_tasks("gpt3-xl", "sim:h200")
    return find_tasks("llama-8b", "sim:h200", build_shape(phase="prefill"))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _held(z: np.ndarray) -> float:
    return float(np.mean(np.abs(z) <= _Z))


if __name__ == "__main__":
    outcome = Verdict()
    main(outcome, *map(int, sys.argv[1:]))
    sys.exit(f"missed: {', '.join(outcome.missed)}" if outcome.missed else None)

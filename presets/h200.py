"""The H200: fitted to the kernels of GPT-3 XL and Llama 8B at its own clocks (data/h200), the voltage curve assumed.

Its clocks were never set, so each kernel is one point: what a lower clock would do is the model's word, not data's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from presets.cards import ATTENTION_EFFICIENCY, H200, sensors, switching
from wastenot.devices.protocol import Task
from wastenot.devices.simulated import model
from wastenot.devices.simulated.hardware import SensorModels, Switching, Thermal
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.model_physics import ModelPhysics, analytical_parameters
from wastenot.devices.simulated.preset import ClockTable, OpTraits, Preset
from wastenot.setting import AUTO
from wastenot.study.sweep_file import read_sweep
from wastenot.workloads.build import build_workload, run_named
from wastenot.workloads.kernel import KernelSpec

Array = NDArray[np.float64]

IDLE_W, IDLE_MEMORY_W = 79.0, 46.0
AWAKE_MEMORY_W, MEMORY_J_PER_BYTE = 82.0, 26.6e-12  # medians over the seven sweeps of lines through their kernels
_KNEE_MHZ, _SLOPE_PER_GHZ = 1185.0, 0.55

DATA = Path(__file__).parents[1] / "data" / "h200"
SWEEPS: tuple[tuple[str, str], ...] = (
    ("gpt3-xl-4", "gpt3-xl"),
    ("llama-8b-training", "llama-8b-batch4-flash"),
    ("llama-8b-prefill", "llama-8b-prefill-flash"),
    ("llama-8b-decode", "llama-8b-decode-flash"),
)
"""Sweeps that the preset is fitted to, each with its workload: the kernels as they are now, each once."""

_WARM_C = 57.0  # the median of these sweeps


@dataclass(frozen=True, slots=True)
class Measured:
    """One kernel at auto.

    Attributes:
        kernel: the analytical kernel.
        time_s: of one call.
        power_w: mean.
        core_mhz: mean core clock.
    """

    kernel: KernelSpec
    time_s: float
    power_w: float
    core_mhz: float


def read_measured(name: str, workload: str) -> tuple[Measured, ...]:
    """The kernels of a sweep in data/h200, analytical, with their measurements, in order of execution."""
    sweep = read_sweep(DATA / f"{name}.csv")
    run = run_named(workload)
    assert run is not None
    specs = {kernel.name: kernel for kernel in build_workload(run.model, run.shape).kernels}
    power = sweep.energy_j / sweep.time_s
    found = {
        sweep.kernels[kernel].name: Measured(specs[sweep.kernels[kernel].name], *map(float, values))
        for kernel, *values in zip(sweep.kernel_index, sweep.time_s, power, sweep.effective_core_mhz, strict=True)
    }
    return tuple(found[name] for name in specs)


def read_all() -> tuple[Measured, ...]:
    """The kernels of every sweep that the preset is fitted to."""
    return tuple(one for name, workload in SWEEPS for one in read_measured(name, workload))


def parameters() -> DeviceParameters:
    """What is known and assumed of the card itself; see provenance.toml."""
    clocks = (345.0, _KNEE_MHZ, 1380.0, 1580.0, 1780.0, 1980.0)
    base = IDLE_W - IDLE_MEMORY_W
    return DeviceParameters(
        reference_core_mhz=1980.0,
        reference_memory_mhz=3201.0,
        memory_states_mhz=(2201.0, 3201.0),
        bandwidth_factor=(1.0, 1.0),
        core_bandwidth=0.66,
        core_bandwidth_sharpness=10.0,
        overlap_exponent=14.0,
        core_floor_mhz=330.0,
        voltage_clocks_mhz=clocks,
        voltage_ratio=tuple(1.0 + max(clock - _KNEE_MHZ, 0.0) / 1000 * _SLOPE_PER_GHZ for clock in clocks),
        base_w=(base + round(AWAKE_MEMORY_W * 2201 / 3201, 1), base + AWAKE_MEMORY_W),
        leakage_w=7.0,
        byte_energy_factor=(1.0, 1.0),
        power_limit_w=700.0,
    )


def fit_ops(operations: Sequence[Measured], device: DeviceParameters) -> dict[str, OpTraits]:
    """Traits of each class of operations, fitted to their times and powers at the clocks that they ran at.

    What streaming classes have in common is fitted first, then each class leans on it, the less the more of its kernels
    were measured. Fused attention leans on matrix products, backward on forward.
    """
    members: dict[str, list[Measured]] = {}
    for one in operations:
        members.setdefault(one.kernel.op, []).append(one)
    common = _fit([one for op in _STREAMING for one in members.get(op, ())], device, _STREAMING_GUESS, _DOUBT)
    fitted = {
        op: _fit(ones, device, common, _DOUBT if op in _STREAMING else _LARGE_DOUBT)
        for op, ones in members.items()
        if op not in _MATRIX
    }
    guess = _GEMM_GUESS
    rates = (guess.flops_per_s, _ATTENTION_FLOPS_PER_S, None)
    for op, flops_per_s in zip(_MATRIX, rates, strict=True):
        rate = _BACKWARD_OVER_FORWARD * guess.flops_per_s if flops_per_s is None else flops_per_s
        leaning_on = guess.model_copy(update={"flops_per_s": rate})
        doubt = _GEMM_DOUBT if op == "gemm" else _ATTENTION_DOUBT
        guess = fitted[op] = _fit(members[op], device, leaning_on, doubt) if op in members else leaning_on
    fitted.setdefault("rmsnorm", fitted["layernorm"])
    return {"default": fitted["elementwise"]} | fitted


_MATRIX = ("gemm", "attention", "attention_backward")  # each leans on the one before it
_STREAMING = ("softmax", "layernorm", "rmsnorm", "elementwise", "reduce", "embedding")
_MULTIPROCESSORS, _BYTES_A_CLOCK = 132, 64  # what a Hopper multiprocessor takes from the L2 at most
_ATTENTION_FLOPS_PER_S = 0.35 * H200.tensor_tflops * 1e12  # FlashAttention-2 on Hopper: FlashAttention-3 paper, abstract
_BACKWARD_OVER_FORWARD = ATTENTION_EFFICIENCY[1] / ATTENTION_EFFICIENCY[0]

_FITTED = ("flops_per_s", "bytes_per_s", "issue_bytes_per_s", "flop_j", "issue_byte_j", "clock_w", "fixed_s")
# First guesses, and the standard deviation of the logarithm of each fitted one, in this order.
_STREAMING_GUESS = OpTraits(
    flops_per_s=8e12,
    bytes_per_s=4.4e12,
    issue_bytes_per_s=_MULTIPROCESSORS * _BYTES_A_CLOCK * 1.98e9,
    fixed_s=2e-6,
    clock_w=26.0,
    flop_j=6e-12,
    issue_byte_j=40e-12,
    byte_j=MEMORY_J_PER_BYTE,
)
_DOUBT = np.array([1.0, 0.1, 0.3, 1.0, 0.3, 0.5, 0.5])
_LARGE_DOUBT = np.array([3.0, 0.1, 1.5, 3.0, 0.5, 0.5, 0.5])  # accesses that are scattered, or sums one after another
_GEMM_GUESS = _STREAMING_GUESS.model_copy(update={"flops_per_s": 880e12, "issue_bytes_per_s": 12e12, "flop_j": 0.4e-12})
_GEMM_DOUBT = np.array([0.3, 0.1, 0.7, 0.7, 0.7, 0.3, 0.5])
_ATTENTION_DOUBT = np.array([0.9, 0.1, 0.7, 0.7, 0.7, 0.3, 0.5])
_SCATTER, _OUTLYING = 0.03, 3.0  # how far the model is off by, in logarithms; from how many times that it counts less
_STARTS = [(flops, issue) for flops in (0.0, -1.5, -4.5) for issue in (0.0, -1.0)]  # a limit far off is not felt from afar


def _fit(members: Sequence[Measured], device: DeviceParameters, guess: OpTraits, doubt: Array) -> OpTraits:
    def traits(logarithms: Array) -> OpTraits:
        values = {name: getattr(guess, name) * float(np.exp(log)) for name, log in zip(_FITTED, logarithms, strict=True)}
        return guess.model_copy(update=values)

    def residuals(logarithms: Array) -> Array:
        chosen = traits(logarithms)
        ratios = np.ravel([predicted_over_measured(device, chosen, one) for one in members])
        off = np.log(ratios) / (_SCATTER * _OUTLYING)
        robust = _OUTLYING * np.sign(off) * np.sqrt(2.0 * (np.sqrt(1.0 + off**2) - 1.0))
        return np.concatenate([robust, logarithms / doubt])

    starts = [np.array([flops, 0.0, issue, 0.0, 0.0, 0.0, 0.0]) for flops, issue in _STARTS]
    return traits(min((least_squares(residuals, start) for start in starts), key=lambda found: float(found.cost)).x)


@dataclass(frozen=True, slots=True)
class Off:
    """Predicted at auto, where the model chooses the clock too, against measured: relative errors."""

    measured: Measured
    time: float
    power: float


def errors_at_auto(preset: Preset, operations: Sequence[Measured]) -> list[Off]:
    """How a preset's analytical operations run at default clocks, beside the measurements."""
    physics = ModelPhysics(preset)
    found = []
    for one in operations:
        point = physics.operating_point(Task.of_kernel(one.kernel), AUTO, _WARM_C)
        found.append(Off(one, point.time_s / one.time_s - 1.0, point.power_w / one.power_w - 1.0))
    return found


def errors_of_held_out(preset: Preset, operations: Sequence[Measured]) -> list[Off]:
    """Errors of each kernel where only every other kernel of each operation, itself not among them, was fitted to."""
    found = []
    for half in (0, 1):
        fitted_to: list[Measured] = []
        rest: list[Measured] = []
        for op in dict.fromkeys(one.kernel.op for one in operations):
            members = [one for one in operations if one.kernel.op == op]
            fitted_to += members[half::2]
            rest += members[1 - half :: 2]
        ops = fit_ops(fitted_to, preset.parameters)
        found += errors_at_auto(preset.model_copy(update={"ops": ops}), rest)
    return found


def predicted_over_measured(device: DeviceParameters, traits: OpTraits, one: Measured) -> tuple[float, float]:
    """Time and power of an operation at the clock that it ran at, over those measured."""
    kernel = analytical_parameters(one.kernel, traits)
    time = model.time_s(device, kernel, one.core_mhz, 3201.0)
    power = model.demanded_power_w(device, kernel, one.core_mhz, 3201.0, time)
    return float(time) / one.time_s, float(power) / one.power_w


def clocks() -> ClockTable:
    """As the card lists them."""
    return ClockTable(
        memory_mhz=(2201.0, 3201.0), core_from_mhz=345.0, core_to_mhz=1980.0, core_step_mhz=15.0, boost_mhz=1980.0
    )


def surroundings() -> tuple[Thermal, Switching, SensorModels]:
    """Heat, latencies and sensors."""
    resistance = (62.0 - 39.0) / (673.0 - 79.0)
    heat = Thermal(
        ambient_c=round(39.0 - resistance * 79.0, 1),
        resistance_c_per_w=round(resistance, 4),
        time_constant_s=30.0,
        leakage_per_c=0.012,
        reference_c=58.0,
        limit_c=87.0,
    )
    models = sensors(counter_s=0.10002, counter_read_s=0.0031, gauge_s=0.1, window_s=0.025, clock_s=0.1)
    assert models.power is not None
    seen = {"lag_s": 0.0125, "delay_s": 0.002, "sample_s": 0.02, "sample_drift": 2e-4}  # data/h200/fingrav
    models = models.model_copy(update={"power": models.power.model_copy(update=seen)})
    return heat, switching(345.0, 1980.0, core_s=0.015, memory_s=1.0), models

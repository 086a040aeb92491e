"""The H200: fitted to twelve operations at its own clocks (h200-auto/ops-auto.csv), the voltage curve assumed.

Its clocks were never set, so each operation is one point: what a lower clock would do is the model's word, not data's.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from presets.cards import ATTENTION_EFFICIENCY, H200, PLAIN_EFFICIENCY, sensors, switching
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.model_physics import from_formula
from wastenot.devices.simulated.preset import ClockTable, OpTraits
from wastenot.devices.simulated.preset_parts import SensorModels, Switching, Thermal
from wastenot.workloads.kernel import KernelSpec

IDLE_W, IDLE_MEMORY_W = 79.0, 46.0
AWAKE_MEMORY_W, MEMORY_J_PER_BYTE = 100.0, 26.6e-12
_KNEE_MHZ, _SLOPE_PER_GHZ = 1185.0, 0.55

CLASS_OF = {
    "qkv": "gemm", "scores": "gemm", "av": "gemm", "proj": "gemm", "fc": "gemm", "fcproj": "gemm", "dw_fc": "gemm",
    "softmax": "softmax", "gelu": "elementwise", "residual": "elementwise", "layernorm": "layernorm",
    "biasgrad": "reduce",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """One operation at auto.

    Attributes:
        kernel: by formula.
        time_s: of one call.
        power_w: mean.
        core_mhz: mean core clock.
    """

    kernel: KernelSpec
    time_s: float
    power_w: float
    core_mhz: float


def read_operations(path: Path) -> tuple[Measured, ...]:
    """The measured operations; bytes of the bias gradient are halved: it reads its input once and writes a row."""
    found = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            moved = float(row["bytes"]) * (0.5 if row["op"] == "biasgrad" else 1.0)
            op = CLASS_OF[row["op"]]
            kernel = KernelSpec(row["op"], row["op"], op, (), float(row["flops"]), moved, 0.0, "forward", None, 1)
            found.append(Measured(kernel, float(row["time_us"]) * 1e-6, float(row["power_w"]), float(row["sm_mhz"])))
    return tuple(found)


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


def fit_ops(operations: tuple[Measured, ...], device: DeviceParameters) -> dict[str, OpTraits]:
    """Traits of each class of operations, fitted to their times and powers at the clocks that they ran at.

    Classes with fewer operations than traits lean on a first guess.
    """
    fitted = {}
    for op in dict.fromkeys(operation.kernel.op for operation in operations):
        members = [operation for operation in operations if operation.kernel.op == op]
        fitted[op] = _fit_class(members, device, _guess(op))
    gemm = fitted["gemm"]
    for op, share in zip(("attention", "attention_backward"), ATTENTION_EFFICIENCY, strict=True):
        fitted[op] = gemm.model_copy(update={"flops_per_s": share * H200.tensor_tflops * 1e12})
    fitted["rmsnorm"] = fitted["layernorm"]
    return {"default": fitted["elementwise"]} | fitted


def _guess(op: str) -> OpTraits:
    gemm = op == "gemm"
    return OpTraits(
        flops_per_s=880e12 if gemm else PLAIN_EFFICIENCY * H200.fp32_tflops * 1e12,
        bytes_per_s=4.4e12,
        issue_bytes_per_s=12e12 if gemm else 6e12,
        fixed_s=2e-6,
        clock_w=26.0,
        flop_j=0.4e-12 if gemm else 3e-12,
        issue_byte_j=40e-12,
        byte_j=MEMORY_J_PER_BYTE,
    )


_FITTED = ("flops_per_s", "bytes_per_s", "issue_bytes_per_s", "flop_j", "issue_byte_j")
_DOUBT = np.array([0.3, 0.05, 0.7, 0.7, 0.7])  # standard deviation of the logarithm of each first guess


def _fit_class(members: list[Measured], device: DeviceParameters, guess: OpTraits) -> OpTraits:
    def traits(logarithms: NDArray[np.float64]) -> OpTraits:
        values = {name: getattr(guess, name) * float(np.exp(log)) for name, log in zip(_FITTED, logarithms, strict=True)}
        return guess.model_copy(update=values)

    def residuals(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        ratios = [np.log(predicted_over_measured(device, traits(logarithms), one)) for one in members]
        return np.concatenate([np.ravel(ratios) / 0.01, logarithms / _DOUBT])

    return traits(least_squares(residuals, np.zeros(len(_FITTED))).x)


def predicted_over_measured(device: DeviceParameters, traits: OpTraits, one: Measured) -> tuple[float, float]:
    """Time and power of an operation at the clock that it ran at, over those measured."""
    kernel = from_formula(one.kernel, traits)
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
    told = sensors(counter_s=0.10002, counter_read_s=0.0031, gauge_s=0.1, window_s=0.025, clock_s=0.1)
    return heat, switching(345.0, 1980.0, core_s=0.015, memory_s=1.0), told

"""The H200: fitted to the kernels of GPT-3 XL and Llama 8B at its own clocks (data/h200), the voltage curve assumed.

Its clocks were never set, so each kernel is one point: what a lower clock would do is the model's word, not data's.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presets.cards import ATTENTION_EFFICIENCY, H200, sensors, switching
from presets.h200_fit import FITTED, Curve, Lean, Measured, fit_kind
from wastenot.capturing.workload_file import read_workload
from wastenot.devices.protocol import Task
from wastenot.devices.simulated import model
from wastenot.devices.simulated.demands import analytical_parameters
from wastenot.devices.simulated.hardware import SensorModels, Switching, Thermal
from wastenot.devices.simulated.kinds import kinds_of, traits_for
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import ClockTable, OpTraits, Preset
from wastenot.setting import AUTO
from wastenot.study.sweep_file import read_sweep
from wastenot.workloads.attention import BACKENDS
from wastenot.workloads.build import build_workload, run_named
from wastenot.workloads.kernel import KernelSpec

Array = NDArray[np.float64]

IDLE_W, IDLE_MEMORY_W = 79.0, 46.0
AWAKE_MEMORY_W, MEMORY_J_PER_BYTE = 82.0, 26.6e-12  # medians over the seven sweeps of lines through their kernels
_KNEE_MHZ, _SLOPE_PER_GHZ = 1185.0, 0.42

DATA = Path(__file__).parents[1] / "data" / "h200"
NATURAL = DATA / "natural"
SWEEPS: tuple[tuple[str, str], ...] = (
    ("gpt3-xl-4", "gpt3-xl"),
    ("llama-8b-training", "llama-8b-batch4-flash"),
    ("llama-8b-prefill", "llama-8b-prefill-flash"),
    ("llama-8b-decode", "llama-8b-decode-flash"),
)
"""Sweeps that the preset is fitted to, each with its workload: the kernels as they are now, each once."""

_WARM_C = 57.0  # the median of these sweeps


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


def read_natural() -> tuple[Measured, ...]:
    """The operations measured alone and in the wake of products (data/h200/natural), those held out among them."""
    kernels = {kernel.name: kernel for kernel in read_workload(NATURAL / "operations.json").kernels}
    times, powers = (_by_operation(f"{what}-by-clock") for what in ("time", "power"))
    found = []
    for row in _rows(NATURAL / "operations.csv"):
        name = row["operation"]
        source, _, own = name.rpartition(":")
        kernel = replace(kernels[name], name=own)
        curve, watts = np.array(times.get(name, ())), np.array(powers.get(name, ()))
        tensor = kernel.op in _MATRIX
        stated = TENSOR_CLOCK if tensor else 1.0
        found.append(
            Measured(
                kernel,
                float(row["time_s"]),
                float(row["power_w"]),
                float(row["core_mhz"]) / stated,
                Curve(curve[:, 0] / stated, curve[:, 1], curve[:, 2]) if len(curve) else None,
                Curve(watts[:, 0] / stated, watts[:, 1], watts[:, 2] ** 4) if len(watts) else None,
                settled=tensor or float(row["power_w"]) < _NEAR_LIMIT_W,
                held=row["held_out"] == "1",
                source=source or "operations",
            )
        )
    return tuple(found)


_NEAR_LIMIT_W = 690.0
TENSOR_CLOCK = 0.918
"""Clock counted in cycles over the one that NVML states, while tensor cores work: 1,818 of 1,980 MHz with no limit in force."""


def _by_operation(table: str) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {}
    for row in _rows(NATURAL / f"{table}.csv"):
        name, *values = row.values()
        found.setdefault(name, []).append([float(value) for value in values])
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def read_all() -> tuple[Measured, ...]:
    """All that was measured: the kernels of every sweep that the preset is fitted to, and single operations."""
    swept = [replace(one, source=name) for name, workload in SWEEPS for one in read_measured(name, workload)]
    return (*swept, *read_natural())


def by_work(operations: Sequence[Measured]) -> list[Measured]:
    """Measurements of the same work, brought together by their geometric mean.

    Cards differ: the fitted one is in the middle. What the power limit had no time to hold stays by itself.
    """
    groups: dict[object, list[Measured]] = {}
    for one in operations:
        groups.setdefault((one.work, one.settled), []).append(one)
    return [_together(ones) for ones in groups.values()]


def _together(ones: Sequence[Measured]) -> Measured:
    means = {name: _mean([getattr(one, name) for one in ones]) for name in ("time_s", "power_w", "core_mhz")}
    times, powers = (next((found for one in ones if (found := getattr(one, name)) is not None), None) for name in _CURVES)
    return replace(ones[0], **means, times=times, powers=powers)


_CURVES = ("times", "powers")


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.exp(np.mean(np.log(known)))) if known else float("nan")


def parameters() -> DeviceParameters:
    """What is known and assumed of the card itself; see provenance.toml."""
    clocks = (345.0, _KNEE_MHZ, 1380.0, 1580.0, 1780.0, 1980.0)
    base = IDLE_W - IDLE_MEMORY_W
    return DeviceParameters(
        reference_core_mhz=1980.0,
        reference_memory_mhz=3201.0,
        memory_states_mhz=(2201.0, 3201.0),
        bandwidth_factor=(1.0, 1.0),
        core_bandwidth=0.68,
        core_bandwidth_sharpness=30.0,
        overlap_exponent=9.0,
        core_floor_mhz=330.0,
        voltage_clocks_mhz=clocks,
        voltage_ratio=tuple(1.0 + max(clock - _KNEE_MHZ, 0.0) / 1000 * _SLOPE_PER_GHZ for clock in clocks),
        base_w=(base + round(AWAKE_MEMORY_W * 2201 / 3201, 1), base + AWAKE_MEMORY_W),
        leakage_w=7.0,
        byte_energy_factor=(1.0, 1.0),
        power_limit_w=700.0,
    )


def fit_ops(operations: Sequence[Measured], device: DeviceParameters) -> dict[str, OpTraits]:
    """Traits of each kind of kernels, fitted to times and powers at the clocks that they ran at, and to both by clock.

    What streaming kinds have in common is fitted first, then each operation leans on it and each kind on a wider one.
    Attention leans on matrix products, backward on forward.
    """
    members: dict[str, list[Measured]] = {}
    operations = by_work(operations)
    for one in operations:
        for kind in kinds_of(one.kernel):
            members.setdefault(kind, []).append(one)
    streaming = [one for op in _STREAMING for one in members.get(op, ())]
    common = fit_kind(streaming, device, Lean(_STREAMING_GUESS, _COMMON_DOUBT))
    wide: dict[str, OpTraits] = {"": common}
    guess = _GEMM_GUESS
    for op in _MATRIX:
        if op == "attention":
            guess = guess.model_copy(update=_ATTENTION_GUESS)
        elif op == "attention_backward":
            guess = guess.model_copy(
                update={
                    "flops_per_s": _BACKWARD_OVER_FORWARD * guess.flops_per_s,
                    "row_s": _BACKWARD_ROWS * guess.row_s,
                    "latency_s": 4e-6,
                }
            )
        doubt = _GEMM_DOUBT if op == "gemm" else _ATTENTION_DOUBT
        guess = wide[op] = fit_kind(members.get(op, ()), device, Lean(guess, doubt))
    for op in dict.fromkeys(one.kernel.op for one in operations):
        if op not in wide:
            guess = common.model_copy(update=_SORTED_SUMS_GUESS) if op == "embedding_backward" else common
            wide[op] = fit_kind(members[op], device, Lean(guess, _DOUBT))
    for kind in ("residual", "backward", "backward-captured"):
        norms = [one for op in _NORMS for one in members.get(f"{op}-{kind}", ()) if _narrowest(one) == f"{op}-{kind}"]
        guess = wide["norm-backward"] if kind == "backward-captured" else common
        guess = common.model_copy(update=_NORM_BACKWARD_GUESS) if kind == "backward" else guess
        wide[f"norm-{kind}"] = fit_kind(norms, device, Lean(guess, _DOUBT))
    fitted: dict[str, OpTraits] = {}
    first = ("permute", "gemm")  # which other operations' kinds lean on
    for kind in sorted(members, key=lambda kind: (kind.partition("-")[0] not in first, kind.count("-"), kind)):
        own = [one for one in members[kind] if _narrowest(one) == kind]
        leaning_on = _lean_on(kind, wide | fitted)
        fitted[kind] = fit_kind(own, device, Lean(leaning_on, _NARROW_DOUBT)) if own else leaning_on
    for kind in _KINDS:
        if kind not in fitted:
            fitted[kind] = _lean_on(kind, wide | fitted)
    return {"default": fitted.get("elementwise", common)} | fitted


def _narrowest(one: Measured) -> str:
    return kinds_of(one.kernel)[0]


def _lean_on(kind: str, found: Mapping[str, OpTraits]) -> OpTraits:
    """Traits of the next wider kind that there are."""
    op, _, narrow = kind.partition("-")
    like = _LIKE.get(kind)
    if like is not None and like in found:
        return found[like]
    wider = [f"{op}-{narrow.rpartition('-')[0]}", f"{op}-{narrow.rpartition('-')[2]}", op] if "-" in narrow else [op]
    if narrow and op in _NORMS:
        wider.insert(0, f"norm-{narrow}")
    return next((found[each] for each in wider if each in found), found[""])


_KINDS = (
    "rmsnorm", "layernorm", "softmax", "permute", "reduce", "embedding", "embedding_backward", "optimizer", "gemm-skinny",
    *(f"{op}-{backend}" for op in ("attention", "attention_backward") for backend in BACKENDS),
    *(f"attention-{backend}-decode" for backend in BACKENDS), "attention-flash-by-head", "attention_backward-flash-by-head",
    *(f"{op}-{kind}" for op in ("layernorm", "rmsnorm") for kind in ("residual", "backward", "backward-captured")),
    "softmax-causal", "softmax-short", "softmax-wide", "softmax-backward", "softmax-backward-causal", "softmax-loss",
    "elementwise-broadcast", "elementwise-rotary", "elementwise-special", "elementwise-special-fused", "permute-copy",
    "permute-split", "permute-transpose", "permute-widen", "reduce-columns", "reduce-extremes", "reduce-partials",
)  # fmt: skip
"""Kinds that are stated even where none was measured, so that they have the traits of those that they lean on."""

_LIKE = {
    "elementwise-broadcast": "permute",  # the place of each element has to be found
    "softmax-short": "softmax-causal",
    "softmax-causal": "softmax-short",
    "softmax-backward-causal": "softmax-causal",
    "reduce": "",
    "reduce-partials": "",
    **{f"attention-{backend}-decode": "gemm-skinny" for backend in BACKENDS},
}
"""Kinds that are more like one of another operation than like others of their own."""

_NORMS = ("layernorm", "rmsnorm")
_MATRIX = ("gemm", "attention", "attention_backward")  # each leans on the one before it
_STREAMING = ("softmax", "layernorm", "rmsnorm", "elementwise", "reduce", "embedding")
_MULTIPROCESSORS, _BYTES_A_CLOCK = 132, 64  # what a Hopper multiprocessor takes from the L2 at most
_ATTENTION_FLOPS_PER_S = 0.35 * H200.tensor_tflops * 1e12  # FlashAttention-2 on Hopper: FlashAttention-3 paper, abstract
_ATTENTION_GUESS = {"flops_per_s": 1.3 * _ATTENTION_FLOPS_PER_S, "row_s": 1e-10, "score_s": 3e-13, "latency_s": 2e-6}
_BACKWARD_ROWS = 4.0  # products and sums of a query that come before and after
_BACKWARD_OVER_FORWARD = ATTENTION_EFFICIENCY[1] / ATTENTION_EFFICIENCY[0]

# First guesses, and the standard deviation of the logarithm of each fitted one.
_STREAMING_GUESS = OpTraits(
    flops_per_s=8e12,
    bytes_per_s=4.4e12,
    issue_bytes_per_s=_MULTIPROCESSORS * _BYTES_A_CLOCK * 1.98e9,
    fixed_s=0.9e-6,
    latency_s=0.2e-6,
    ramp_s=1e-6,
    row_s=0.2e-9,
    turn_s=0.3e-9,
    score_s=0.0,
    clock_w=26.0,
    flop_j=6e-12,
    issue_byte_j=40e-12,
    byte_j=MEMORY_J_PER_BYTE,
)
_GEMM_GUESS = _STREAMING_GUESS.model_copy(
    update={
        "flops_per_s": 1000e12,
        "issue_bytes_per_s": 12e12,
        "flop_j": 0.4e-12,
        "turn_s": 0.5e-9,
        "tiles_at_once": _MULTIPROCESSORS,
    }
)


def _doubt(*values: float) -> dict[str, float]:
    return dict(zip(FITTED, values, strict=True))


# flops_per_s, bytes_per_s, issue_bytes_per_s; fixed_s, latency_s, ramp_s; row_s, turn_s, score_s; clock_w, flop_j, issue_byte_j
_COMMON_DOUBT = _doubt(1.0, 0.1, 0.5, 0.03, 0.1, 0.2, 0.5, 0.5, 0.1, 0.5, 1.0, 0.5)
_DOUBT = _doubt(1.5, 0.2, 1.0, 0.03, 0.3, 0.3, 1.5, 1.0, 0.1, 0.5, 1.5, 0.5)
_NARROW_DOUBT = _doubt(1.0, 0.3, 1.0, 0.03, 0.3, 0.3, 1.0, 0.7, 1.0, 0.3, 1.0, 0.5)
_GEMM_DOUBT = _doubt(0.3, 0.1, 0.7, 0.05, 0.4, 0.2, 0.1, 0.7, 0.1, 0.3, 0.7, 0.7)
_ATTENTION_DOUBT = _doubt(0.9, 0.1, 0.7, 0.05, 0.5, 0.2, 1.0, 0.1, 1.5, 0.3, 0.7, 0.7)
# Gradients of weights are a kernel of their own, which reads both inputs again and sums down the columns.
_NORM_BACKWARD_GUESS = {"bytes_per_s": 3e12, "latency_s": 2e-5}
_SORTED_SUMS_GUESS = {"turn_s": 15e-12, "flop_j": 2e-9}  # additions one after another into rows of a table


@dataclass(frozen=True, slots=True)
class Off:
    """Predicted at auto, where the model chooses the clock too, against measured: relative errors."""

    measured: Measured
    time: float
    power: float


def errors_at_auto(preset: Preset, operations: Sequence[Measured]) -> list[Off]:
    """How a preset's analytical operations run at default clocks, beside the measurements.

    Those that ran too briefly for the power limit to act are predicted at the clock that they ran at.
    """
    physics = ModelPhysics(preset)
    found = []
    for one in operations:
        if one.settled:
            point = physics.operating_point(Task.of_kernel(one.kernel), AUTO, _WARM_C)
            time_s, power_w = point.time_s, point.power_w
        else:
            time_s, power_w = map(float, predicted(preset, one.kernel, np.asarray(one.core_mhz)))
        found.append(Off(one, time_s / one.time_s - 1.0, power_w / one.power_w - 1.0))
    return found


def errors_of_halves(preset: Preset, operations: Sequence[Measured], seed: int, *, apart: bool = False) -> list[Off]:
    """Errors of each kernel where only a random half of all, itself not among them, was fitted to.

    Args:
        preset: with the parameters of the device.
        operations: all that was measured.
        seed: of the halves.
        apart: whether kernels of the same work, such as a layer norm's gradient in three places, are always in the same half.
    """
    works: list[object] = [one.work if apart else index for index, one in enumerate(operations)]
    different = list(dict.fromkeys(works))
    order = np.random.default_rng(seed).permutation(len(different))
    half_of = {different[index]: place % 2 for place, index in enumerate(order)}
    halves = [[one for one, work in zip(operations, works, strict=True) if half_of[work] == half] for half in (0, 1)]
    found = []
    for fitted_to, rest in (halves, halves[::-1]):
        ops = fit_ops(fitted_to, preset.parameters)
        found += errors_at_auto(preset.model_copy(update={"ops": ops}), rest)
    return found


def predicted(preset: Preset, kernel: KernelSpec, core_mhz: Array) -> tuple[Array, Array]:
    """Time and power of a kernel at core clocks, as if no limit held them, at the highest memory clock."""
    parameters = analytical_parameters(kernel, traits_for(kernel, preset.ops))
    memory_mhz = preset.parameters.memory_states_mhz[-1]
    time_s = model.time_s(preset.parameters, parameters, core_mhz, memory_mhz)
    return time_s, model.demanded_power_w(preset.parameters, parameters, core_mhz, memory_mhz, time_s)


def curve_at(curve: Curve, core_mhz: float, degree: int = 2) -> float:
    """A measured curve at a clock: a polynomial in logarithms through its points near there, which evens out their noise."""
    near = 120.0 if degree > 1 else 1000.0  # few points are a straight line
    weight = np.sqrt(curve.weight) * np.exp(-0.5 * ((curve.core_mhz - core_mhz) / near) ** 2)
    x = np.log(curve.core_mhz / core_mhz)
    degree = degree if len(x) > 5 else 1
    return float(np.exp(np.polynomial.polynomial.polyfit(x, np.log(curve.value), degree, w=weight)[0]))


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

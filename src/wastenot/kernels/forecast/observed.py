"""What a study says about kernels at the default clocks, and the GPU whose clocks could have been set instead."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.origin import Origin
from wastenot.core.vendors import model_words, words_of
from wastenot.core.wording import counted
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.preset import Preset, find_preset
from wastenot.kernels.forecast.prior import GpuBounds
from wastenot.kernels.natural.curves import NaturalCurves
from wastenot.kernels.natural.storage import curves_of
from wastenot.meters.tasks import WorkloadTasks, tasks_in_study
from wastenot.study.store import Study
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.bound import GPUS, find_roofline
from wastenot.workloads.identity import EnergyState, ModelRun
from wastenot.workloads.kernel import DTYPE_BYTES, KernelSpec

_THROTTLED = 0.5  # fraction of the time throttled, from which on a kernel counts as power-limited
_NAMED = 4  # kernels, of those that are missing
_AT_LIMIT = 0.975  # of the power limit, from which on a kernel counts as limited if throttling was not recorded
_KERNELS_FOR_LIMIT = 3  # limited kernels from which on their power is taken as the limit
_FAMILY_WORDS = frozenset(("tesla", "quadro", "rtx", "pcie", "sxm2"))


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Every kernel of a workload at the default clocks; arrays have shape (kernels,) and NaN is unknown.

    Attributes:
        workload: its name.
        device: the device measured on.
        origin: origin of the measurements.
        kernels: in order of execution.
        operations: what each computes; ``other`` where it is not known.
        time_s: time of one call.
        power_w: mean power.
        core_mhz: core clock in effect.
        memory_mhz: memory clock in effect, one of the GPU's states.
        memory_power_w: power of the memory alone.
        power_limited: whether the power limit holds the clock down.
        arithmetic: time of its FLOPs at the datasheet's peak and the clock in effect, as a fraction of its time.
        traffic: time of its bytes at the datasheet's bandwidth, as a fraction of its time.
        power_limit_w: power limit in force.
    """

    workload: str
    device: str
    origin: Origin
    kernels: tuple[Kernel, ...]
    operations: tuple[str, ...]
    time_s: FloatArray
    power_w: FloatArray
    core_mhz: FloatArray
    memory_mhz: FloatArray
    memory_power_w: FloatArray
    power_limited: NDArray[np.bool_]
    arithmetic: FloatArray
    traffic: FloatArray
    power_limit_w: float

    def bounds(self, highest_mhz: float) -> GpuBounds:
        """What this says about the GPU as a whole."""
        memory = self.memory_power_w[np.isfinite(self.memory_power_w)]
        return GpuBounds(
            power_limit_w=self.power_limit_w,
            least_power_w=float(self.power_w.min()),
            least_memory_w=float(memory.min()) if len(memory) else None,
            highest_mhz=highest_mhz,
        )


def choose_gpu(label: str) -> Preset:
    """The preset whose model the label of a study's device names.

    Raises:
        BadInputError: it names none.
    """
    if label.removeprefix("sim:") in preset_names():
        return find_preset(label.removeprefix("sim:"))
    presets = [find_preset(known) for known in preset_names()]
    named = words_of(label)
    matching = [preset for preset in presets if model_words(preset.model) - _FAMILY_WORDS <= named]
    if not matching:
        known = ", ".join(f"{preset.name} ({preset.model})" for preset in presets)
        raise BadInputError(
            f"the study's device '{label}' is not a known GPU; give the nearest one or a preset file of your own "
            f"as `gpu`. Known GPUs: {known}"
        )
    return max(matching, key=lambda preset: len(preset.model))


def natural_curves(study: Study, workload: str | None) -> NaturalCurves | None:
    """What the study knows of a workload's kernels at natural clocks; ``None`` where that is nothing.

    Raises:
        BadInputError: there is no such workload, or there are several and none is named.
        StudyError: the study cannot be read, or its sweep at natural clocks has reached no kernel yet.
    """
    natural = [key for key in study.workloads() if key.state == "natural" and workload in (None, key.name)]
    if not natural:
        return None
    sweep = study.read(workload, "natural", partial=True)
    packed = study.natural_curves(sweep.workload, sweep.granularity)
    return curves_of(sweep, packed) if packed else None  # rows from a file do not say how their errors correlate


def observe(
    study: Study, workload: str | None, preset: Preset | None = None, state: EnergyState | None = None
) -> tuple[Observation, Preset, tuple[str, ...]]:
    """The rows of a workload at the default clocks, averaged over repeats.

    Args:
        study: rows at other settings are ignored.
        workload: its name; ``None`` if the study holds only one.
        preset: the GPU; ``None`` to find it by the study's device.
        state: that it was measured in; by default steady power.

    Returns:
        What was observed, the GPU, and caveats about both.

    Raises:
        BadInputError: a kernel has no row at the default clocks, or the GPU is not known.
        StudyError: the study cannot be read.
    """
    sweep = _read(study, workload, state)
    gpu = choose_gpu(sweep.device) if preset is None else preset
    auto = sweep.automatic
    without = sorted(set(range(len(sweep.kernels))) - set(sweep.kernel_index[auto].tolist()))
    if without:
        raise BadInputError(_no_auto(study, sweep.kernels[without[0]].name))
    kernel = sweep.kernel_index[auto]
    time, energy = _means(kernel, sweep.time_s[auto]), _means(kernel, sweep.energy_j[auto])
    core, memory = _means(kernel, sweep.effective_core_mhz[auto]), _means(kernel, sweep.effective_memory_mhz[auto])
    power = energy / time
    memory_power, throttled = _from_measurements(study, sweep)
    limit = gpu.parameters.power_limit_w or gpu.power_limits_w[1]
    notes = [unreached_note(sweep)] if sweep.unreached else []
    limited = np.where(np.isnan(throttled), power >= _AT_LIMIT * limit, throttled >= _THROTTLED)
    if limited.sum() >= _KERNELS_FOR_LIMIT:
        observed_limit = float(np.median(power[limited]))
        if abs(observed_limit / limit - 1.0) > 0.05:
            notes.append(
                f"kernels are held at {observed_limit:.0f} W, not at {gpu.name}'s {limit:.0f} W: this is taken as the limit"
            )
            limit = observed_limit
    if np.isnan(core).any():
        notes.append(
            f"core clocks in effect are not recorded for {counted(int(np.isnan(core).sum()), 'kernel')}: they are "
            f"sampled, too"
        )
    states = np.asarray(gpu.clocks.memory_mhz)
    nearest = states[np.abs(np.where(np.isnan(memory), states[-1], memory)[:, None] - states).argmin(axis=1)]
    operations, arithmetic, traffic = _utilisation(tasks_in_study(study, sweep), gpu, time, core)
    unknown = int(np.isnan(traffic).sum())
    if unknown:
        notes.append(f"FLOPs and bytes of {unknown} of {len(time)} kernels are unknown: their bottleneck is sampled")
    observed = Observation(
        workload=sweep.workload, device=sweep.device, origin=sweep.origin, kernels=sweep.kernels, operations=operations,
        time_s=time, power_w=power, core_mhz=core, memory_mhz=nearest, memory_power_w=memory_power,
        power_limited=np.asarray(limited, dtype=np.bool_), arithmetic=arithmetic, traffic=traffic,
        power_limit_w=float(limit),
    )  # fmt: skip
    return observed, gpu, tuple(notes)


def unreached_note(sweep: Sweep) -> str:
    """Says that some kernels are missing."""
    number = len(sweep.unreached)
    named = ", ".join(sweep.unreached[:_NAMED]) + (", …" if number > _NAMED else "")
    return (
        f"{number} of {number + len(sweep.kernels)} kernels are not measured ({named}): all results are for the others; "
        "where time ran out, the same command resumes"
    )


def _read(study: Study, workload: str | None, state: EnergyState | None) -> Sweep:
    """Read the workload; if that fails because the default clocks are missing, say so."""
    try:
        held = {key.state for key in study.workloads() if workload in (None, key.name)}
        return study.read(workload, state, partial=state == "natural" or held == {"natural"})
    except StudyError as error:
        trials = study.measurements(workload, state)
        at_auto = {trial.kernel for trial in trials if trial.setting.is_auto}
        without = next((trial.kernel for trial in trials if trial.kernel not in at_auto), None)
        if without is None:
            raise
        raise BadInputError(_no_auto(study, without)) from error


def _no_auto(study: Study, kernel: str) -> str:
    return (
        f"{study}: kernel '{kernel}' has no row at auto, which a forecast needs; "
        "measure it at the default clocks: wastenot kernel sweep --clocks auto"
    )


def _means(kernel: NDArray[np.int64], values: FloatArray) -> FloatArray:
    """The mean of each kernel's known values; NaN where there is none."""
    known = np.isfinite(values)
    size = int(kernel.max()) + 1
    times = np.bincount(kernel[known], minlength=size)
    total = np.bincount(kernel[known], weights=values[known], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / times)


def _from_measurements(study: Study, sweep: Sweep) -> tuple[FloatArray, FloatArray]:
    """Memory power and fraction of time throttled by kernel; NaN where not recorded."""
    number = {kernel.name: index for index, kernel in enumerate(sweep.kernels)}
    trials = [trial for trial in study.measurements(sweep.workload, sweep.state, sweep.granularity) if trial.setting.is_auto]
    kernel = np.array([number[trial.kernel] for trial in trials] + [len(number) - 1], dtype=np.int64)
    columns = []
    for name in ("memory_power_w", "throttled_share"):
        values = [getattr(trial, name) for trial in trials] + [None]
        columns.append(_means(kernel, np.array([np.nan if value is None else value for value in values], dtype=float)))
    return columns[0], columns[1]


def _utilisation(
    tasks: WorkloadTasks, gpu: Preset, time_s: FloatArray, core_mhz: FloatArray
) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
    """What each kernel computes, and its FLOPs and bytes as fractions of what the GPU could do in its time."""
    specs = [task.steps[0][0] for task in tasks.tasks]
    known = np.array([task.is_kernel and task.steps[0][0].bytes_moved > 0 for task in tasks.tasks])
    highest = gpu.clocks.boost_mhz
    flops_s = np.array([spec.flops / _peak(gpu, spec, tasks.run) for spec in specs])
    bytes_s = np.array([spec.bytes_moved / _bandwidth(gpu) for spec in specs])
    slower = highest / np.where(np.isnan(core_mhz), highest, core_mhz)
    arithmetic = np.where(known, flops_s * slower / time_s, np.nan)
    operations = tuple(spec.op if is_known else "other" for spec, is_known in zip(specs, known.tolist(), strict=True))
    return operations, np.clip(arithmetic, 0.0, 1.0), np.clip(np.where(known, bytes_s / time_s, np.nan), 0.0, 1.0)


def _peak(gpu: Preset, spec: KernelSpec, run: ModelRun | None) -> float:
    """FLOP/s that the operation could reach: the datasheet's peak, or that of the preset's operations."""
    matrix = spec.op in ("gemm", "attention", "attention_backward")
    if gpu.name in GPUS:
        dtype = "fp32"
        if matrix and spec.bytes_moved > 0:
            dtype = run.shape.dtype if run is not None else _dtype(spec)
        return find_roofline(gpu.name, dtype).peak_flops
    if gpu.ops:
        return gpu.ops.get("gemm" if matrix else "default", gpu.ops["default"]).flops_per_s
    return float("inf")


def _dtype(captured: KernelSpec) -> str:
    """The data type that a captured matrix product computes in."""
    assert captured.call is not None
    if captured.element_bytes == DTYPE_BYTES["fp32"] and json.loads(captured.call.arguments).get("matmul_precision"):
        return "tf32"
    return next((name for name in ("bf16", "fp8") if DTYPE_BYTES[name] == captured.element_bytes), "fp32")


def _bandwidth(gpu: Preset) -> float:
    if gpu.name in GPUS:
        return GPUS[gpu.name].gbytes_per_s * 1e9
    if gpu.ops:
        return max(traits.bytes_per_s for traits in gpu.ops.values()) / 0.92
    return float("inf")

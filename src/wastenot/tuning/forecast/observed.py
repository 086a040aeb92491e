"""What a study tells of kernels at the driver's own clocks, and which GPU's clocks could have been set instead."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wastenot.arrays import FloatArray
from wastenot.devices.simulated.preset import Preset, find_preset, preset_names
from wastenot.errors import BadInputError, StudyError
from wastenot.origin import Origin
from wastenot.study.store import Study
from wastenot.study.sweep import Kernel, Sweep
from wastenot.tasks import WorkloadTasks, tasks_in_study
from wastenot.tuning.forecast.prior import Bounds
from wastenot.workloads.bound import GPUS, find_roofline
from wastenot.workloads.identity import ModelRun
from wastenot.workloads.kernel import DTYPE_BYTES, KernelSpec

_HELD = 0.5  # share of the time in which a limit held the clocks, from which on they count as held
_AT_LIMIT = 0.975  # of the power limit, where nothing else tells
_CAPPED_FOR_LIMIT = 3  # kernels that must agree before their power is taken for the limit
_FAMILY_WORDS = frozenset(("nvidia", "geforce", "tesla", "quadro", "rtx", "pcie", "sxm2"))


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Every kernel of a workload at auto; arrays have shape (kernels,) and NaN is unknown.

    Attributes:
        workload: name.
        device: that measured.
        origin: of the measurements.
        kernels: in order of execution.
        operations: what each computes; ``other`` where it is not known.
        time_s: of one call.
        power_w: mean.
        core_mhz: clock in effect.
        memory_mhz: clock in effect, one of the GPU's states.
        memory_power_w: of the memory alone.
        held: whether the power limit holds the clock down.
        arithmetic: time that its FLOPs need at the datasheet's peak and the clock in effect, as a share of its time.
        traffic: the same of its bytes and the bandwidth.
        power_limit_w: in force.
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
    held: NDArray[np.bool_]
    arithmetic: FloatArray
    traffic: FloatArray
    power_limit_w: float

    def bounds(self, highest_mhz: float) -> Bounds:
        """What this says of the GPU as a whole."""
        memory = self.memory_power_w[np.isfinite(self.memory_power_w)]
        return Bounds(
            power_limit_w=self.power_limit_w,
            least_power_w=float(self.power_w.min()),
            least_memory_w=float(memory.min()) if len(memory) else None,
            highest_mhz=highest_mhz,
        )


def choose_gpu(label: str, name: str | None) -> Preset:
    """The GPU that a study was taken on.

    Args:
        label: of the study's device.
        name: of a preset or its file; ``None`` to find the preset whose model the label names.

    Raises:
        BadInputError: there is no such preset, or none that the label names.
    """
    if name is not None:
        return find_preset(name.removeprefix("sim:"))
    if label.removeprefix("sim:") in preset_names():
        return find_preset(label.removeprefix("sim:"))
    presets = [find_preset(known) for known in preset_names()]
    said = _words(label)
    fitting = [preset for preset in presets if _words(preset.model) - _FAMILY_WORDS <= said]
    if not fitting:
        known = ", ".join(f"{preset.name} ({preset.model})" for preset in presets)
        raise BadInputError(
            f"no GPU that we know is named in the study's device '{label}'; name the nearest, or a file of your own: "
            f"--gpu NAME|FILE.toml. There are: {known}"
        )
    return max(fitting, key=lambda preset: len(preset.model))


def _words(text: str) -> set[str]:
    return set(re.findall("[a-z0-9]+", text.lower()))


def observe(study: Study, workload: str | None, preset: Preset | None = None) -> tuple[Observed, Preset, tuple[str, ...]]:
    """The rows at auto of a workload, with the mean over repeats.

    Args:
        study: to read; rows at other settings are passed over.
        workload: its name; may be left out where the study holds only one.
        preset: the GPU; ``None`` to find it by the study's device.

    Returns:
        What was observed, the GPU, and what a reader should know of both.

    Raises:
        BadInputError: a kernel has no row at auto, or the GPU is not known.
        StudyError: the study cannot be read.
    """
    sweep = _read(study, workload)
    gpu = choose_gpu(sweep.device, None) if preset is None else preset
    auto = np.isnan(sweep.core_mhz) & np.isnan(sweep.memory_mhz) & np.isnan(sweep.power_limit_w)
    without = sorted(set(range(len(sweep.kernels))) - set(sweep.kernel_index[auto].tolist()))
    if without:
        raise BadInputError(_no_auto(study, sweep.kernels[without[0]].name))
    place = sweep.kernel_index[auto]
    time, energy = _means(place, sweep.time_s[auto]), _means(place, sweep.energy_j[auto])
    core, memory = _means(place, sweep.effective_core_mhz[auto]), _means(place, sweep.effective_memory_mhz[auto])
    power = energy / time
    memory_power, share = _from_trials(study, sweep)
    limit = gpu.parameters.power_limit_w or gpu.power_limits_w[1]
    notes = []
    held = np.where(np.isnan(share), power >= _AT_LIMIT * limit, share >= _HELD)
    if held.sum() >= _CAPPED_FOR_LIMIT:
        seen = float(np.median(power[held]))
        if abs(seen / limit - 1.0) > 0.05:
            notes.append(f"kernels are held at {seen:.0f} W, not at the {limit:.0f} W of {gpu.name}: taken for the limit")
            limit = seen
    if np.isnan(core).any():
        notes.append(f"core clocks in effect are not recorded for {int(np.isnan(core).sum())} kernels: drawn as well")
    states = np.asarray(gpu.clocks.memory_mhz)
    nearest = states[np.abs(np.where(np.isnan(memory), states[-1], memory)[:, None] - states).argmin(axis=1)]
    operations, arithmetic, traffic = _shares(tasks_in_study(study, sweep), gpu, time, core)
    unknown = int(np.isnan(traffic).sum())
    if unknown:
        notes.append(f"FLOPs and bytes of {unknown} of {len(time)} kernels are not known: what bounds them is drawn")
    observed = Observed(
        workload=sweep.workload, device=sweep.device, origin=sweep.origin, kernels=sweep.kernels, operations=operations,
        time_s=time, power_w=power, core_mhz=core, memory_mhz=nearest, memory_power_w=memory_power,
        held=np.asarray(held, dtype=np.bool_), arithmetic=arithmetic, traffic=traffic, power_limit_w=float(limit),
    )  # fmt: skip
    return observed, gpu, tuple(notes)


def _read(study: Study, workload: str | None) -> Sweep:
    """The workload; where what was measured of it lacks auto, says so."""
    try:
        return study.read(workload)
    except StudyError as error:
        trials = study.measurements(workload)
        at_auto = {trial.kernel for trial in trials if trial.setting.is_auto}
        without = next((trial.kernel for trial in trials if trial.kernel not in at_auto), None)
        if without is None:
            raise
        raise BadInputError(_no_auto(study, without)) from error


def _no_auto(study: Study, kernel: str) -> str:
    return (
        f"{study}: kernel '{kernel}' has no row at auto, and a forecast uses no other; "
        "measure it at the driver's own clocks: wastenot sweep --clocks auto"
    )


def _means(place: NDArray[np.int64], values: FloatArray) -> FloatArray:
    """The mean of each kernel's known values; NaN where there is none."""
    known = np.isfinite(values)
    size = int(place.max()) + 1
    times = np.bincount(place[known], minlength=size)
    total = np.bincount(place[known], weights=values[known], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / times)


def _from_trials(study: Study, sweep: Sweep) -> tuple[FloatArray, FloatArray]:
    """Memory power and share of throttled time by kernel; NaN where no trial tells."""
    number = {kernel.name: index for index, kernel in enumerate(sweep.kernels)}
    trials = [trial for trial in study.measurements(sweep.workload, sweep.state, sweep.granularity) if trial.setting.is_auto]
    place = np.array([number[trial.kernel] for trial in trials] + [len(number) - 1], dtype=np.int64)
    columns = []
    for name in ("memory_power_w", "throttled_share"):
        values = [getattr(trial, name) for trial in trials] + [None]
        columns.append(_means(place, np.array([np.nan if value is None else value for value in values], dtype=float)))
    return columns[0], columns[1]


def _shares(
    units: WorkloadTasks, gpu: Preset, time_s: FloatArray, core_mhz: FloatArray
) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
    """What each kernel computes, and its FLOPs and bytes as shares of what the GPU could do in its time."""
    specs = [task.steps[0][0] for task in units.tasks]
    known = np.array([task.is_kernel and task.steps[0][0].bytes_moved > 0 for task in units.tasks])
    highest = gpu.clocks.boost_mhz
    flops_s = np.array([spec.flops / _peak(gpu, spec, units.run) for spec in specs])
    bytes_s = np.array([spec.bytes_moved / _bandwidth(gpu) for spec in specs])
    slower = highest / np.where(np.isnan(core_mhz), highest, core_mhz)
    arithmetic = np.where(known, flops_s * slower / time_s, np.nan)
    operations = tuple(spec.op if told else "other" for spec, told in zip(specs, known.tolist(), strict=True))
    return operations, np.clip(arithmetic, 0.0, 1.0), np.clip(np.where(known, bytes_s / time_s, np.nan), 0.0, 1.0)


def _peak(gpu: Preset, spec: KernelSpec, run: ModelRun | None) -> float:
    """FLOP/s that the operation could reach: the datasheet's peak, or what the preset's own operations reach."""
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

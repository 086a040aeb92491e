"""An engine's profile from kernels of a device: measured once, at few shapes and clocks; steps put together from them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.files import PathLike
from wastenot.core.progress import Progress
from wastenot.core.setting import Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device, Task
from wastenot.devices.simulated.basis import assumed_below_mhz
from wastenot.meters.tasks import WorkloadTasks
from wastenot.planning.switching import switch_time
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_curves import check_curves, kernels_by_curves
from wastenot.serving.model.engine_tables import EngineTables, Evidence, OutsideProfileError
from wastenot.serving.model.from_kernels import StepKernels, default_settings, kernels_of, table_knots, tables_of
from wastenot.serving.model.memory import cache_blocks, card_bytes
from wastenot.serving.model.profile_file import EngineProfile
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Kernel, Sweep
from wastenot.sweeping.grid import Grid, check_measures
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions
from wastenot.workloads.communication import LINKS, Link, all_reduce_s, point_to_point_s
from wastenot.workloads.kernel import DTYPE_BYTES
from wastenot.workloads.models import Model
from wastenot.workloads.named import find_model
from wastenot.workloads.serving_steps import StepShapes, step_parts
from wastenot.workloads.shape import tensor_parallel_degrees

CORE_STEP_MHZ = 150.0
"""Between core clocks that kernels are measured at; steps are known at any clock between."""

LOWEST_SHARE = 0.3
"""Of the highest core clock, below which no kernel is measured: far below the clock of least energy."""

_OPTIONS = PointOptions(warm_up_s=1.0, window_s=2.0)
"""Hundreds of shapes are measured, each of which says little by itself: less time for each than where there are few."""

_IDLE_SETTLES_S, _IDLE_S = 3.0, 2.0
_STEP_WITHIN_S = 0.1  # a step with prompts and decoding requests should not keep the latter waiting for longer
_BESIDE = 64.0, 1024.0  # decoding requests, and tokens of each, that such a step is judged with
_STEP_TOKENS = 256, 512, 1024, 2048, 4096, 8192


def engine_tasks(model: str, degree: int = 1, shapes: StepShapes | None = None) -> WorkloadTasks:
    """The kernels of an engine's steps, to be measured one by one.

    Args:
        model: such as ``llama-8b``.
        degree: of tensor parallelism.
        shapes: to measure them at; by default for steps of up to 16,384 tokens or 256 sequences.

    Raises:
        BadInputError: there is no such model, or it cannot be run so.
    """
    parts = step_parts(model, shapes or StepShapes.up_to(), degree=degree)
    return WorkloadTasks(
        "-".join([model, "serving", *([f"tp{degree}"] if degree > 1 else [])]),
        tuple(Kernel(part.called, part.count, part.size) for part, _ in parts),
        tuple(Task(part.called, ((kernel, 1),)) for part, kernel in parts),
    )


def engine_settings(device: Device, core_step_mhz: float | None = CORE_STEP_MHZ) -> tuple[Setting, ...]:
    """The settings to measure kernels of steps at: core clocks, the memory's left to the driver.

    Args:
        device: its clocks are tried, and given back.
        core_step_mhz: counted down from the highest; ``None`` for the default clocks only.

    Raises:
        BadInputError: the step is not positive.
        ClocksRefusedError: the device's clocks may not be set.
    """
    if core_step_mhz is None:
        return ()
    states = device.clocks.supported_clocks()
    if not states:
        raise ClocksRefusedError(
            f"{device.identity.name}: reports no clocks to set; use the default ones: `core_step_mhz` none"
        )
    highest = max(states)
    cores = [each.core_mhz or 0.0 for each in Grid(core_step_mhz).settings({highest: states[highest]})]
    settings = tuple(Setting(core) for core in cores if core >= LOWEST_SHARE * max(cores))
    try:
        device.clocks.request(settings[0])
    finally:
        device.clocks.release()
    return settings


def measure_kernels(
    device: Device,
    model: str,
    study: Study,
    *,
    degree: int = 1,
    shapes: StepShapes | None = None,
    core_step_mhz: float | None = CORE_STEP_MHZ,
    options: PointOptions | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> Sweep:
    """Measure the kernels of a model's steps into a study; resumes what it holds of them.

    Arguments and errors are those of :func:`profile_from_kernels`, for one degree.
    """
    tasks = engine_tasks(model, degree, shapes)
    clocks = engine_settings(device, core_step_mhz)
    with device.clocks.claimed():
        measure_sweep(
            device, tasks, study, clocks,
            options=options or _OPTIONS, progress=progress, rounds=1, command=command,
        )  # fmt: skip
    return study.read(tasks.name)


def profile_from_kernels(
    model: str,
    device: str | Device,
    study: PathLike | Study | None = None,
    *,
    degrees: Sequence[int] = (1,),
    shapes: StepShapes | None = None,
    core_step_mhz: float | None = CORE_STEP_MHZ,
    curves: str | None = None,
    settings: Sequence[Setting] | None = None,
    memory_bytes: float | None = None,
    options: PointOptions | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> EngineProfile:
    """Measure the kernels of a model's steps on a device, and put the profile of an engine together from them.

    A profile from tables of measured steps is :func:`wastenot.profile_of_steps`.

    Args:
        model: such as ``llama-8b``.
        device: or its name.
        study: keeps the kernels, to resume from; created if missing. ``None`` keeps nothing.
        degrees: of tensor parallelism; one GPU is measured, whatever they are.
        shapes: to measure kernels at.
        core_step_mhz: between core clocks, from the highest down; ``None`` for the card's own clocks only.
        curves: with those, a simulated GPU to take the other clocks from, a forecast.
        settings: of the profile, at any clocks between those measured; by default every 60 MHz, and auto.
        memory_bytes: of one card; by default what is known of it.
        options: warm-up, window and precision of each measurement.
        progress: receives each point.
        command: that does the same, for the study to name to whoever finds it unfinished.

    Raises:
        BadInputError: there is no such model or device, or the model does not fit into its memory.
        ClocksRefusedError: the clocks may not be set.
        DeviceError: the device does not measure.
    """
    device = open_device(device) if isinstance(device, str) else device
    study = None if study is None else open_study(study, create=True)
    sizes = find_model(model)
    if curves is not None and core_step_mhz is not None:
        raise BadInputError(
            "`curves`: is for kernels at the default clocks; leave it out, or measure them that way (`clocks` auto)"
        )
    if curves is not None:
        check_curves(curves)
    check_measures(device)
    memory = _memory(device, memory_bytes)
    chosen = sorted(set(degrees))
    for degree in chosen:
        if degree not in tensor_parallel_degrees(sizes):
            allowed = ", ".join(map(str, tensor_parallel_degrees(sizes)))
            raise BadInputError(f"`degrees` {degree}: {model} can be split by {allowed}")
        cache_blocks(sizes, memory, degree=degree)
    between = _link(device) if chosen[-1] > 1 else None
    sweeps = []
    with ExitStack() as stack:
        if study is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wastenot-"))
            study = open_study(Path(folder) / "kernels.db", create=True)
        for degree in chosen:
            measured = measure_kernels(
                device, model, study, degree=degree, shapes=shapes, core_step_mhz=core_step_mhz,
                options=options, progress=progress, command=command,
            )  # fmt: skip
            sweeps.append((degree, measured))
    idle_w = idle_power_w(device)
    return EngineProfile(
        tuple(
            engine_from(
                sweep,
                sizes,
                degree,
                idle_w,
                memory,
                link=between,
                settings=settings,
                kernels=None
                if curves is None
                else kernels_by_curves(sweep, engine_tasks(model, degree, shapes).tasks, curves),
                assumed_mhz=assumed_below_mhz(curves or sweep.device),
            )
            for degree, sweep in sweeps
        ),
        notes=_notes(between, chosen, curves),
    )


def engine_from(
    sweep: Sweep,
    model: Model,
    degree: int,
    idle_w: float,
    memory_bytes: float,
    *,
    link: Link | None = None,
    settings: Sequence[Setting] | None = None,
    kernels: StepKernels | None = None,
    assumed_mhz: float | None = None,
) -> Engine:
    """An engine from a sweep of the kernels of its steps.

    Args:
        sweep: of :func:`engine_tasks`.
        model: that it serves.
        degree: of tensor parallelism.
        idle_w: power of one GPU with nothing to do.
        memory_bytes: of one card.
        link: between the GPUs; needed for degrees above 1.
        settings: of its tables.
        kernels: of the sweep, where they are known at more clocks than it has.
        assumed_mhz: core clock below which the kernels are assumed.

    Raises:
        BadInputError: the sweep is of other kernels, or a setting outside its clocks.
    """
    evidence: Evidence = "simulated" if sweep.origin == "simulated" and kernels is None else "forecast"
    kernels = kernels or kernels_of(sweep)
    collective_s = None
    if degree > 1:
        assert link is not None
        collective_s = {
            "prefill": exchange_s(model, link, degree, table_knots(kernels, "prefill")[0]),
            "decode": exchange_s(model, link, degree, table_knots(kernels, "decode")[0]),
        }
    tables = tables_of(
        kernels,
        settings or default_settings(kernels),
        evidence,
        degree=degree,
        idle_power_w=idle_w,
        collective_s=collective_s,
    )
    return Engine(
        tables,
        cache_blocks(model, memory_bytes, degree=degree),
        most_running=int(tables.batches[-1]),
        most_step_tokens=step_tokens(tables),
        switch_s=switch_time(sweep.device).core_s,
        limit_w=degree * kernels.limit_w if np.isfinite(kernels.limit_w) else None,
        gpus=degree,
        model=model.name,
        device=sweep.device,
        assumed_below_mhz=assumed_mhz,
    )


def exchange_s(model: Model, link: Link, degree: int, tokens: FloatArray) -> FloatArray:
    """Time that the GPUs of a tensor-parallel group exchange data for in a step: two all-reduces in each layer.

    Few bytes are sent to all others at once, as engines' own all-reduces do; many go round a ring.

    Args:
        model: that is run.
        link: between the GPUs.
        degree: of them.
        tokens: of the step; shape (n,).
    """
    size = DTYPE_BYTES["bf16"] * model.width * np.asarray(tokens, dtype=float)
    once = [min(all_reduce_s(link, each, degree), point_to_point_s(link, (degree - 1) * each)) for each in size.tolist()]
    return 2.0 * model.layers * np.array(once)


def step_tokens(tables: EngineTables) -> int:
    """Tokens of the largest step that takes no longer than 100 ms at the highest clock, with decoding requests in it."""
    best, top = _STEP_TOKENS[0], len(tables.settings) - 1
    for tokens in _STEP_TOKENS:
        batch, context = (
            min(each, float(knots[-1])) for each, knots in zip(_BESIDE, (tables.batches, tables.context_tokens), strict=True)
        )
        try:
            cost = tables.mixed(top, tokens - batch, 0.0, batch, context)
        except OutsideProfileError:
            break
        best = tokens if cost.time_s <= _STEP_WITHIN_S else best
    return best


def idle_power_w(device: Device) -> float:
    """Power of a device with nothing to do, at its own clocks.

    Raises:
        DeviceError: a sensor cannot be read.
    """
    device.clocks.release()
    device.time.sleep(_IDLE_SETTLES_S)
    before_s, before_j = device.time.now_s(), device.sensors.energy_j()
    readings = []
    for _ in range(20):
        device.time.sleep(_IDLE_S / 20)
        readings.append(device.sensors.power_w())
    after_s, after_j = device.time.now_s(), device.sensors.energy_j()
    if before_j is not None and after_j is not None:
        return (after_j - before_j) / (after_s - before_s)
    known = [each for each in readings if each is not None]
    return float(np.mean(known)) if known else 0.0


def _memory(device: Device, memory_bytes: float | None) -> float:
    found = card_bytes(device.identity.model) if memory_bytes is None else memory_bytes
    if found is None:
        raise BadInputError(f"`memory_bytes`: the memory of {device.identity.model} is not known; give it")
    return found


def _link(device: Device) -> Link:
    model = device.identity.model
    for card, name in (("B200", "nvlink5"), ("H200", "nvlink4"), ("H100", "nvlink4"), ("A100", "nvlink3")):
        if card in model:
            return LINKS[name]
    return LINKS["pcie4"]


def _notes(link: Link | None, degrees: Sequence[int], curves: str | None) -> tuple[str, ...]:
    notes: tuple[str, ...] = (
        "steps are estimated from kernels; the time that an engine's host adds between steps is not included",
    )
    if curves is not None:
        notes += (f"kernels were measured at the default clocks; how they scale with the clock is taken from {curves}",)
    if link is None:
        return notes
    several = ", ".join(str(each) for each in degrees if each > 1)
    return (
        *notes,
        f"engines of {several} GPUs: the time to exchange data is computed from the bandwidth and latency of {link.name} "
        f"({link.source}), at the power of the lightest kernel; none of it was measured",
    )

"""The verbs that measure or write, as functions: what ``import wastenot as wn`` offers and the command line is built on.

Wherever a study, a plan, a workload or a device is needed, its name will do: a file, a database URL, ``gpt3-xl``,
``sim:h200``. Verbs that only compute (``wn.plan``, ``wn.frontier``, ``wn.forecast``, ...) live in their own packages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.progress import Progress
from wastenot.workloads.identity import EnergyState, Granularity, WorkloadKey

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.kernels.run.interleaved import Transfer
    from wastenot.kernels.run.refine import Finalists
    from wastenot.meters.tasks import WorkloadTasks
    from wastenot.planning.plan import Plan
    from wastenot.study.store import Study
    from wastenot.sweeping.estimate import Announce, Estimate
    from wastenot.sweeping.grid import AtAuto, AtNatural, Grid, Search
    from wastenot.sweeping.measure import SweepOutcome
    from wastenot.sweeping.point import PointOptions
    from wastenot.workloads.kernel import Workload
    from wastenot.workloads.shape import ShapeOptions


def workload(name: PathLike, **shape: Unpack[ShapeOptions]) -> Workload:
    """The kernels of a model, or of a file that :func:`wastenot.write_workload` or ``wastenot kernel capture`` wrote.

        >>> import wastenot as wn
        >>> len(wn.workload("gpt3-xl").kernels), wn.workload("llama-8b", phase="decode", batch=16).name
        (46, 'llama-8b-decode-batch16')

    Args:
        name: of a model, such as ``gpt3-xl``, or a file that ends in ``.json``.
        shape: how the model is run: ``phase``, ``batch``, ``sequence``, ``tensor_parallel``, ``sequence_parallel``,
            ``dtype``, ``attention``, ``optimizer``.

    Raises:
        BadInputError: there is no such model or file, or the model cannot be run this way.
    """
    from wastenot.workloads.build import build_workload
    from wastenot.workloads.capturing.workload_file import read_workload

    if not str(name).endswith(".json"):
        return build_workload(str(name), **shape)
    if shape:
        raise BadInputError(f"`{next(iter(shape))}`: {name} is a workload file, whose shapes are fixed; leave it out")
    return read_workload(name)


def sweep(
    workload: PathLike | Workload | WorkloadTasks,
    device: str | Device,
    study: PathLike | Study,
    *,
    clocks: Grid | AtAuto | AtNatural | Search | None = None,
    granularity: Granularity = "kernel",
    state: EnergyState = "ssp",
    options: PointOptions | None = None,
    budget_s: float | None = None,
    command: str | None = None,
    announce: Announce | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    **shape: Unpack[ShapeOptions],
) -> SweepOutcome:
    """Measure every kernel of a workload at the default clocks and at many settings; resumes an interrupted sweep.

        >>> import wastenot as wn
        >>> outcome = wn.sweep("gpt3-xl", "sim:h200", "my.db", clocks=wn.Grid(core_mhz=[1200, 1980], memory_mhz=[3201]))
        >>> wn.plan("my.db", max_slowdown=0.02).headline.energy_change <= 0
        True

    At the defaults a sweep of a real GPU takes hours. How long it takes can be known before:

        >>> estimate = wn.sweep("gpt3-xl", "sim:rtx-3080-ti", "new.db", dry_run=True).estimate
        >>> estimate.points, round(estimate.device_s / 3600, 1)
        (2459, 7.8)

    Args:
        workload: a model's name, a workload file, a study whose kernels to measure, or a workload.
        device: or its name, such as ``sim:h200``. To let the clocks of a real GPU be set, afterwards they are reset:
            ``wn.open_device("nvidia:0", allow_clock_control=True)``.
        study: file or URL of the study to keep the measurements in; created if missing.
        clocks: a grid of settings besides the default clocks, by default core clocks 210 MHz apart, or every clock that a
            recording has; only the points of a grid that can still change the plan; or, without setting clocks, the default
            clocks only or those that the device passes through by itself.
        granularity: what is measured as a unit.
        state: that energies are measured in: ``ssp``, steady power; ``sse``, the first execution at full speed; ``context``,
            each kernel after the one that precedes it.
        options: warm-up, window and precision of each point.
        budget_s: device time after which no further point is started.
        command: that does the same, for the study to name to whoever finds the sweep unfinished.
        announce: receives what there is to measure and how long that takes, before it begins.
        dry_run: measure nothing, set nothing and write nothing; the outcome's ``estimate`` says what there is to measure.
        progress: receives each point.
        shape: how a model is run, as for :func:`workload`.

    Raises:
        BadInputError: an argument makes no sense, or the study holds something else under this name.
        DeviceError: the device does not measure.
        ClocksRefusedError: its clocks may not be set.
        StudyError: the study cannot be written, or another process is measuring the workload; what was measured before is
            kept.
    """
    from wastenot.study.store import open_study
    from wastenot.sweeping.grid import AtAuto, AtNatural, Grid, Search, check_measures, settings_of
    from wastenot.sweeping.measure import SweepOutcome

    clocks = Grid() if clocks is None else clocks
    if not isinstance(clocks, Grid | Search | AtAuto | AtNatural):
        raise BadInputError(f"`clocks` {clocks!r}: give wn.Grid(...), wn.Search(...), wn.AtAuto() or wn.AtNatural()")
    tasks = _tasks(workload, device, granularity, state, shape)
    target = _device(device, tasks)
    check_measures(target)
    kept = open_study(study, create=True)
    estimate: Callable[[], Estimate]
    measure: Callable[[], SweepOutcome]
    resumed: dict[str, Any] = {"budget_s": budget_s, "command": command, "progress": progress}
    if isinstance(clocks, AtNatural):
        from wastenot.kernels.natural.measure import estimate_natural, natural_sweep

        if tasks.state not in ("ssp", "natural"):
            raise BadInputError("`clocks` natural: kernels run at clocks that are not set; leave out `state`")
        each_s = clocks.seconds_each
        estimate = partial(estimate_natural, target, tasks, kept, seconds_each=each_s, budget_s=budget_s)
        measure = partial(natural_sweep, target, tasks, kept, seconds_each=each_s, **resumed)
    elif isinstance(clocks, Search):
        from wastenot.kernels.run.search import estimate_search, search_sweep

        if tasks.state != "ssp":
            raise BadInputError("`search` model: works only for kernels alone at steady power; use the grid")
        settings = settings_of(target, clocks.grid, dry_run=dry_run)
        done = kept.settings_done(tasks.key, target.identity.label)
        how: dict[str, Any] = {"share": clocks.share, "options": options}
        estimate = partial(estimate_search, target, tasks, settings, done, budget_s=budget_s, **how)
        measure = partial(search_sweep, target, tasks, kept, settings, max_slowdown=clocks.max_slowdown, **how, **resumed)
    else:
        from wastenot.sweeping.estimate import estimate_sweep
        from wastenot.sweeping.measure import BASELINE_ROUNDS, measure_sweep
        from wastenot.sweeping.states import check_state

        check_state(target, tasks)
        settings = () if isinstance(clocks, AtAuto) else settings_of(target, clocks, dry_run=dry_run)
        done = kept.settings_done(tasks.key, target.identity.label)
        how = {"rounds": clocks.rounds if isinstance(clocks, AtAuto) else BASELINE_ROUNDS, "options": options}
        estimate = partial(estimate_sweep, target, tasks, settings, done, budget_s=budget_s, **how)
        measure = partial(measure_sweep, target, tasks, kept, settings, **how, **resumed)
    if dry_run:
        expected = estimate()
        return SweepOutcome(found=expected.found, estimate=expected)
    with target.clocks.claimed():
        if announce is not None:
            announce(estimate())
        return measure()


def _tasks(
    workload: PathLike | Workload | WorkloadTasks,
    device: str | Device,
    granularity: Granularity,
    state: EnergyState,
    shape: ShapeOptions,
) -> WorkloadTasks:
    """What a sweep measures, whichever way it was named."""
    from wastenot.meters.tasks import WorkloadTasks, find_tasks, tasks_of
    from wastenot.workloads.build import build_shape
    from wastenot.workloads.shape import check_options

    named = isinstance(workload, str | os.PathLike)
    check_options(shape, settled=None if named else "a workload whose kernels are given")
    if isinstance(workload, WorkloadTasks):
        return workload
    if isinstance(workload, str | os.PathLike):
        name = device if isinstance(device, str) else device.identity.name
        return find_tasks(str(workload), name, build_shape(**shape), granularity, state)
    return tasks_of(workload, granularity, state)


@dataclass(frozen=True, slots=True)
class Refinement:
    """A plan before and after its finalists were measured again.

    Attributes:
        outcome: of the measurements.
        before: the plan of the study as it was.
        after: the plan of the study with the new measurements.
    """

    outcome: SweepOutcome
    before: Plan
    after: Plan


def refine(
    study: PathLike | Study,
    device: str | Device,
    *,
    workload: str | WorkloadKey | None = None,
    into: PathLike | Study | None = None,
    max_slowdown: float = 0.0,
    finalists: Finalists | None = None,
    options: PointOptions | None = None,
    budget_s: float | None = None,
    command: str | None = None,
    announce: Announce | None = None,
    progress: Progress | None = None,
) -> Refinement:
    """Measure the best settings of every kernel again, which removes selection bias, and make a new plan.

        >>> import wastenot as wn
        >>> refined = wn.refine("my.db", "sim:h200", finalists=wn.Finalists(repeats=1))
        >>> refined.outcome.measured > 0
        True

    Args:
        study: the study, its file or URL.
        device: the device or its name.
        workload: its name, or name, state and granularity; may be left out where the study holds only one.
        into: study of another card of the same model, to measure that card instead; created if missing.
        max_slowdown: of the plan.
        finalists: which settings of each kernel to measure, and how often; by default the best three, three times.
        options: warm-up, window and precision of each point.
        budget_s: device time after which no further point is started.
        command: that does the same, for the study to name to whoever finds it unfinished.
        announce: receives how many measurements there are and how long they take, before they begin.
        progress: receives each point.

    Raises:
        BadInputError: an argument makes no sense, or there is no such workload.
        InfeasibleError: no plan is within the slowdown limit.
        DeviceError: the device does not measure.
        StudyError: a study cannot be read or written; what was measured before is kept.
    """
    from wastenot.kernels.run import refine as refining
    from wastenot.meters.tasks import tasks_in_study
    from wastenot.planning.planner import plan as make_plan
    from wastenot.study.store import open_study

    wanted = refining.Finalists() if finalists is None else finalists
    if not isinstance(wanted, refining.Finalists):
        raise BadInputError(f"`finalists` {finalists!r}: give wn.Finalists(...), such as wn.Finalists(each=3, repeats=3)")
    source = open_study(study)
    key = (workload.name, workload.state, workload.granularity) if isinstance(workload, WorkloadKey) else (workload,)
    held = source.read(*key)
    before = make_plan(held, max_slowdown=max_slowdown)
    tasks = tasks_in_study(source, held)
    target = _device(device, tasks)
    kept = source if into is None else open_study(into, create=True)
    candidates = wanted.of(held, before, target)
    with target.clocks.claimed():
        outcome = refining.refine(
            target, tasks, kept, candidates,
            repeats=wanted.repeats, options=options, progress=progress, budget_s=budget_s, command=command,
            announce=announce,
        )  # fmt: skip
    after = make_plan(kept.read(held.workload, held.state, held.granularity), max_slowdown=max_slowdown)
    return Refinement(outcome, before, after)


def transfer(
    plan: PathLike | Plan,
    device: str | Device,
    *,
    batch: Sequence[int] = (),
    tensor_parallel: Sequence[int] = (),
    sequence_parallel: bool = False,
    repeats: int = 10,
    options: PointOptions | None = None,
    announce: Callable[[Sequence[Estimate]], None] | None = None,
    progress: Progress | None = None,
) -> Transfer:
    """Measure a plan's clocks at other batch sizes or tensor-parallel degrees, interleaved with the default clocks.

        >>> import wastenot as wn
        >>> wn.transfer(wn.plan("my.db"), "sim:h200", batch=[1], repeats=2).rows[0].workload
        'gpt3-xl-batch1'

    Args:
        plan: of a model's workload, or its file.
        device: the device or its name.
        batch: batch sizes to measure.
        tensor_parallel: or tensor-parallel degrees to measure.
        sequence_parallel: use sequence parallelism at degrees above 1.
        repeats: measurements of each, at least 2.
        options: warm-up, window and precision of each point.
        announce: receives how many measurements there are and how long they take, before they begin.
        progress: receives each measurement.

    Raises:
        BadInputError: neither or both of batch sizes and degrees, or the plan is not of a model's workload.
        DeviceError: the device does not measure.
    """
    from wastenot.kernels.run.interleaved import transfer as measure_transfer
    from wastenot.meters.tasks import tasks_of
    from wastenot.planning.plan_file import read_plan
    from wastenot.workloads.build import build_workload

    if bool(batch) == bool(tensor_parallel):
        raise BadInputError("`batch`, `tensor_parallel`: give one of them, such as 40,20,10 or 1,2,4")
    made = read_plan(plan)
    if made.run is None:
        raise BadInputError(
            f"the plan's workload '{made.workload}' is not known to be a model's, and only models can run at other "
            "shapes; plan a sweep of a model, such as gpt3-xl"
        )
    shapes = [replace(made.run.shape, batch=size) for size in batch] or [
        replace(made.run.shape, tensor_parallel=degree, sequence_parallel=sequence_parallel and degree > 1)
        for degree in tensor_parallel
    ]
    workloads = (build_workload(made.run.model, shape) for shape in shapes)
    targets = [tasks_of(each, made.measured_granularity, made.state) for each in workloads]
    target = _device(device, targets[0])
    with target.clocks.claimed():
        return measure_transfer(
            target, made, targets, repeats=repeats, options=options, announce=announce, progress=progress
        )


def _device(device: str | Device, tasks: WorkloadTasks) -> Device:
    """The device of a name; a recorded one replays the workload that the tasks are of."""
    from wastenot.devices.open import open_device

    if not isinstance(device, str):
        return device
    return open_device(device, workload=tasks.name, granularity=tasks.granularity)

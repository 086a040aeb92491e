"""``wn.tune``: find a setting for a program while it runs, and hold it with proof."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from wastenot.core.errors import BadInputError

if TYPE_CHECKING:
    from wastenot.control.candidates import Ladder
    from wastenot.control.session import Session
    from wastenot.control.status import Status, Summary
    from wastenot.control.tuner import Tuner
    from wastenot.devices.common.journal import Restore
    from wastenot.devices.protocol import Device
    from wastenot.planning.plan import Plan
    from wastenot.workloads.identity import ModelRun
    from wastenot.workloads.shape import Shape, ShapeOptions

Watch = Callable[["Status"], bool]
"""Takes the latest status of a simulated job; ends the job by returning ``True``."""
Watching = Callable[["Tuner"], AbstractContextManager[Watch]]

AFTER = 1000
"""Iterations of a simulated job after the search, for the proof."""
_MOST = 10**9  # iterations of a simulated job
_LOOK_S = 1.0  # of virtual time between looks at a simulated job


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What is tried, and how long.

    Attributes:
        settings: core clocks, power limits, or both.
        core_mhz: core clocks to choose from; by default steps of 1 %. Given alone, no power limits are tried.
        power_limit_w: power limits to choose from, likewise.
        profile: the vendor's workload power profiles to try besides.
        tolerance: fraction of the energy within which the best has to be known.
        budget_s: time after which the best so far is held.
    """

    settings: Literal["both", "clocks", "limits"] = "both"
    core_mhz: Sequence[float] | None = None
    power_limit_w: Sequence[float] | None = None
    profile: Sequence[str] = ()
    tolerance: float = 0.005
    budget_s: float = 3600.0

    def ladders(self, gpus: Sequence[Device]) -> tuple[Ladder, ...]:
        """The settings to choose from on some GPUs.

        Raises:
            BadInputError: a GPU has no such clock or power limit.
            ClocksRefusedError: the GPUs report nothing that could be tried.
        """
        from wastenot.control.candidates import Knob, ladders_of

        given = self.core_mhz is not None or self.power_limit_w is not None  # naming some means only those
        chosen: list[Knob] = []
        if self.core_mhz is not None if given else self.settings != "limits":
            chosen.append("clock")
        if self.power_limit_w is not None if given else self.settings != "clocks":
            chosen.append("limit")
        return ladders_of(gpus, chosen, core_mhz=self.core_mhz, power_limit_w=self.power_limit_w, profile=self.profile)

    def tuner(
        self,
        gpus: Sequence[Device],
        workload: str,
        *,
        max_slowdown: float,
        seed: int,
        dry_run: bool = False,
        rehearsal: bool = False,
    ) -> Tuner:
        """The tuner of what runs.

        Args:
            gpus: that it runs on.
            workload: what runs, in words.
            max_slowdown: to keep.
            seed: of the order of trials.
            dry_run: follow the job, and try nothing.
            rehearsal: a program runs beside simulated GPUs, on which nothing can be measured.

        Raises:
            BadInputError: a number makes no sense, or a GPU has no such setting.
            ClocksRefusedError: the GPUs report nothing that could be tried.
        """
        from wastenot.control.driver import Subject
        from wastenot.control.rehearsed import Rehearsed
        from wastenot.control.traffic import traffic_of
        from wastenot.control.tuner import Tuner

        return Tuner(
            gpus,
            Subject("tune", "", workload, gpus[0].identity.origin),
            max_slowdown,
            ladders=self.ladders(gpus),
            tolerance=self.tolerance,
            budget_s=self.budget_s,
            now_s=gpus[0].time.now_s(),
            seed=seed,
            dry_run=dry_run,
            rehearsed=Rehearsed(gpus=len(gpus)) if rehearsal else None,
            traffic=traffic_of(gpus, rehearsal=rehearsal),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TunedJob:
    """What became of a job whose setting was tuned while it ran.

    Attributes:
        plan: holds the setting that was found; ``None`` where the job ended before anything was measured, or was rehearsed.
        summary: of the run: what was tried, and the proof.
        exit_code: of the program.
        problem: what ended the search, or the setting that it found, before the program ended; ``None`` for nothing.
    """

    plan: Plan | None
    summary: Summary
    exit_code: int = 0
    problem: str | None = None

    @property
    def why_no_plan(self) -> str | None:
        """Why nothing can be written; ``None`` where there is a plan."""
        if self.plan is not None:
            return None
        if self.summary.status.rehearsal is not None:
            return "a rehearsal measures nothing"
        if self.problem is not None:
            return f"the search ended before anything was measured: {self.problem}"
        return "the job ended before anything was measured"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, for :class:`wastenot.apply`.

        Raises:
            BadInputError: there is none, or the file cannot be written.
        """
        if self.plan is None:
            raise BadInputError(f"{path}: not written: {self.why_no_plan}")
        self.plan.write(path)

    def page(
        self, path: str | os.PathLike[str], *, figures: str | os.PathLike[str] | None = None, command: str | None = None
    ) -> tuple[Path, ...]:
        """Write the page of the run; see :meth:`wastenot.core.result.HasPage.page`."""
        return self.summary.page(path, figures=figures, command=command)


def tune(
    what: str | Sequence[str],
    device: str | Device | Sequence[str | Device] | None = None,
    options: TuneOptions | None = None,
    *,
    max_slowdown: float = 0.0,
    iterations: int | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    **shape: Unpack[ShapeOptions],
) -> TunedJob:
    """Find and hold the best setting for a program while it runs.

        >>> import wastenot as wn
        >>> found = wn.tune("gpt3-small", "sim:rtx-a4000", max_slowdown=0.05, iterations=150)
        >>> found.summary.status.tuning.tried > 0
        True
        >>> wn.tune(["python", "train.py"], "nvidia:0").write("plan.json")     # doctest: +SKIP

    A few core clocks and power limits are tried on the program itself, in random order between iterations at the default
    clocks; the best is then held with guard and proof. The GPUs are left as they were, however the program ends.

    Args:
        what: the program and its arguments, as a list; on a simulated GPU the name of a workload, or a program to rehearse:
            settings are then requested of the simulated GPU, and nothing is measured.
        device: GPUs of the job, or their names, which are opened to set their clocks; by default the first there is.
        options: what is tried, and how long.
        max_slowdown: of the job.
        iterations: of a simulated job, at least 1; by default 1000 after the search.
        seed: of the order of trials, and of a simulated job.
        watch: receives the status of a simulated job every second of its time; ends it by returning ``True``.
        shape: how a model is run that is simulated, as for :func:`wastenot.workload`.

    Raises:
        BadInputError: an argument makes no sense.
        ClocksRefusedError: this process may not set the clocks; says what would be needed.
        DeviceError: a GPU does not respond, or another process controls its clocks.
        OSError: the program cannot be run.
    """
    from wastenot.programs.child_program import exit_code, running_program
    from wastenot.programs.environment import socket_of, why_cut_short
    from wastenot.workloads.build import build_shape

    if not isinstance(what, str):
        _check_program(what, [*shape, *_given(iterations=iterations, watch=watch)])
    wanted = options or TuneOptions()
    gpus = tunable_gpus(device, seed=seed, program=not isinstance(what, str))
    simulated = all(gpu.identity.name.startswith("sim:") for gpu in gpus)
    if isinstance(what, str):
        check_simulated(simulated)
        look: Watch = watch or (lambda status: False)
        return tune_simulated(
            lambda name: wanted.tuner(gpus, name, max_slowdown=max_slowdown, seed=seed),
            what,
            gpus[0].identity.name,
            build_shape(**shape),
            iterations=iterations,
            seed=seed,
            watching=lambda tuner: nullcontext(look),
        )
    tuner = wanted.tuner(gpus, shlex.join(what), max_slowdown=max_slowdown, seed=seed, rehearsal=simulated)
    with tuning_session(tuner) as session, running_program(what, to_stderr=False, environment=socket_of(session)) as child:
        child.wait()
        code = exit_code(child)
        summary = session.end("job ended", code)
    cut_short = why_cut_short(session)
    if cut_short is not None:
        print(f"wastenot: {cut_short}", file=sys.stderr)
    return job_of(tuner, summary, exit_code=code, problem=session.problem)


def _check_program(what: Sequence[str], useless: Sequence[str]) -> None:
    """Refuse a program that is none, and arguments that have no effect on one, by a BadInputError."""
    if not what:
        raise BadInputError("`what`: names no program; give it and its arguments as a list, such as ['python', 'train.py']")
    if useless:
        names = ", ".join(f"`{name}`" for name in useless)
        raise BadInputError(f"{names}: can only be given for a simulated job, not for a program")


def _given(**arguments: object) -> list[str]:
    """Names of the arguments that were given."""
    return [name for name, value in arguments.items() if value is not None]


def tunable_gpus(
    device: str | Device | Sequence[str | Device] | None,
    *,
    seed: int = 0,
    may_set: bool = True,
    restore: Restore | None = None,
    program: bool = False,
) -> tuple[Device, ...]:
    """The GPUs of a job, opened and fit to be tuned.

    Args:
        device: GPUs or their names; by default the first there is.
        seed: of simulated ones.
        may_set: open them to set their clocks; without it they are only looked at.
        restore: ranges of locked clocks to which they are restored.
        program: a program is to run on them rather than a simulated job.

    Raises:
        BadInputError: one is named twice, or there is no such device.
        ClocksRefusedError: the clocks may not be set.
        DeviceError: one does not respond or does not measure.
    """
    from wastenot.control.application import open_gpus, parse_devices
    from wastenot.control.fitting import check_may_set
    from wastenot.core.vendors import with_drivers
    from wastenot.sweeping.grid import check_measures

    named = f"{with_drivers()[0].name}:0" if device is None else device
    listed = parse_devices(named) if isinstance(named, str) else named if isinstance(named, Sequence) else [named]
    gpus = open_gpus(listed, program=program, dry_run=not may_set, restore=restore, seed=seed)
    for gpu in gpus:
        check_measures(gpu)
    if may_set:
        check_may_set(gpus, "tried")
    return gpus


def check_simulated(simulated: bool) -> None:
    """Refuse a workload on real GPUs, by a BadInputError."""
    if not simulated:
        raise BadInputError(
            "`what`: a real GPU runs a program: give it and its arguments as a list, such as ['python', 'train.py']"
        )


def tuning_session(tuner: Tuner, *, dry_run: bool = False, patience_s: float | None = None) -> Session:
    """The session of a program that is tuned, not yet begun.

    Args:
        tuner: of it.
        dry_run: clocks are not changed.
        patience_s: how long to wait for the first iteration; as of sessions by default.
    """
    from wastenot.control.places import make_own_socket_path
    from wastenot.control.session import PATIENCE_S, Session

    rehearsed = tuner.rehearsed
    return Session(
        tuner,
        make_own_socket_path("apply"),
        fits=None if rehearsed is None else lambda seen: rehearsed.saw(seen, None),
        lease=not dry_run,
        patience_s=PATIENCE_S if patience_s is None else patience_s,
    )


def tune_simulated(
    make: Callable[[str], Tuner],
    workload: str,
    device: str,
    shape: Shape,
    *,
    watching: Watching,
    iterations: int | None = None,
    seed: int = 0,
    real_time: bool = False,
) -> TunedJob:
    """Tune a simulated job.

    Args:
        make: makes the tuner of a workload of this name.
        workload: that it runs.
        device: name of the GPU.
        shape: how a model is run.
        watching: a context in which the job is watched; gives what takes its status, and ends it by returning ``True``.
        iterations: of it, at least 1; by default :data:`AFTER` after the search.
        seed: of it.
        real_time: let it take as long as a real one would.

    Raises:
        BadInputError: there is no such workload, or an argument makes no sense.
    """
    from wastenot.control.simulated_job import programme_of, run_job
    from wastenot.meters.tasks import find_tasks

    tasks = find_tasks(workload, device, shape)
    tuner = make(tasks.name)
    enough: list[int] = []
    stopped = [False]
    with watching(tuner) as show:

        def watch(tuner: Tuner) -> bool:
            latest = tuner.status()
            if tuner.done and not enough:
                enough.append((latest.iteration or 0) + AFTER)
            over = iterations is None and bool(enough) and (latest.iteration or 0) >= enough[0]
            stopped.append(show(latest))
            return stopped[-1] or over

        summary, _ = run_job(
            tuner, programme_of(tasks.kernels, tasks.tasks), _MOST if iterations is None else iterations, seed=seed,
            real_time=real_time, watch=watch, watch_every_s=_LOOK_S,
        )  # fmt: skip
    if not stopped[-1]:  # it came to its end, which the search decides
        summary = summary.model_copy(update={"ended": "job ended", "exit_code": 0})
    return job_of(tuner, summary, run=tasks.run)


def job_of(
    tuner: Tuner, summary: Summary, *, run: ModelRun | None = None, exit_code: int = 0, problem: str | None = None
) -> TunedJob:
    """What became of a job, with the plan of what was found where anything was measured.

    Args:
        tuner: that has ended its search.
        summary: of the run.
        run: the model that ran, where it is known.
        exit_code: of the program.
        problem: what ended its session early.
    """
    from wastenot.control.tuned_plan import tuned_plan

    measured = bool(tuner.defaults) and tuner.rehearsed is None
    return TunedJob(tuned_plan(tuner, run=run) if measured else None, summary, exit_code, problem)

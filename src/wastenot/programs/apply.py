"""``with wn.apply("plan.json") as applied:`` — a plan applied in a program of one's own.

    with wn.apply("plan.json") as applied:          with wn.apply("plan.json") as applied:
        for batch in batches:                           for batch in batches:
            train_step(batch)                               applied.iteration()
                                                            loss = forward(batch)
    # PyTorch's optimizer tells the iterations                applied.phase("backward")
                                                            loss.backward()

    with wn.apply("pipeline.json") as applied:      # a rank of a pipeline
        ...
        applied.instruction("forward", micro_batch)
        applied.instruction("backward", micro_batch)

Once it has begun, no fault of ours ends the program: it is reported once, the clocks are given back, and the program
continues. Where ``wastenot apply`` has started the program, its session controls the clocks, and this one only reports to
it; where that session is gone, the program runs without the plan. Of several ranks on a machine (torchrun) the first
controls the clocks of all, and the others report to it; each rank of a pipeline, whose clocks are its own, controls those
of its GPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from wastenot.control.harmless import Harmless
from wastenot.control.rank import Rank
from wastenot.control.wire import PIPELINE, VARIABLE, Line
from wastenot.core.errors import BadInputError, DeviceError, MissingExtraError
from wastenot.core.processes import number_in_environment
from wastenot.programs.instrumented import rank_of_this_process

if TYPE_CHECKING:
    from wastenot.control.driver import Ended
    from wastenot.control.session import Session
    from wastenot.control.status import Status, Summary
    from wastenot.devices.protocol import Device
    from wastenot.pipelines.plan.plan import PipelinePlan
    from wastenot.pipelines.run.application import PipelineApplication
    from wastenot.planning.plan import Plan

_FIRST_RANK_S = 60.0  # for which the other ranks wait until the first listens
_OTHERS_S = 2.0  # for which the first waits at its end until the others have ended


class Applied:
    """A plan being applied; made by :func:`apply`.

    Attributes:
        summary: the result, once the context has exited; ``None`` before. In a program that only reports to the process
            that controls the clocks, it is what that process knew then, or when it last answered, without a timeline.
        pipeline_rank: this process' rank in a pipeline; ``None`` if the plan is not for a pipeline.
        gpus: whose clocks this process controls; none in programs that only report.
    """

    def __init__(
        self, rank: Rank, path: str, session: Session | None, pipeline_rank: int | None = None, gpus: tuple[Device, ...] = ()
    ) -> None:
        self._rank, self._path, self._session = rank, path, session
        self.pipeline_rank, self.gpus = pipeline_rank, gpus
        self.summary: Summary | None = None
        self._unwatch: list[Callable[[], None]] = []
        self._harmless = rank.harmless
        self._harmless.afterwards = self._give_back
        self._asking = Harmless(consequence="what it knew before is all that is known")
        self._latest: Status | None = None

    def iteration(self) -> None:
        """Mark the beginning of an iteration by hand; hooks that were found by themselves mark none from then on."""
        self._harmless.call(self._rank.mark, "iteration")

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Mark the beginning of a pass by hand, such as ``backward``; it ends where the next one begins.

        May also be written ``with applied.phase("backward"):``.

        Args:
            name: as in the plan's schedule.
        """
        self._harmless.call(self._rank.mark, name)
        return nullcontext()

    def instruction(self, name: str, micro_batch: int, *, stage: int | None = None) -> AbstractContextManager[None]:
        """Mark that this rank of a pipeline begins an instruction; it ends where the next one begins, or waits.

        Call it when the instruction's kernels are about to be launched, after what it waits for was received. May also be
        written ``with applied.instruction("forward", 3):``.

        Args:
            name: as in the plan: ``forward``, ``backward``, ``recomputation``, ``backward_input``, ``backward_weight``,
                or ``forward_backward`` for both at once, with micro-batch and stage of the forward.
            micro_batch: from 0 in each iteration.
            stage: of the model; needed only where the rank holds several (interleaved schedules).
        """
        self._harmless.call(self._instruct, f"{name}:{micro_batch}" + ("" if stage is None else f":{stage}"))
        return nullcontext()

    def watch_pipelining(self) -> None:
        """Mark what the stages of ``torch.distributed.pipelining`` run, whatever the schedule, until the context is left."""
        self._harmless.call(self._watch_stages)

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Mark iterations, passes and layers of a model by hooks.

        Args:
            model: a ``torch.nn.Module``, as the program calls it: compiled, or wrapped for several GPUs.
            optimizer: one or several, whose step ends an iteration; by default any optimizer of the program.
        """
        self._harmless.call(self._rank.watch, model, optimizer)

    def status(self) -> Status:
        """What is known of the plan now, with what was saved.

        If the session that controls the clocks does not answer, this is what it last said; that is reported once.
        """
        return self._look(self._asking.fail)

    def _look(self, silent: Callable[[Exception], None]) -> Status:
        """What is known now, or was known last where the session is silent, which a function is told."""
        if self._path:
            try:
                self._latest = self._ask_status()
            except Exception as error:  # a program that looks at its savings is not to end by it
                silent(error)
        if self._latest is None:
            from wastenot.control.status import unknown_status

            self._latest = unknown_status(self._path)
        return self._latest

    def _ask_status(self) -> Status:
        if self._session is not None:
            return self._session.status()
        from wastenot.control.status import Status

        try:
            line = Line.to(self._path)
            try:
                return Status.model_validate(line.ask({"ask": "status"})["status"])
            finally:
                line.close()
        except (OSError, ValueError, KeyError) as error:
            raise DeviceError(f"{self._path}: the session that controls the clocks does not answer: {error}") from error

    def _instruct(self, marker: str) -> None:
        self._rank.instruct(marker, self._seated())

    def _watch_stages(self) -> None:
        from wastenot.pipelines.run.torch_pipelining import watch_stages

        self._seated()
        if os.environ.get(PIPELINE) is None or self._rank is not rank_of_this_process():  # else they are watched already
            self._unwatch.append(watch_stages(self._rank.instruct_stage))

    def _seated(self) -> int:
        if self.pipeline_rank is None:
            raise BadInputError("the applied plan is not for a pipeline; mark its passes with applied.phase()")
        return self.pipeline_rank

    def _give_back(self) -> None:
        """After a fault: nothing is reported any more, and clocks that this process controls are the driver's again."""
        self._end("failed")

    def _end(self, ended: Ended) -> None:
        if self.summary is not None:
            return
        session = self._session
        try:
            for undo in self._unwatch:
                undo()
            self._rank.close()
            if session is not None and ended == "job ended":
                session.let_ranks_leave(_OTHERS_S)
        finally:
            try:
                self.summary = None if session is None else session.end(ended)
            finally:
                self.summary = self.summary or self._last_summary(ended)
        if session is not None and session.problem is not None:
            print(f"wastenot: the plan ended early: {session.problem}", file=sys.stderr)
        if session is not None and not self._harmless.broken:
            from wastenot.control.rehearsed import rehearsal_lines

            for line in rehearsal_lines(self.summary.status):
                print(f"wastenot: {line}", file=sys.stderr)

    def _last_summary(self, ended: Ended) -> Summary:
        """What became of it where only its status is known, if not from before whoever controls the clocks has ended."""
        from wastenot.control.status import Summary

        return Summary(status=self._look(lambda _: None), ended=ended, exit_code=None, time_line=())


def without_plan(error: Exception) -> Applied:
    """What stands for a plan that could not begin, in programs that continue without it; the error is reported."""
    rank = Rank("")
    rank.harmless.fail(error)
    applied = Applied(rank, "", None)
    applied.summary = applied._last_summary("failed")
    return applied


class apply:  # noqa: N801 - reads as a verb, and is one
    """Apply a plan while the context is open.

        >>> import wastenot as wn
        >>> with wn.apply("plan.json", device="nvidia:0") as applied:   # doctest: +SKIP
        ...     train()
        >>> applied.summary.status.proof.energy_change                  # doctest: +SKIP

    Args:
        plan: or its file.
        device: GPUs that the program runs on, such as ``nvidia:0`` or ``("nvidia:0", "nvidia:1")``; by default the GPU that
            PyTorch uses in each rank, or else the card that the plan was made on. Whoever started the program has decided it
            where ``wastenot apply`` did. With a simulated GPU, such as ``sim:h200``, this is a rehearsal: the program runs
            wherever it does, clocks are requested of the simulated GPU, and no saving is measured.
        dry_run: follow the program, and change no clocks.
        out: file for the summary, as JSON.
        seed: of the order of comparisons.
        rank: of the pipeline, for a pipeline's plan; by default what Megatron or torchrun say.

    Raises:
        BadInputError: the plan was edited, has no schedule, or is for another kind of card; or its rank cannot be told.
        ClocksRefusedError: this process may not set clocks; says what would be needed.
        DeviceError: a GPU does not respond, or another process controls its clocks.
    """

    def __init__(
        self,
        plan: str | os.PathLike[str] | Plan | PipelinePlan,
        *,
        device: str | Sequence[str] | None = None,
        dry_run: bool = False,
        out: str | os.PathLike[str] | None = None,
        seed: int = 0,
        rank: int | None = None,
    ) -> None:
        self._plan: Any = plan
        self._device, self._dry_run, self._out, self._seed = device, dry_run, out, seed
        self._given_rank = rank
        self._stack = ExitStack()
        self._applied: Applied | None = None
        self._session: Session | None = None

    def __enter__(self) -> Applied:
        """Begin, or connect to whoever has begun."""
        try:
            self._applied = self._enter()
        except BaseException:
            self._stack.close()
            raise
        return self._applied

    def _enter(self) -> Applied:
        parent = os.environ.get(VARIABLE)
        torch = sys.modules.get("torch")
        seat = self._seat()
        if parent:
            rank = rank_of_this_process() or Rank(parent, torch)
            path = parent
        else:
            path = self._begin(seat)
            rank = Rank(path, torch)
        try:
            rank.connect()
        except (OSError, ValueError) as error:
            silent = DeviceError(f"{path}: the session that controls the clocks does not answer: {error}")
            if not parent:
                raise silent from error
            rank.harmless.fail(silent)  # the program was started to train, with or without a plan
            path = ""
        self._stack.callback(rank.close)
        if seat is None:
            rank.harmless.call(rank.watch_everything)
        gpus = () if self._session is None else self._session.gpus
        applied = Applied(rank, path, self._session, seat, gpus)
        if self._session is None:
            applied.status()  # what is known if nobody answers later
        return applied

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give the clocks back."""
        applied = self._applied
        assert applied is not None
        faults = Harmless()
        ended: Ended = "job ended" if kind is None else "failed"
        for do in (partial(applied._end, ended), self._stack.pop_all().close, partial(self._write_summary, applied)):
            try:
                do()
            except Exception as fault:  # the rest is done all the same, and one of them is told
                faults.fail(fault)

    def _write_summary(self, applied: Applied) -> None:
        if self._out is not None and self._session is not None and applied.summary is not None:
            applied.summary.write(self._out)

    def _seat(self) -> int | None:
        """The rank of the pipeline that this process is; ``None`` where the plan is for none."""
        from wastenot.pipelines.run.plan_kind import is_pipeline_plan, ranks_of

        if not is_pipeline_plan(self._plan):
            if self._given_rank is not None:
                raise BadInputError(f"`rank` {self._given_rank}: the plan is not for a pipeline and has no ranks")
            return None
        from wastenot.pipelines.run.own_rank import pipeline_rank

        return pipeline_rank(ranks_of(self._plan), self._given_rank)

    def _begin_rank(self, seat: int) -> str:
        """Begin a session of one rank of a pipeline, which controls its own GPU."""
        from wastenot.pipelines.run.application import prepare_pipeline

        application: PipelineApplication = prepare_pipeline(
            self._plan, self._device_of_rank(), dry_run=self._dry_run, seed=self._seed + seat
        )
        for note in application.notes:
            print(f"wastenot: {note}", file=sys.stderr)
        self._session = application.session(dry_run=self._dry_run, rank=seat)
        self._stack.enter_context(self._session)
        return str(self._session.path)

    def _begin(self, seat: int | None) -> str:
        """Begin a session, or find that of this machine's first rank."""
        if seat is not None:
            return self._begin_rank(seat)
        from wastenot.control.places import runtime_folder

        local_rank, ranks = number_in_environment("LOCAL_RANK", 0), number_in_environment("LOCAL_WORLD_SIZE", 1)
        shared = f"apply-{_job()}"
        if local_rank > 0:
            return str(_wait_for(runtime_folder() / f"{shared}.sock"))
        from wastenot.control.application import prepare

        application = prepare(
            self._plan, self._devices(ranks), dry_run=self._dry_run, seed=self._seed, program=True, ranks=ranks
        )
        self._session = application.session(dry_run=self._dry_run, seed=self._seed, name=shared if ranks > 1 else None)
        self._stack.enter_context(self._session)
        return str(self._session.path)

    def _device_of_rank(self) -> tuple[str, ...] | None:
        """The GPU of this process alone; ``None`` for that of the plan."""
        torch, local_rank = sys.modules.get("torch"), number_in_environment("LOCAL_RANK", 0)
        if self._device is None and torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            return self._devices(1)
        ranks = number_in_environment("LOCAL_WORLD_SIZE", 1)
        names = self._devices(ranks) if self._device is not None else None
        if names is None or len(names) == 1:
            return names
        if local_rank >= len(names):
            raise BadInputError(f"`device`: local rank {local_rank} has none of the {len(names)} GPUs given")
        return names[local_rank : local_rank + 1]

    def _devices(self, ranks: int) -> tuple[str, ...] | None:
        from wastenot.control.application import parse_devices

        if isinstance(self._device, str):
            return parse_devices(self._device)
        if self._device is not None:
            return tuple(self._device)
        if ranks > 1:
            from wastenot.meters.devices import visible_names

            with suppress(DeviceError, MissingExtraError):  # no GPU is here: that of the plan, which may be simulated
                return visible_names()[:ranks]
            return None
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            from wastenot.devices.torch.devices import current_gpu

            name = current_gpu(torch)
            return None if name is None else (name,)
        return None


def _job() -> str:
    """What the ranks of a job have in common, and others have not."""
    parts = (os.environ.get("TORCHELASTIC_RUN_ID", ""), os.environ.get("MASTER_PORT", ""), str(os.getppid()))
    return "-".join("".join(letter for letter in part if letter.isalnum())[:16] for part in parts if part)


def _wait_for(path: Path) -> Path:
    end_s = time.monotonic() + _FIRST_RANK_S
    while time.monotonic() < end_s:
        with suppress(OSError):
            Line.to(str(path)).close()
            return path
        time.sleep(0.05)
    raise BadInputError(f"{path}: the first rank of this machine has not applied a plan within {_FIRST_RANK_S:.0f} s")

"""Drives the clocks of a pipeline's ranks on the GPUs of this machine; what a session runs, see there."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from wastenot.control.controller import Controller
from wastenot.control.driver import ClockDriver, Ended, Standing, Subject
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.rehearsed import Rehearsed
from wastenot.control.status import NOTHING_PROVED, PipelineStatus, Status
from wastenot.core.processes import number_in_environment
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.run.comparison import RankRungs, compare_ranks
from wastenot.pipelines.run.rank_execution import RankExecution
from wastenot.pipelines.run.rung_follower import RungFollower
from wastenot.pipelines.run.straggler_source import StragglerSource
from wastenot.planning.switching import SwitchTime

_REMEMBERED = 20  # iterations
_THROTTLED = 0.1  # of the time, beyond which a GPU counts as throttled

Connect = Callable[[int, Mapping[str, str]], StragglerSource | None]


def parse_instruction(marker: str) -> tuple[str, int, int | None] | None:
    """Name, micro-batch and stage of an instruction's marker; ``None`` for other markers."""
    name, *numbers = marker.split(":")
    if not 1 <= len(numbers) <= 2 or not all(each.isdecimal() for each in numbers):
        return None
    return name, int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else None


@dataclass(slots=True)
class _Gpu:
    """What is known of one GPU."""

    device: Device
    execution: RankExecution | None = None
    rank: int | None = None
    iterations: int = 0
    began_s: float | None = None
    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    follower: RungFollower | None = None
    throttled_s: float | None = None
    throttled: bool = False


class PipelineController(ClockDriver):
    """Carries out the parts of a plan that run on the GPUs of this machine.

    What they run, be it the plan or a rung of it that a server names, is guarded and proved as any plan
    (:mod:`wastenot.pipelines.run.comparison`).

    Args:
        plan: the plan.
        path: of its file, as it is told.
        gpus: of this machine.
        switching: of each GPU.
        now_s: by the GPUs' clock.
        dry_run: only pretend to set clocks.
        digest: of the plan.
        connect: finds who tells a rank that other pipelines are slow, by its environment.
        rehearsed: what takes note of a program that the GPUs do not run, as they are simulated.
    """

    def __init__(
        self,
        plan: PlanGraph,
        path: str,
        gpus: Sequence[Device],
        switching: Sequence[SwitchTime],
        *,
        now_s: float,
        dry_run: bool = False,
        digest: str = "",
        connect: Connect | None = None,
        rehearsed: Rehearsed | None = None,
    ) -> None:
        subject = Subject(path, digest, plan.plan.name, gpus[0].identity.origin)
        super().__init__(gpus, subject, now_s=now_s, dry_run=dry_run, rehearsed=rehearsed)
        self._line.due_s = math.inf  # what an instruction draws is over before a sensor shows it
        self._connect = connect
        self._plan, self._switching = plan, tuple(switching)
        self._all = [_Gpu(gpu) for gpu in gpus]
        self._marker: str | None = None
        self._refused = False
        self._world = len(gpus)  # processes of the job, as far as it is known
        self._compared: Controller | None = None
        self._compared_as: dict[int, RankRungs] = {}  # by GPU, in the order of ranks
        self._tell("started", f"a plan of {len(plan.plan.ranks)} ranks is applied")

    # ---- who runs where --------------------------------------------------------------------------------------

    def seat(self, gpu: int, rank: int, environment: Mapping[str, str] | None = None) -> None:
        """A rank of the pipeline runs on a GPU of this machine.

        Args:
            gpu: index of it.
            rank: of the pipeline.
            environment: of the program, once it has said so itself.

        Raises:
            BadInputError: the plan has no such rank.
        """
        one = self._all[gpu]
        self._world = number_in_environment("WORLD_SIZE", self._world, environment or {})
        steps = self._plan.steps(rank)
        begun = one.rank == rank and one.execution is not None and not one.execution.over
        if not begun and self._running:
            one.rank, one.iterations = rank, 0
            one.execution = RankExecution(
                one.device, steps, self._plan.period_s, self._switching[gpu], dry_run=self._dry_run
            )
            if gpu in self._compared_as:
                self._compared_as[gpu].resume(one.execution)
        if self._connect is not None and environment and one.follower is None and self._running:
            connect = self._connect
            # In a thread, as a server that does not answer must not keep clocks waiting.
            threading.Thread(target=lambda: self._listen(gpu, rank, connect(rank, environment)), daemon=True).start()

    def leave(self, gpu: int) -> None:
        """The program on a GPU has ended, or died: its clocks are given back."""
        one = self._all[gpu]
        one.began_s = None
        if one.execution is not None:
            one.execution.release(self._now_s)
        self._hang_up(one)

    def listen(self, gpu: int, rank: int, source: StragglerSource) -> None:
        """The rank on a GPU is told which of the plan's rungs to run, as other pipelines are slow."""
        self._all[gpu].follower = RungFollower(self._plan, rank, source)
        self._compared = None  # and anew from the next iteration on, of what all replicas run
        for each in self._compared_as.values():
            each.begin(0, self._now_s)
        self._compared_as.clear()

    def begins_iteration(self, gpu: int, marker: str) -> bool:
        """Whether a marker is the first of its rank's iteration."""
        execution, found = self._all[gpu].execution, parse_instruction(marker)
        return execution is not None and found is not None and execution.place(*found) == 0

    # ---- for the session -------------------------------------------------------------------------------------

    def _mark(self, marker: Marker) -> None:
        found, one = parse_instruction(marker.name), self._all[marker.gpu]
        if not self._running or found is None or one.execution is None:
            return
        self._now_s = max(self._now_s, marker.reached_s)
        self._marker = marker.name
        name, micro_batch, stage = found
        place = one.execution.place(name, micro_batch, stage)
        if place is None:
            on = "" if stage is None else f" on stage {stage}"
            self.refuse(
                f"rank {one.rank} runs {name} of micro-batch {micro_batch}{on}, which is not in the plan", self._now_s
            )
            return
        if self.rehearsed is not None:
            self.rehearsed.reached(name, marker.gpu, marker.reached_s, begins=place == 0)
        if one.follower is not None:
            iteration = one.iterations - (place != 0)
            ranks = self._compared_as.get(marker.gpu)
            one.follower.mark(
                one.execution, place, iteration, marker.reached_s, "throttled" if one.throttled else None, self._compared,
                at_default=ranks is not None and ranks.rung > 0,
            )  # fmt: skip
        if place == 0 and self._compared is None and self._may_compare(one):
            self._compare()
        if place == 0 and self._compared is not None:
            order = list(self._compared_as)
            self._compared.mark(Marker(ITERATION, one.iterations, marker.reached_s, order.index(marker.gpu)))
        if place == 0:
            if one.began_s is not None:
                one.took_s.append(marker.reached_s - one.began_s)
            one.began_s = marker.reached_s
            one.iterations += 1
        one.execution.begin(place, marker.reached_s)

    def due_s(self) -> float | None:
        """Likewise of what compares."""
        due_s = super().due_s()
        other_s = None if self._compared is None else self._compared.due_s()
        return due_s if due_s is None or other_s is None else min(due_s, other_s)

    def act(self, now_s: float) -> None:
        """Do what is due: requests first, and what compares last."""
        super().act(now_s)
        if self._compared is not None and not self._over:
            self._compared.act(now_s)

    def status(self) -> Status:
        """What is known now, with what was seen in comparing."""
        status = super().status()
        if self._compared is None:
            return status
        seen = (each for each in self._compared.status().events if each.kind not in ("started", "stopped", "ended"))
        events = sorted((*status.events, *seen), key=lambda each: each.at_s)
        return status.model_copy(update={"events": tuple(events)})

    def _requests_due_s(self) -> float:
        return min((one.execution.due_s for one in self._all if one.execution is not None), default=math.inf)

    def _request(self, now_s: float) -> float:
        for one in self._all:
            if one.execution is not None:
                one.execution.act(now_s)
        return math.inf

    def hold(self, now_s: float) -> None:
        """No instruction was told for long: nothing is set."""
        self._now_s = max(self._now_s, now_s)
        self._tell("note", "no instruction has been marked yet: call applied.instruction() in the program; nothing is set")

    def refuse(self, why: str, now_s: float) -> None:
        """Go back to the default clocks for good."""
        if not self._running:
            return
        self._refused = True
        self._release(now_s)
        if self.rehearsed is not None:
            self.rehearsed.refused(f"this is not the plan's pipeline: {why}")
        self._tell("refused", f"this is not the plan's pipeline: {why}; the default clocks stay")

    def _standing(self) -> Standing:
        plan, ranks = self._plan.plan, [one.rank for one in self._all]
        took_s = [each for one in self._all for each in one.took_s]
        done = max(one.iterations for one in self._all)
        compared = None if self._compared is None else self._compared.status()
        return Standing(
            max_slowdown=max(plan.max_slowdown or 0.0, 0.0),
            iteration=done - 1 if done else None,
            marker=self._marker,
            at_default=self._refused or (compared is not None and compared.at_default),
            rung=compared.rung
            if compared is not None
            else next((one.follower.rung for one in self._all if one.follower is not None and one.follower.rung), 0),
            rungs=max(len(plan.rungs), 1) if compared is None else compared.rungs,
            predicted_time_change=plan.predicted.time_s / plan.baseline.time_s - 1.0,
            predicted_energy_change=plan.predicted.energy_j / plan.baseline.energy_j - 1.0,
            proof=NOTHING_PROVED.model_copy(update={"plan_iterations": done}) if compared is None else compared.proof,
            pipeline=PipelineStatus(
                ranks=tuple(ranks),
                iteration_s=median(took_s) if took_s else None,
                planned_s=self._plan.period_s,
                out_of_order=sum(one.execution.out_of_order for one in self._all if one.execution is not None),
                requests=self._requests(),
            ),
        )  # fmt: skip

    def _give_back(self, ended: Ended) -> Ended:
        if self._compared is not None:
            ended = self._compared.end(self._now_s, ended=ended).ended
        self._release(self._now_s)
        return "refused" if self._refused else ended

    def _target_of(self, gpu: int) -> Setting:
        execution = self._all[gpu].execution
        return AUTO if execution is None else execution.target

    def _requests(self) -> int:
        return sum(one.execution.requests for one in self._all if one.execution is not None)

    # ---- inside ----------------------------------------------------------------------------------------------

    @property
    def _running(self) -> bool:
        return not (self._over or self._refused)

    def _may_compare(self, one: _Gpu) -> bool:
        """Whether it is known who runs on all GPUs, and the first rank here begins an iteration after its first."""
        if self.rehearsed is not None or self._dry_run or any(each.rank is None for each in self._all):
            return False
        return one.iterations > 0 and one is self._all[self._order()[0]]

    def _order(self) -> list[int]:
        """The GPUs in the order of their ranks."""
        return sorted(range(len(self._all)), key=lambda gpu: self._all[gpu].rank or 0)

    def _compare(self) -> None:
        """Compare with the default clocks from now on."""
        order = self._order()
        ranks = {
            gpu: RankRungs(execution, self._plan, self._all[gpu].rank or 0, self._all[gpu].follower)
            for gpu in order
            if (execution := self._all[gpu].execution) is not None
        }
        gpus = [self.gpus[gpu] for gpu in ranks]
        follows = any(each.follower is not None for each in self._all)
        every = {each.rank for each in self._all} == set(range(len(self._plan.plan.ranks)))
        compared = compare_ranks(
            self._plan, list(ranks.values()), gpus, self.subject, self._switching[order[0]], self._began_s,
            together=follows or not every or self._world > len(self._all), waits=follows,
        )  # fmt: skip
        if compared is not None:
            self._compared, self._compared_as = compared, ranks

    def _listen(self, gpu: int, rank: int, source: StragglerSource | None) -> None:
        if source is None:
            return
        one = self._all[gpu]
        if self._running and one.rank == rank:
            self.listen(gpu, rank, source)
        else:
            source.close()

    @staticmethod
    def _hang_up(one: _Gpu) -> None:
        if one.follower is not None:
            one.follower.close()
            one.follower = None

    def _release(self, now_s: float) -> None:
        for one in self._all:
            if one.execution is not None:
                one.execution.release(now_s)
            self._hang_up(one)

    def _read_sensors(self, now_s: float) -> None:
        super()._read_sensors(now_s)
        for one, edges in zip(self._all, self._edges, strict=True):
            edges.look()
            throttled_s = one.device.sensors.throttled_s()
            if throttled_s is not None:
                one.throttled = (
                    one.throttled_s is not None and throttled_s > one.throttled_s + _THROTTLED * self.sensors_each_s
                )
                one.throttled_s = throttled_s

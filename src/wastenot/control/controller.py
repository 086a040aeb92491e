"""Applies a plan to a running job: carries out its schedule, stays within the slowdown limit, proves the saving.

A job begins at the default clocks, until its iterations are steady and known to be the plan's. Then stretches at the plan's
clocks alternate with blocks at the default clocks (:mod:`wastenot.control.blocks`).
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from statistics import median_high
from typing import Literal

from wastenot.control.blocks import LATE, LEAST_ITERATIONS, MOST_PAUSES, PAUSE, SKIPPED, UNSTEADY, Lengths, Stretch, alike
from wastenot.control.driver import ClockDriver, Ended, Standing, Subject
from wastenot.control.energy_edges import Edge
from wastenot.control.estimate import log_mean
from wastenot.control.execution import Execution, RungExecution
from wastenot.control.fitting import why_other_iterations
from wastenot.control.guard import Alarm, Guard
from wastenot.control.ladder import Ladder
from wastenot.control.ledger import Ledger
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.rehearsed import Rehearsed
from wastenot.control.slack import Slack
from wastenot.control.status import NOTHING_PROVED, Instant, Moment, Proof
from wastenot.control.time_line import CloseUp
from wastenot.control.traffic import Traffic
from wastenot.core.errors import DeviceError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Device
from wastenot.pages.formatting import change
from wastenot.planning.schedule import Schedule

_DEFAULT_SHARE = 0.03  # of iterations that run at the default clocks for comparison in the long run
_JUDGED = 16  # iterations, before which a job is not refused
_DRIFTED = 0.03  # change of an iteration's time at the default clocks that is worth telling
_CHECKED = 30  # iterations for which a look at the default clocks after an alarm counts
_SMALL = 0.02  # change of a GPU's clocks that leaves what was compared before comparable
_ALL_BEGIN = 40  # iteration from which on all of a job alternate together: any job is as steady as it gets by then
_ALL_READ_S = 0.1  # assumed between steps of the energy counter, where all must assume the same
_ALL_LEAST = 8  # iterations of their stretches: with 1 % of noise their mean is known to 0.6 %


class Controller(ClockDriver):
    """Carries out a schedule on the GPUs of a job.

    Args:
        schedule: of the plan.
        gpus: that the job runs on, in the order that markers count them.
        subject: what is applied.
        now_s, dry_run, traffic, before: as of :class:`ClockDriver`.
        seed: of the order of blocks.
        rehearsed: what takes note of a program that the GPUs do not run: its times say nothing of the plan's clocks, so that
            nothing is compared, guarded or refused by them.
        executions: what carries out the schedule's rungs on each GPU; by default requests of its segments.
        together: whether other processes run the same plan on other GPUs of the job, as in :meth:`_next_cycle`.

    Attributes:
        together: likewise; a program says so once it has begun.

    Raises:
        BadInputError: no GPU is given.
    """

    sensors_each_s = 0.5

    def __init__(
        self,
        schedule: Schedule,
        gpus: Sequence[Device],
        subject: Subject,
        *,
        now_s: float = 0.0,
        seed: int = 0,
        dry_run: bool = False,
        rehearsed: Rehearsed | None = None,
        traffic: Traffic | None = None,
        before: ClockDriver | None = None,
        executions: Sequence[RungExecution] | None = None,
        together: bool = False,
    ) -> None:
        super().__init__(gpus, subject, now_s=now_s, dry_run=dry_run, rehearsed=rehearsed, traffic=traffic, before=before)
        self.schedule = schedule
        self.of_units = False
        """Whether the plan was made of units of traffic, so that its iterations are not those of the job."""
        self.waits = False
        """Whether the job may wait for others that are slow, so that its iterations may take longer than the plan's."""
        self._rng = random.Random(seed)
        own = [] if executions else [Execution(gpu, schedule, dry_run=dry_run) for gpu in gpus]
        self._executions: Sequence[RungExecution] = executions or own
        memory = {segment.memory_mhz for rung in schedule.rungs for segment in rung.segments}
        memory_s = schedule.switching.memory_s if len(memory) > 1 else 0.0
        self._lengths = Lengths(LATE * max(schedule.switching.core_s, memory_s), _DEFAULT_SHARE)
        self._ledger = Ledger(schedule.switching.core_s, self.traffic)
        self._restrict()
        self._close_up = CloseUp()
        self._may_wait = own
        self._slack = Slack(len(own)) if len(own) > 1 and rehearsed is None else None
        self.together, self._cycles = together, 0
        self._all_begin = _ALL_BEGIN  # iteration from which on all alternate together
        self._stretch: Stretch | None = None
        self._since = 0  # iteration with which the stretch began
        self._coming: deque[Stretch] = deque()
        self._alarm: Alarm | None = None
        self._checked: int | None = None  # iteration of the latest block after an alarm
        self._shifting = False  # whether iterations are nothing like what they were
        self._block: Stretch | None = None  # at the default clocks, that has just ended
        self._first_times_s: list[float] = []
        self._iteration: int | None = None
        self._iteration_s: float | None = None  # moment
        self._usual_s = 0.0  # of an iteration, whatever the clocks
        self._pauses = 0
        self._marker: str | None = None
        self._passes: dict[int, list[float]] = {}  # moments of markers after their iteration's begin, at the default clocks
        self._drifted_from_s: float | None = None
        self._marked = [False] * len(gpus)
        self._state: Literal["starting", "holding", "running", "idle", "refused"] = "starting"
        expected = f"energy {change(schedule.rungs[0].energy_change, 1)} expected"
        self._tell("started", f"{subject.plan}: {expected if rehearsed is None else 'rehearsal'}")

    # ---- what drives it --------------------------------------------------------------------------------------

    def _mark(self, marker: Marker) -> None:
        gpu, reached_s = marker.gpu, marker.reached_s
        self._now_s = max(self._now_s, reached_s)
        if gpu == 0:
            self._marker = marker.name
        if self.rehearsed is not None:
            self.rehearsed.reached(marker.name, gpu, reached_s, begins=marker.name == ITERATION)
        if self._slack is not None:
            self._slack.mark(marker)
        execution = self._executions[gpu]
        place = execution.place(marker.name)
        if place is None:
            return
        self._marked[gpu] = True
        execution.mark(place, marker.iteration, reached_s)
        if gpu != 0:
            return
        for index in range(1, len(self._executions)):
            if not self._marked[index]:  # it says nothing by itself, and runs along
                self._executions[index].mark(place, marker.iteration, reached_s)
        if place == 0:
            self._begin_iteration(marker.iteration, reached_s)
        elif self._state == "starting" and self._iteration_s is not None:
            self._passes.setdefault(place, []).append(reached_s - self._iteration_s)
        self._close_up.marker(reached_s - self._began_s, marker.name, execution.target, at_default=self._at_default)

    def _requests_due_s(self) -> float:
        return min(execution.due_s for execution in self._executions)

    def _request(self, now_s: float) -> float:
        next_s = math.inf
        for execution in self._executions:
            while execution.act(now_s):
                if execution is self._executions[0]:
                    self._close_up.request(now_s - self._began_s, execution.target, at_default=self._at_default)
            next_s = min(next_s, execution.due_s)
        return next_s

    def hold(self, now_s: float) -> None:
        """Go by no iterations, since none are told: a plan of one setting is guarded by proxy, or kept unguarded.

        Of other plans nothing is set. Where iterations come after all, it begins with them as usual.
        """
        if self._state != "starting" or self._iteration is not None:
            return
        self._now_s = max(self._now_s, now_s)
        segments = [segment for rung in self.schedule.rungs for segment in rung.segments]
        why = ""
        if len(segments) > len(self.schedule.rungs) or any(each.memory_mhz is not None for each in segments):
            why = "only plans of core clocks and power limits for whole iterations can be guarded by memory traffic"
        self._by_proxy(self.schedule.max_slowdown, now_s, why)

    def _restrict(self) -> None:
        error = 0.0 if self.proxy is None else self.proxy.error
        self._guard = Guard(self.schedule.max_slowdown, error)
        self._ladder = Ladder(self.schedule.rungs, math.expm1(self._guard.limit))
        self._ledger.error = error

    def _start_over(self, now_s: float) -> None:
        if self._state in ("idle", "refused"):
            return
        self._ledger.begin_anew()
        self._restrict()
        self._state, self._stretch, self._block, self._alarm, self._checked = "starting", None, None, None, None
        self._iteration = self._iteration_s = None
        self._pauses, self._shifting, self._all_begin = 0, False, _ALL_BEGIN
        self._coming.clear()
        self._first_times_s.clear()
        self._passes.clear()
        for execution in self._executions:
            execution.begin(self._default_rung, now_s)

    def _unguarded(self, why: str, now_s: float) -> None:
        if self._state in ("idle", "refused"):
            return
        if len(self.schedule.rungs[0].segments) > 1:
            self._tell(
                "note", "no iterations were seen, and the plan changes clocks within an iteration: the default clocks stay"
            )
            return
        self._state = "holding"
        for execution in self._executions:
            execution.begin(0, now_s)
        self._tell(
            "note",
            "no iterations were seen: the plan's setting stays applied, but the slowdown is not guarded and no saving is "
            f"proved: {why}",
        )

    def refuse(self, why: str, now_s: float) -> None:
        """Go back to the default clocks for good, as what runs is not the plan's workload."""
        if self._state in ("starting", "holding", "running", "idle"):
            self._now_s = max(self._now_s, now_s)
            self._refuse(why, now_s)

    def _standing(self) -> Standing:
        rung = self.schedule.rungs[0]
        self._ledger.settle()
        return Standing(
            max_slowdown=self.schedule.max_slowdown,
            iteration=self._iteration,
            marker=self._marker,
            at_default=self._at_default,
            rung=self._rung,
            rungs=len(self.schedule.rungs),
            predicted_time_change=rung.time_change,
            predicted_energy_change=rung.energy_change,
            proof=self._proof(),
        )

    def _proof(self) -> Proof:
        if self.rehearsed is None:
            return self._ledger.proof(self._rung, self._running_j())
        counts = {"plan_iterations": self._ledger.plan_iterations, "default_iterations": self._ledger.default_iterations}
        return NOTHING_PROVED.model_copy(update=counts)

    def _give_back(self, ended: Ended) -> Ended:
        for edges in self._edges:
            with suppress(DeviceError):  # whatever happened to the GPU, the end is told
                edges.look()
        for execution in self._executions:
            execution.release(self._now_s)
        self._finish_stretch()
        return "refused" if self._state == "refused" else ended

    @property
    def _rung(self) -> int:
        return self._ladder.present

    @property
    def _default_rung(self) -> int:
        return self._ladder.last

    @property
    def _together(self) -> bool:
        """Whether iterations are counted that all processes have in common."""
        return self.together and self.rehearsed is None and self.units is None

    # ---- iterations ------------------------------------------------------------------------------------------

    @property
    def _at_default(self) -> bool:
        if self._state == "holding":
            return False
        return self._state != "running" or self._stretch is None or self._stretch.default

    @property
    def _at_plan(self) -> bool:
        """Whether what runs is settled at the plan's clocks, or those of another rung but the last."""
        stretch = self._stretch
        return stretch is not None and not stretch.default and stretch.part != "settle" and self._rung != self._default_rung

    def _begin_iteration(self, iteration: int, reached_s: float) -> None:
        before, before_s = self._iteration, self._iteration_s
        if before is not None and iteration < before:  # the job was started again
            self._since = iteration
            if self._together:
                self._start_over(reached_s)
                before = None
        self._iteration, self._iteration_s = iteration, reached_s
        if self._state == "holding":
            self._state = "starting"
            for execution in self._executions:
                execution.begin(self._default_rung, reached_s)
        if before is None or before_s is None:
            return
        took_s = reached_s - before_s
        if iteration != before + 1 or took_s <= 0.0:
            if self._stretch is not None:
                self._stretch.spoiled = True
        elif self._state == "starting":
            self._start(took_s, reached_s)
        elif self._state == "running":
            self._count(took_s, reached_s)
        while self._stretch is not None and iteration - self._since >= self._stretch.iterations:
            self._next_stretch(reached_s)
        if self._slack is not None:
            self._slack.counted = iteration if self._state == "running" and self._at_plan else None

    def _start(self, took_s: float, now_s: float) -> None:
        """At the default clocks, until iterations are steady."""
        self._first_times_s.append(took_s)
        seen = self._first_times_s[SKIPPED:]
        if len(seen) > 1:
            self._guard.noise.learn(seen[-2], seen[-1])
        if self._dry_run or len(seen) < LEAST_ITERATIONS or (self._together and (self._iteration or 0) < self._all_begin):
            return
        if self.rehearsed is not None:
            self._usual_s = median_high(seen)
            self._run(now_s)
            return
        latest, judged = seen[-LEAST_ITERATIONS:], seen[-UNSTEADY:]
        if not alike(latest):
            if len(seen) < UNSTEADY:
                return
            latest = judged
        self._usual_s = median_high(latest)
        checked = not (self.of_units or self.waits) and self.proxy is None
        if checked and self._why_other(self._usual_s) is not None:
            # A few that resemble each other may be those of a start, or of a machine that was busy meanwhile.
            if len(seen) >= _JUDGED and (why := self._why_other(median_high(judged))) is not None:
                self._refuse(why, now_s)
            return
        enough = self._guard.enough(UNSTEADY)
        if len(seen) < enough:
            return
        known = UNSTEADY if self._together else max(enough, LEAST_ITERATIONS)
        first_s = [each for each in seen[-known:] if each <= PAUSE * self._usual_s]
        self._guard.reference(first_s)
        self._drifted_from_s = math.exp(self._guard.log_s(first_s))
        self._run(now_s)

    def _run(self, now_s: float) -> None:
        """Begin with the plan's clocks."""
        if self._ladder.at_default:
            self._tell("note", "the plan leaves everything at the default clocks: there is nothing to do")
            self._state = "idle"
            return
        self._state, self._since, self._cycles = "running", self._all_begin, 0
        self._next_cycle(now_s)

    def _count(self, took_s: float, now_s: float) -> None:
        """An iteration has ended while the plan is at work."""
        stretch = self._stretch
        assert stretch is not None
        if self.rehearsed is not None:
            stretch.times_s.append(took_s)
            return
        if took_s > PAUSE * self._usual_s and self._pauses < MOST_PAUSES:
            self._pauses += 1
            self._since += not self._together  # for all, only the number of an iteration counts
            stretch.spoiled = True
            return
        if self._pauses >= MOST_PAUSES and took_s > PAUSE * self._usual_s:
            self._shifted(took_s, now_s)
            return
        self._pauses = 0
        self._usual_s += 0.1 * (took_s - self._usual_s)
        times_s = stretch.times_s
        if times_s and stretch.measured:
            self._guard.noise.learn(times_s[-1], took_s)
        times_s.append(took_s)
        if self._at_plan and self._alarm is None:
            if self._use_slack(took_s):
                if self._together:
                    stretch.spoiled = True
                else:
                    self._cut_short(now_s)
                return
            alarm = self._guard.watch(took_s)
            just_checked = self._checked is not None and (self._iteration or 0) - self._checked < _CHECKED
            if alarm is not None and not just_checked and (alarm.sure or not self._together):
                self._alarm = alarm
                self._check_at_default(now_s)
                return
            if alarm is not None and alarm.sure:
                self._step(alarm.excess)
                self._cut_short(now_s)

    def _shifted(self, took_s: float, now_s: float) -> None:
        """Iterations take much longer than they did, again and again."""
        self._pauses = 0
        self._usual_s = took_s
        self._tell("drift", f"iterations now take {took_s:.3g} s: comparing with the default clocks again")
        self._shifting = True
        self._check_at_default(now_s)

    # ---- stretches -------------------------------------------------------------------------------------------

    def _next_cycle(self, now_s: float) -> None:
        """Begin another cycle.

        Where other processes run the plan on other GPUs of the job, all are at the default clocks in the same iterations
        without telling each other: how long stretches are follows from the plan and the number of the iteration alone.
        """
        pairs, rng, least = len(self._ledger.time_pairs(self._rung)), self._rng, self._guard.enough()
        iteration_s = self._usual_s
        period_s = max(edges.period_s for edges in self._edges)
        if self._together:
            pairs, iteration_s, period_s = self._cycles, self.schedule.rungs[-1].time_s, _ALL_READ_S
            rng, least = random.Random(pairs), _ALL_LEAST
            self._cycles += 1
        self._coming = deque(self._lengths.cycle(self._rung, self._default_rung, pairs, iteration_s, period_s, rng, least))
        self._next_stretch(now_s)

    def _next_stretch(self, now_s: float) -> None:
        """End the stretch that runs, and begin the one that follows."""
        ended = self._finish_stretch(now_s)
        if ended is not None:
            self._since += ended.iterations
        if ended is not None and not ended.default:
            self._ladder.ran(len(ended.times_s))
        # A block is followed by iterations that rest: when they have ended, its energy and that before it are known.
        if ended is not None and ended.part == "block":
            self._block = ended
        if self._block is not None and not self._coming:
            block, self._block = self._block, None
            self._after_block(block)
        if not self._coming:
            self._next_cycle(now_s)
            return
        before, self._stretch = ended, self._coming.popleft()
        if not self._together:
            self._since = self._iteration or 0
        self._stretch.begin = self._edge(now_s)
        arm = self._default_rung if self._stretch.default else self._stretch.rung
        if before is None or before.rung != arm:
            for execution in self._executions:
                execution.begin(arm, now_s)

    def _finish_stretch(self, now_s: float | None = None) -> Stretch | None:
        stretch, so_far_j = self._stretch, self._running_j()
        self._stretch = None
        if stretch is None or not stretch.times_s:
            return stretch
        stretch.so_far_j = so_far_j
        if now_s is None:
            stretch.spoiled = True  # it ended amid an iteration
            stretch.end = [Edge(self._now_s, edges.latest_j or math.nan) for edges in self._edges]
        else:
            stretch.end = self._edge(now_s)
        self._ledger.add(stretch)
        return stretch

    def _edge(self, now_s: float) -> list[Edge]:
        """Ask for the energy at a moment, of every GPU; those of two stretches that meet are one."""
        return [edges.add(now_s) for edges in self._edges]

    def _running_j(self) -> float:
        """Energy used so far in a stretch at the plan's clocks that runs."""
        stretch = self._stretch
        if stretch is None or stretch.default or not stretch.measured:
            return 0.0
        used_j = [
            (edges.latest_j or math.nan) - (edge.energy_j or math.nan)
            for edges, edge in zip(self._edges, stretch.begin, strict=True)
        ]
        total_j = math.fsum(used_j)
        return total_j if total_j > 0.0 else 0.0

    # ---- guard -----------------------------------------------------------------------------------------------

    def _cut_short(self, now_s: float) -> None:
        """End the stretch that runs, and begin a cycle at the rung that is present now."""
        if self._together:
            self._fall_back(now_s)
            return
        self._coming.clear()
        self._next_stretch(now_s)

    def _check_at_default(self, now_s: float) -> None:
        if self._stretch is not None and not self._stretch.default:
            self._stretch.spoiled = True
        if self._together:
            self._fall_back(now_s)
            return
        measured = max(LEAST_ITERATIONS, self._guard.enough())
        self._coming = self._look(self._lengths.settling(self._usual_s), measured)
        self._next_stretch(now_s)

    def _fall_back(self, now_s: float) -> None:
        """Run at the default clocks until all others do as well, which shows whether the plan's are to blame.

        That slows nobody down, whatever the others run; what only some GPUs run says nothing of the default clocks. As it
        may take long, a suspicion is not enough for it, but is for a step at the end of a block (:meth:`_after_block`).
        """
        stretch = self._stretch
        assert stretch is not None and self._iteration is not None
        if stretch.default:
            stretch.times_s.clear()  # it began before whatever has happened
            return
        ran = self._iteration - self._since
        left, stretch.iterations = stretch.iterations - ran, ran
        while self._coming and not self._coming[0].default:
            left += self._coming.popleft().iterations
        self._coming.appendleft(Stretch("rest", self._default_rung, True, left))
        self._next_stretch(now_s)

    @property
    def suspects(self) -> bool:
        """Whether iterations seem too slow, and the next block, which would tell, is still to come."""
        return self._alarm is not None and self._stretch is not None and self._stretch.part == "rest"

    def begin_together(self, iteration: int) -> None:
        """Begin again in an iteration, as all other processes do, with a block at the default clocks; once for each."""
        if iteration <= self._all_begin or not self._together:
            return
        self._all_begin, self._cycles = iteration, 0
        if self._stretch is None:
            return
        iteration_s = self.schedule.rungs[-1].time_s
        self._stretch.iterations, self._stretch.spoiled = iteration - self._since, True
        measured = self._lengths.measured(iteration_s, _ALL_READ_S, _ALL_LEAST)
        self._coming = self._look(self._lengths.settling(iteration_s), measured)

    def _look(self, settle: int, measured: int) -> deque[Stretch]:
        return deque(
            [Stretch("settle", self._default_rung, True, settle), Stretch("block", self._default_rung, True, measured)]
        )

    def replanned(self) -> None:
        """Rung 0 is another plan from now on: what was compared, and stepped from, is not what runs."""
        if self._stretch is not None:
            self._stretch.spoiled = True
        self._ladder.present = 0
        self._begin_anew()

    def _after_block(self, block: Stretch) -> None:
        """What a block at the default clocks says."""
        guard, alarm = self._guard, self._alarm
        self._alarm = None
        if not block.times_s or self.rehearsed is not None:
            return
        shifted = guard.slower_too(alarm, block.times_s) if alarm is not None else guard.changed(block.times_s)
        guard.reference(block.times_s, anew=shifted or self._shifting)
        self._drift(math.exp(guard.log_s(block.times_s)), shifted or self._shifting)
        self._shifting = False
        if alarm is not None:
            self._checked = self._iteration
        again = guard.look()
        if again is not None and (self._together or (alarm is not None and again.sure)):
            self._step(again.excess)
        elif alarm is None:
            self._ledger.settle()
            excess = guard.exceeds(self._ledger.time_pairs(self._rung))
            if excess is not None:
                self._step(excess)
            else:
                self._step_back()

    def _step(self, excess: float) -> None:
        """Step towards speed."""
        if self._give_up_slack():
            return
        slowdown, limit = math.expm1(self._guard.limit + excess), math.expm1(self._guard.limit)
        self._ladder.step(slowdown)
        self._tell("stepped", f"iterations take {slowdown:+.1%}, more than {limit:.1%}: moving to {self._rung_name()}")
        self._begin_anew()

    def _step_back(self) -> None:
        """Step back towards saving, where there has been room for long."""
        pairs = self._ledger.time_pairs(self._rung)
        time = log_mean(pairs)
        slowdown = None if time is None else math.expm1(time.mean + time.half)
        if self._ladder.back(slowdown, len(pairs)):
            self._tell("stepped", f"there has been time to spare for a while: back to {self._rung_name()}")
            self._begin_anew()

    def _use_slack(self, took_s: float) -> bool:
        """Lower the clocks of GPUs that wait for others, after an iteration at the plan's; returns whether any changed."""
        if self._slack is None:
            return False
        wanted = self._slack.decide(took_s, [execution.lowered for execution in self._may_wait])
        return wanted is not None and self._lower(wanted)

    def _give_up_slack(self) -> bool:
        """Raise all clocks to the plan's, where any is lower: iterations are too slow; returns whether any was."""
        if self._slack is None or all(execution.lowered == 1.0 for execution in self._may_wait):
            return False
        return self._lower(self._slack.given_up())

    def _lower(self, fractions: Sequence[float]) -> bool:
        """Have GPUs run at fractions of the plan's clocks from now on; returns whether any changed."""
        assert self._slack is not None
        before = [execution.lowered for execution in self._may_wait]
        lowered = [execution.lower(each) for execution, each in zip(self._may_wait, fractions, strict=True)]
        if lowered == before:
            return False
        for execution in self._may_wait:
            execution.begin(execution.rung, self._now_s)
        self._slack.restart()
        self._guard.restart()
        if max(abs(now - then) for now, then in zip(lowered, before, strict=True)) > _SMALL:
            lower = [f"GPU {index} by {1.0 - each:.0%}" for index, each in enumerate(lowered) if each < 1.0]
            self._tell("note", f"core clocks lowered where GPUs wait for the slowest: {', '.join(lower) or 'not any more'}")
            self._ledger.begin_anew()
        return True

    def _begin_anew(self) -> None:
        """What was compared so far is not what runs now."""
        if self._slack is not None:
            self._slack.forget()
        self._ledger.begin_anew()
        self._guard.restart()
        self._checked = None

    def _rung_name(self) -> str:
        if self._ladder.at_default:
            return "the default clocks"
        return "the plan's own clocks" if self._rung == 0 else f"rung {self._rung} of {self._default_rung}"

    def _drift(self, default_s: float, shifted: bool) -> None:
        """Tell of iterations that are not what they were."""
        first_s = self._drifted_from_s
        if shifted:
            self._begin_anew()
        if first_s is None or abs(default_s / first_s - 1.0) < _DRIFTED:
            return
        self._drifted_from_s = default_s
        self._tell("drift", f"iterations at the default clocks take {default_s / first_s - 1.0:+.1%}: other data or shapes?")
        if not shifted:
            self._begin_anew()

    def _why_other(self, iteration_s: float) -> str | None:
        """Why what runs is not the plan's workload; ``None`` where it may be."""
        return why_other_iterations(self.schedule, iteration_s, self._passes)

    def _refuse(self, why: str, now_s: float) -> None:
        self._state = "refused"
        self._stretch = None
        self._coming.clear()
        for execution in self._executions:
            execution.release(now_s)
        self._tell("refused", f"this is not the plan's workload: {why}; the default clocks stay")

    # ---- what is told ----------------------------------------------------------------------------------------

    def _read_sensors(self, now_s: float) -> None:
        super()._read_sensors(now_s)
        for edges in self._edges:
            edges.look()
        read_c = [each for latest in self._readings if (each := latest["temperature_c"]) is not None]
        if self._stretch is not None and read_c:
            self._stretch.temperatures_c.append(math.fsum(read_c) / len(read_c))
        self._ledger.settle()

    def _moment(self, now_s: float) -> Moment:
        proof = self._proof()
        now = {
            "marker": self._marker,
            "at_default": self._at_default,
            "rung": self._rung,
            "saved_j": None if proof.saved_j is None else proof.saved_j.value,
            "time_change": proof.time_change,
            "energy_change": proof.energy_change,
        }
        return super()._moment(now_s).model_copy(update=now)

    def _instants(self) -> tuple[Instant, ...]:
        return self._close_up.instants()

    def _target_of(self, gpu: int) -> Setting:
        return self._executions[gpu].target

    def _requests(self) -> int:
        return sum(execution.requests for execution in self._executions)

"""Finds a setting for a running job by trying a few of them on it, and then holds the best as a plan would be.

    job       ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮
    setting   default │ A │ B │ default │ D │ C │ default │  …  │ best, with blocks at the default clocks now and then
              └──────── a group ────────┘

Every group of one or two settings, in random order, stands between two stretches at the default clocks that it is compared
with; stretches begin and end with iterations. A change is requested shortly after a stretch has ended, once its energy is
known, and the first iterations after it do not count. A setting at which iterations take longer than allowed is abandoned
after a few of them. Which settings are tried, and when it is enough, is up to :mod:`wastenot.control.setting_search`. Then a
:class:`~wastenot.control.controller.Controller` takes over, with guard and proof.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from wastenot.control.blocks import MOST_PAUSES, PAUSE, STEPS, Lengths, Stretch
from wastenot.control.candidates import Ladder, ladders_of
from wastenot.control.controller import Controller
from wastenot.control.driver import Ended, Subject
from wastenot.control.estimate import LogMean
from wastenot.control.guard import Alarm, Guard
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.one_setting import Change, one_setting
from wastenot.control.rehearsed import Rehearsed
from wastenot.control.setting_search import Candidate, SettingSearch
from wastenot.control.status import Estimate, Outcome, Status, Summary, Trial, Tuning
from wastenot.control.told_frontier import tell_frontier
from wastenot.control.traffic import Traffic
from wastenot.control.trial_driver import TrialDriver
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.pages.formatting import change, percent
from wastenot.planning.schedule import Schedule
from wastenot.planning.switching import SwitchTime

_MOST_UNKNOWN = 10  # stretches at the default clocks in a row that say nothing
_CHANGED = 0.05  # by which iterations before and after a group may differ, for it to count
_MOST_MOMENTS = 4000  # of a time line
_DEFAULT = -1  # in place of a candidate's index


class Tuner(TrialDriver):
    """Tries settings on the GPUs of a job, and holds the best.

    Args:
        gpus: that the job runs on, in the order that markers count them; all get the same settings.
        subject: what runs.
        max_slowdown: to keep.
        ladders: settings to choose from; by default core clocks and power limits.
        tolerance: fraction of energy within which the best has to be known.
        budget_s: time after which the best that is known is held.
        switching: how long the GPUs take to switch; by default what is known of the first.
        now_s, process, started_unix_s, traffic: as of :class:`ClockDriver`.
        seed: of the order of trials.
        dry_run: follow the job, and try nothing.
        rehearsed: what takes note of a program that the GPUs do not run: settings are tried on it, and none is the best.

    Raises:
        BadInputError: no GPU is given, or a number makes no sense.
        ClocksRefusedError: the GPUs report nothing that could be tried.
    """

    def __init__(
        self,
        gpus: Sequence[Device],
        subject: Subject,
        max_slowdown: float = 0.0,
        *,
        ladders: Sequence[Ladder] | None = None,
        tolerance: float = 0.005,
        budget_s: float = 3600.0,
        switching: SwitchTime | None = None,
        now_s: float = 0.0,
        seed: int = 0,
        process: int | None = None,
        started_unix_s: float | None = None,
        dry_run: bool = False,
        rehearsed: Rehearsed | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        if not 0.0 <= max_slowdown < 1.0:
            raise BadInputError(f"`max_slowdown` {max_slowdown:g}: must be at least 0 and below 1, such as 0.02")
        if not 0.0 < tolerance < 1.0:
            raise BadInputError(f"`tolerance` {tolerance:g}: must be above 0 and below 1, such as 0.005")
        if not 0.0 < budget_s < math.inf:
            raise BadInputError(f"`budget_s` {budget_s:g}: must be a number of seconds above 0")
        search = SettingSearch(ladders_of(gpus) if ladders is None else ladders, max_slowdown, tolerance, seed)
        super().__init__(
            gpus, subject, max_slowdown, [setting for each in search.ladders for setting in each.settings],
            Guard(max_slowdown), switching, now_s, dry_run=dry_run, process=process, started_unix_s=started_unix_s,
            rehearsed=rehearsed, traffic=traffic,
        )  # fmt: skip
        self.search = search
        self.controller: Controller | None = None
        self._budget_s, self._seed = budget_s, seed
        self._lengths = Lengths(self._settle_s, 1.0)
        self._held_s = 0.0
        self._unknown = 0
        self._group: list[Stretch] = []  # stretches that count, the default clocks before and after among them
        self._coming: deque[Stretch] = deque()
        self._alarm: tuple[Candidate, Alarm] | None = None
        self._default_time_s: list[float] = []
        self._default_energy_j: list[float] = []
        self._tell("started", f"{subject.workload}: looking for a setting at most {percent(max_slowdown, 1)} slower")

    # ---- what drives it --------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the search has ended: the best setting is held, or the default clocks are."""
        return self._over or self._state not in ("starting", "tuning")

    def mark(self, marker: Marker) -> None:
        """Take note of what the job has reached."""
        self._hooked(marker.reached_s)
        self._mark(marker)

    def mark_unit(self, count: int, moment_s: float) -> None:
        """Take note of the end of a unit of traffic."""
        if self.controller is not None:
            self.controller.mark_unit(count, moment_s)
        else:
            self._mark(Marker(ITERATION, count, moment_s))

    def _mark(self, marker: Marker) -> None:
        self._now_s = max(self._now_s, marker.reached_s)
        if self.rehearsed is not None:
            self.rehearsed.reached(marker.name, marker.gpu, marker.reached_s, begins=marker.name == ITERATION)
        if self.controller is not None:
            self.controller.mark(marker)
        elif marker.gpu == 0 and marker.name == ITERATION:
            self._begin_iteration(marker.iteration, marker.reached_s)

    def due_s(self) -> float | None:
        """As the controller's, once it has taken over."""
        return super().due_s() if self.controller is None else self.controller.due_s()

    def act(self, now_s: float) -> None:
        """As the controller, once it has taken over."""
        if self.controller is None:
            super().act(now_s)
        else:
            self._now_s = max(self._now_s, now_s)
            self.controller.act(now_s)

    def status(self) -> Status:
        """What is known now, by the controller too once it has taken over."""
        return super().status() if self.controller is None else self._whole(self.controller.status(), self._tuning())

    def hold(self, now_s: float) -> None:
        """Go by no iterations, as none are expected any more: nothing can be compared."""
        if self.controller is not None:
            self.controller.hold(now_s)
        else:
            self._by_proxy(self.max_slowdown, now_s)

    def _unguarded(self, why: str, now_s: float) -> None:
        self._give_up(f"no iterations were seen, so nothing can be compared: {why}", now_s)

    def _restrict(self) -> None:
        error, search = 0.0 if self.proxy is None else self.proxy.error, self.search
        self.search = SettingSearch(search.ladders, self.max_slowdown, search.tolerance, self._seed, error)
        self._guard = Guard(self.max_slowdown, error)

    def _start_over(self, now_s: float) -> None:
        if self.done and self.controller is None:
            return  # the default clocks stay
        self._restrict()
        self._state, self.controller, self._stretch, self._alarm = "starting", None, None, None
        self._iteration = self._iteration_s = None
        self._pauses = self._unknown = 0
        for each in (self._first_times_s, self._group, self._coming, self._default_time_s, self._default_energy_j):
            each.clear()
        self._request_default()

    def refuse(self, why: str, now_s: float) -> None:
        """Go back to the default clocks for good."""
        if self.controller is not None:
            self.controller.refuse(why, now_s)
        else:
            self._give_up(why, now_s)

    def end(self, now_s: float | None = None, *, ended: Ended = "job ended", exit_code: int | None = None) -> Summary:
        """Give the clocks back, and say what became of it."""
        if self.controller is None:
            summary = super().end(now_s, ended=ended, exit_code=exit_code)
            return summary.model_copy(update={"trials": self._trials()})
        summary = self.controller.end(now_s, ended=ended, exit_code=exit_code)
        later = (one.model_copy(update={"at_s": one.at_s + self._held_s}) for one in summary.time_line)
        both = (*self._line.moments(), *later)
        status = self._whole(summary.status, self._tuning())
        thinned = both[:: 1 + len(both) // _MOST_MOMENTS]
        return summary.model_copy(update={"status": status, "time_line": thinned, "trials": self._trials()})

    def _whole(self, status: Status, tuning: Tuning) -> Status:
        """The controller's status with what came before."""
        later = (event.model_copy(update={"at_s": event.at_s + self._held_s}) for event in status.events)
        elapsed_s = status.elapsed_s + self._held_s
        return status.model_copy(update={"tuning": tuning, "elapsed_s": elapsed_s, "events": (*self._events, *later)})

    # ---- iterations ------------------------------------------------------------------------------------------

    def _missed(self, now_s: float) -> None:
        if self._stretch is not None:
            self._stretch.spoiled = True

    def _begin_trials(self, now_s: float) -> None:
        self._state = "tuning"
        self._coming = deque([self._block(_DEFAULT)])
        self._next_stretch(now_s)

    def _count(self, took_s: float, now_s: float) -> None:
        """An iteration has ended while settings are tried."""
        stretch = self._stretch
        assert stretch is not None
        if self.rehearsed is not None:
            stretch.times_s.append(took_s)
            if len(stretch.times_s) >= stretch.iterations:
                self._next_stretch(now_s)
            return
        if took_s > PAUSE * self._usual_s:
            self._pause(took_s, stretch, now_s)
            return
        self._pauses = 0
        self._usual_s += 0.1 * (took_s - self._usual_s)
        if stretch.times_s and stretch.measured:
            self._guard.noise.learn(stretch.times_s[-1], took_s)
        stretch.times_s.append(took_s)
        if not stretch.default and stretch.measured:
            alarm = self._guard.watch(took_s)
            if alarm is not None:
                self._break_off(stretch, alarm, now_s)
                return
        if len(stretch.times_s) >= stretch.iterations:
            self._next_stretch(now_s)

    def _pause(self, took_s: float, stretch: Stretch, now_s: float) -> None:
        """An iteration took far longer than usual: the stretch starts over after it."""
        self._pauses += 1
        if self._pauses < MOST_PAUSES:
            if stretch.measured:
                self._begin_stretch(stretch, now_s)
                self._guard.restart()
            return
        self._pauses = 0
        if stretch.default:
            self._usual_s = took_s
            self._tell("drift", f"iterations now take {took_s:.3g} s")
        else:
            self._break_off(stretch, Alarm(math.log(took_s / self._usual_s), math.inf), now_s)

    # ---- stretches -------------------------------------------------------------------------------------------

    def _block(self, index: int) -> Stretch:
        return Stretch("block", index, index == _DEFAULT, self._lengths.measured(self._usual_s, self._period_s))

    def _settling(self, index: int) -> Stretch:
        iterations = math.ceil((self._settle_s + STEPS * self._period_s) / self._usual_s)
        return Stretch("settle", index, index == _DEFAULT, max(iterations, 1))

    def _next_stretch(self, now_s: float) -> None:
        """End the stretch that runs, and begin the one that follows."""
        self._finish_stretch(now_s)
        if not self._coming:
            last = self._group[-1]
            if not all(stretch.settled for stretch in self._group):
                self._stretch = Stretch("settle", _DEFAULT, True, 1)  # until energies are known
                return
            self._conclude()
            if not self._begin_group(last, now_s):
                return
        self._stretch = self._coming.popleft()
        setting = AUTO if self._stretch.default else self.search.candidates[self._stretch.rung].setting
        self._wanted = None if setting == self._target else setting
        if self._wanted is not None:
            self._guard.restart()
        if self._stretch.measured:
            self._begin_stretch(self._stretch, now_s)

    def _finish_stretch(self, now_s: float) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch is None or not stretch.measured or not stretch.times_s:
            if stretch is not None and stretch.measured:
                self._coming.appendleft(self._block(stretch.rung))  # nothing but pauses: once more
            return
        self._end_stretch(stretch, now_s)
        self._group.append(stretch)
        if stretch.default:
            self._guard.reference(stretch.times_s)

    def _break_off(self, stretch: Stretch, alarm: Alarm, now_s: float) -> None:
        """A setting is too slow: back to the default clocks, which tell whether it is the setting."""
        self._alarm = self.search.candidates[stretch.rung], alarm
        self._stretch = None
        self._coming = deque([self._settling(_DEFAULT), self._block(_DEFAULT)])
        self._next_stretch(now_s)

    def _begin_group(self, last: Stretch, now_s: float) -> bool:
        """Plan what to try next; whether there is anything."""
        if last.spoiled or last.energy_j is None:
            self._unknown += 1
            if self._unknown >= _MOST_UNKNOWN:
                self._hold(now_s, "the energy at the default clocks could not be measured")
                return False
            self._group, self._coming = [], deque([self._block(_DEFAULT)])
            return True
        self._unknown = 0
        if now_s - self._began_s >= self._budget_s:
            self._hold(now_s, "out of time")
            return False
        group = self.search.next_group()
        if not group:
            self._hold(now_s, "search finished")
            return False
        self._group = [last]
        self._coming = deque()
        for candidate in group:
            index = self.search.candidates.index(candidate)
            self._coming += (self._settling(index), self._block(index))
        self._coming += (self._settling(_DEFAULT), self._block(_DEFAULT))
        return True

    # ---- what trials showed ----------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """Take the trials of a group into account."""
        alarm, self._alarm = self._alarm, None
        group = self._group
        after = group[-1]
        if after.energy_j is not None and not after.spoiled:
            self._default_time_s.append(after.mean_s)
            self._default_energy_j.append(after.energy_j / len(after.times_s))
        if len(group) < 2:
            if alarm is not None:
                self.search.failed(alarm[0], "abandoned")
            return
        first = group[0]
        unchanged = abs(math.log(after.mean_s / first.mean_s)) < _CHANGED
        if alarm is not None and unchanged:
            self.search.too_slow(alarm[0], self.search.limit + alarm[1].excess)
        elif alarm is not None:
            self.search.failed(alarm[0], "abandoned")
        for place, stretch in enumerate(group[1:-1], start=1):
            self._compare(first, stretch, after, place / (len(group) - 1), unchanged=unchanged)

    def _compare(self, first: Stretch, stretch: Stretch, after: Stretch, place: float, *, unchanged: bool) -> None:
        """A trial against the default clocks around it, whose drift is taken to be steady."""
        candidate = self.search.candidates[stretch.rung]
        if self.rehearsed is not None:
            self.search.rehearse(candidate)
            return
        each_j = [one.energy_j and one.energy_j / len(one.times_s) for one in (first, stretch, after)]
        if not unchanged or stretch.spoiled or first.spoiled or after.spoiled or None in each_j:
            self.search.failed(candidate, "the job paused in every trial" if stretch.spoiled else "could not be compared")
            return
        first_j, own_j, after_j = (each or math.nan for each in each_j)
        time_s = (1.0 - place) * math.log(first.mean_s) + place * math.log(after.mean_s)
        energy = (1.0 - place) * math.log(first_j) + place * math.log(after_j)
        noise = self._guard.noise.of_mean(len(stretch.times_s))
        noise += 0.5 * (self._guard.noise.of_mean(len(first.times_s)) + self._guard.noise.of_mean(len(after.times_s)))
        if self.traffic is not None:
            self.traffic.compare(candidate.setting, (first, stretch, after), place)
        self.search.add(candidate, math.log(stretch.mean_s) - time_s, math.log(own_j) - energy, noise)

    def _hold(self, now_s: float, why: str) -> None:
        """Hand the best over to a controller, or stay at the default clocks."""
        winner = self.search.winner
        self._group, self._stretch = [], None
        if self.rehearsed is not None:
            self._give_up(f"tried {self._tried} settings, and measured none of them, as this is a rehearsal", now_s)
            return
        if winner is None:
            at_most = f"at most {percent(self.max_slowdown, 1)} slower" if self.max_slowdown else "without a slowdown"
            self._give_up(f"{why}: no setting saves energy with confidence {at_most}", now_s)
            return
        energy = self.search.energy(winner)
        self._tell(
            "note", f"{why}: {winner.setting}, energy {change(math.expm1(energy.mean), 1)}; tried {self._tried} settings"
        )
        self._state = "held"
        self._held_s = now_s - self._began_s
        self.schedule = self.schedule_of(winner)
        tell_frontier(self.schedule, self.gpus, len(self.gpus))
        self.controller = Controller(
            self.schedule,
            self.gpus,
            self.subject,
            now_s=now_s,
            seed=self._seed,
            process=self._process,
            started_unix_s=self._started_unix_s,
            traffic=self.traffic,
        )
        self.controller.take_over(self.units, self.proxy)

    @property
    def measured_default(self) -> bool:
        """Whether iterations at the default clocks were measured."""
        return bool(self._default_energy_j)

    @property
    def default_iteration(self) -> tuple[float, float]:
        """Mean time and energy of an iteration at the default clocks."""
        time_s, energy_j = (math.fsum(each) / len(each) for each in (self._default_time_s, self._default_energy_j))
        return time_s, energy_j

    def _give_up(self, why: str, now_s: float) -> None:
        """Stay at the default clocks."""
        self._now_s = max(self._now_s, now_s)
        self._state, self._stretch = "default", None
        self._request_default()
        self._tell("note", f"{why}; the default clocks stay")

    def schedule_of(self, winner: Candidate) -> Schedule:
        """The setting that was found, and faster ones to step to, as a schedule."""
        rungs, best = [winner], self.search.time(winner).mean
        for each in sorted(self._faster(winner), key=lambda one: self.search.energy(one).mean):
            if 0.0 < self.search.time(each).mean < best - 1e-4:
                rungs.append(each)
                best = self.search.time(each).mean
        changes = [Change(each.setting, self.search.time(each).mean, self.search.energy(each).mean) for each in rungs]
        time_s, energy_j = self.default_iteration
        return one_setting(self._switching, self.max_slowdown, changes, time_s, energy_j, self.search.regret)

    def _faster(self, winner: Candidate) -> list[Candidate]:
        """Settings that were tried, are faster than the winner, and save something."""
        own = self.search.time(winner).mean
        tried = [each for each in self.search.candidates if each.energy]
        return [each for each in tried if self.search.time(each).mean < own and self.search.energy(each).mean < 0.0]

    # ---- what is told ----------------------------------------------------------------------------------------

    @property
    def _tried(self) -> int:
        return sum(bool(each.energy or each.dropped) for each in self.search.candidates)

    def _tuning(self) -> Tuning:
        best = self.search.best if not self.done else self.search.winner
        best = best if self.rehearsed is None else None
        trying = None
        if self._stretch is not None and not self._stretch.default:
            trying = str(self.search.candidates[self._stretch.rung].setting)
        return Tuning(
            done=self.done,
            tried=self._tried,
            left=len(self.search.left),
            trials=sum(len(each.energy) for each in self.search.candidates),
            iterations=self.iterations,
            trying=trying,
            best=None if best is None else str(best.setting),
            time_change=None if best is None else self._interval(self.search.time(best)),
            energy_change=None if best is None else self._interval(self.search.energy(best)),
            regret=math.expm1(self.search.regret) if self.search.left and self.rehearsed is None else None,
        )

    def _trials(self) -> tuple[Trial, ...]:
        """What every setting that was tried showed; nothing in a rehearsal."""
        if self.rehearsed is not None:
            return ()
        return tuple(self._trial(each) for each in self.search.candidates if each.energy or each.dropped)

    def _trial(self, candidate: Candidate) -> Trial:
        setting, compared = candidate.setting, bool(candidate.energy)
        outcome: Outcome = "close"
        if candidate is self.search.winner and self.controller is not None:
            outcome = "held"
        elif candidate.slow:
            outcome = "too slow"
        elif candidate.dropped:
            outcome = "more energy" if compared else "unusable"
        return Trial(
            core_mhz=setting.core_mhz,
            memory_mhz=setting.memory_mhz,
            power_limit_w=setting.power_limit_w,
            profile=setting.profile,
            stretches=len(candidate.energy),
            time_change=self._interval(self.search.time(candidate)) if compared else None,
            energy_change=self._interval(self.search.energy(candidate)) if compared else None,
            outcome=outcome,
        )

    def _refused(self, setting: Setting, error: ClocksRefusedError) -> None:
        """The rest of its stretch runs at the default clocks, and says nothing."""
        assert self._stretch is not None
        self.search.failed(self.search.candidates[self._stretch.rung], str(error), at_once=True)
        self._tell("note", f"{setting}: {error}")
        self._coming = deque([self._settling(_DEFAULT), self._block(_DEFAULT)])
        self._stretch = Stretch("settle", _DEFAULT, True, 1)

    def _interval(self, mean: LogMean) -> Estimate:
        """The ratio − 1 with its 95 % interval, of a mean whose half length leaves no doubt; a proxy's error added."""
        return LogMean(mean.mean, 1.959964 / self.search.sure * mean.half + self.search.error).change

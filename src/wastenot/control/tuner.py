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
from wastenot.control.guard import Alarm, Guard
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.one_setting import one_setting
from wastenot.control.rehearsed import Rehearsed
from wastenot.control.setting_search import Candidate, SettingSearch
from wastenot.control.status import Status, Summary, Tuning
from wastenot.control.told_frontier import tell_frontier
from wastenot.control.traffic import Traffic
from wastenot.control.trial_driver import TrialDriver
from wastenot.control.tried import changes_of, trials_of, tuning_of
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.pages.formatting import change, percent
from wastenot.planning.schedule import Schedule

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
        now_s, traffic: as of :class:`ClockDriver`.
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
        now_s: float = 0.0,
        seed: int = 0,
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
        if ladders is None:
            ladders = ladders_of(gpus) if gpus else ()
        search = SettingSearch(ladders, max_slowdown, tolerance, seed)
        super().__init__(
            gpus, subject, max_slowdown, [setting for each in search.ladders for setting in each.settings],
            Guard(max_slowdown), now_s, dry_run=dry_run, rehearsed=rehearsed, traffic=traffic,
        )  # fmt: skip
        self.search = search
        self.controller: Controller | None = None
        self._budget_s, self._seed = budget_s, seed
        self._lengths = Lengths(self._settle_s, 1.0)
        self._unknown = 0
        self._group: list[Stretch] = []  # stretches that count, the default clocks before and after among them
        self._coming: deque[Stretch] = deque()
        self._alarm: tuple[Candidate, Alarm] | None = None
        self.defaults: list[tuple[float, float]] = []
        """Mean time and energy of an iteration, of each stretch at the default clocks."""
        self._tell("started", f"{subject.workload}: looking for a setting at most {percent(max_slowdown, 1)} slower")

    # ---- what drives it --------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the search has ended: the best setting is held, or the default clocks are."""
        return self._over or self._state not in ("starting", "tuning")

    def mark_unit(self, count: int, moment_s: float) -> None:
        """Take note of the end of a unit of traffic."""
        if self.controller is not None:
            self.controller.mark_unit(count, moment_s)
        else:
            super().mark_unit(count, moment_s)

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
        if self.controller is None:
            return super().status()
        return self.controller.status().model_copy(update={"tuning": self._tuning()})

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
        for each in (self._first_times_s, self._group, self._coming, self.defaults):
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
        else:
            summary = self.controller.end(now_s, ended=ended, exit_code=exit_code)
            status = summary.status.model_copy(update={"tuning": self._tuning()})
            both = (*self._line.moments(), *summary.time_line)
            thinned = both[:: 1 + len(both) // _MOST_MOMENTS]
            summary = summary.model_copy(update={"status": status, "time_line": thinned})
        held = None if self.controller is None else self.search.winner
        trials = trials_of(self.search, held) if self.rehearsed is None else ()  # a rehearsal shows nothing
        return summary.model_copy(update={"trials": trials})

    # ---- iterations ------------------------------------------------------------------------------------------

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

    def _trial(self, index: int) -> tuple[Stretch, Stretch]:
        """A stretch that settles, and one that counts."""
        iterations = math.ceil((self._settle_s + STEPS * self._period_s) / self._usual_s)
        return Stretch("settle", index, index == _DEFAULT, max(iterations, 1)), self._block(index)

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
        self._coming = deque(self._trial(_DEFAULT))
        self._next_stretch(now_s)

    def _refused(self, setting: Setting, error: ClocksRefusedError) -> None:
        """The rest of its stretch runs at the default clocks, and says nothing."""
        assert self._stretch is not None
        self.search.failed(self.search.candidates[self._stretch.rung], str(error), at_once=True)
        self._tell("note", f"{setting}: {error}")
        self._coming = deque(self._trial(_DEFAULT))
        self._stretch = Stretch("settle", _DEFAULT, True, 1)

    def _begin_group(self, last: Stretch, now_s: float) -> bool:
        """Plan what to try next; whether there is anything."""
        if last.spoiled or last.energy_j is None:
            self._unknown += 1
            self._group, self._coming = [], deque([self._block(_DEFAULT)])
            if self._unknown >= _MOST_UNKNOWN:
                self._hold(now_s, "the energy at the default clocks could not be measured")
            return self._unknown < _MOST_UNKNOWN
        self._unknown = 0
        late = now_s - self._began_s >= self._budget_s
        group = [] if late else self.search.next_group()
        if not group:
            self._hold(now_s, "out of time" if late else "search finished")
            return False
        self._group, self._coming = [last], deque()
        for index in (*map(self.search.candidates.index, group), _DEFAULT):
            self._coming += self._trial(index)
        return True

    # ---- what trials showed ----------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """Take the trials of a group into account."""
        alarm, self._alarm = self._alarm, None
        group = self._group
        after = group[-1]
        if after.iteration_j is not None and not after.spoiled:
            self.defaults.append((after.mean_s, after.iteration_j))
        first = group[0]
        unchanged = len(group) > 1 and abs(math.log(after.mean_s / first.mean_s)) < _CHANGED
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
        first_j, own_j, after_j = first.iteration_j, stretch.iteration_j, after.iteration_j
        spoiled = not unchanged or any(each.spoiled for each in (first, stretch, after))
        if spoiled or first_j is None or own_j is None or after_j is None:
            self.search.failed(candidate, "the job paused in every trial" if stretch.spoiled else "could not be compared")
            return
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
            tried = f"tried {len(self.search.tried)} settings, and measured none of them, as this is a rehearsal"
            self._give_up(tried, now_s)
            return
        if winner is None:
            at_most = f"at most {percent(self.max_slowdown, 1)} slower" if self.max_slowdown else "without a slowdown"
            self._give_up(f"{why}: no setting saves energy with confidence {at_most}", now_s)
            return
        saved = change(math.expm1(self.search.energy(winner).mean), 1)
        self._tell("note", f"{why}: {winner.setting}, energy {saved}; tried {len(self.search.tried)} settings")
        self._state = "held"
        self.schedule = self.schedule_of(winner)
        tell_frontier(self.schedule, self.gpus, len(self.gpus))
        self.controller = Controller(self.schedule, self.gpus, self.subject, now_s=now_s, seed=self._seed, before=self)

    @property
    def default_iteration(self) -> tuple[float, float]:
        """Mean time and energy of an iteration at the default clocks, once any was measured."""
        time_s, energy_j = (math.fsum(each) / len(each) for each in zip(*self.defaults, strict=True))
        return time_s, energy_j

    def _give_up(self, why: str, now_s: float) -> None:
        """Stay at the default clocks."""
        self._now_s = max(self._now_s, now_s)
        self._state, self._stretch = "default", None
        self._request_default()
        self._tell("note", f"{why}; the default clocks stay")

    def schedule_of(self, winner: Candidate) -> Schedule:
        """The setting that was found, and faster ones to step to, as a schedule."""
        changes = changes_of(self.search, winner)
        return one_setting(self._switching, self.max_slowdown, changes, *self.default_iteration, self.search.regret)

    # ---- what is told ----------------------------------------------------------------------------------------

    def _tuning(self) -> Tuning:
        trying = self._stretch
        candidate = None if trying is None or trying.default else self.search.candidates[trying.rung]
        return tuning_of(self.search, self.done, self.iterations, candidate, self.rehearsed is not None)

"""Finds the best power limit or clock of a recurring job while it trains, and holds it.

    iterations  ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮
    setting     guess          │ B            │ C            │ best …          │ D            │ best …
                ┊start┊slice┊··│settle┊slice┊·│settle┊slice┊·│                 waits until a slice is worth it

A slice begins and ends with iterations. The first ones after a change settle and do not count; a change is requested once
the energy of the slice before is known. Which setting comes next, and when it is worth it, is up to
:class:`wastenot.jobs.plan.limits.Limits`. While the best is held its iterations are watched: where they become slower than
they were when it was measured, what is known of the batch size is measured again. Programs that tell no iterations are
measured by whole epochs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import partial
from statistics import median

from wastenot.control.blocks import LEAST_ITERATIONS, MOST_PAUSES, PAUSE, Stretch
from wastenot.control.driver import Ended, Subject
from wastenot.control.guard import Guard
from wastenot.control.marker import EPOCH, ITERATION, Marker
from wastenot.control.status import Tuning
from wastenot.control.trial_driver import TrialDriver
from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import AUTO, Setting, setting_text
from wastenot.devices.protocol import Device
from wastenot.jobs.model.objective import objective_of
from wastenot.jobs.plan.limits import Limits, slice_length_s
from wastenot.jobs.tables.records import Speed

words = partial(setting_text, auto="default clocks", named=True)

_LATEST = 15
_MOST_UNREAD = 3  # slices whose energy could not be read, after which none is worth it
_SLOWER = 0.02  # by which iterations at the setting held may become slower before they are measured anew
_LONG = 2.0  # as PAUSE, against the job's latest iterations at whatever settings
_EDGE = 0.2  # of a period of the energy counter, by which the energy at an edge is off, as a power
_STEADY_POWER = 0.003  # by which the power of a slice differs from what the setting would show in the long run


class JobDriver(TrialDriver):
    """Measures settings on the GPUs of a job in slices, and holds the best.

    Args:
        gpus: that the job runs on; all get the same settings, and their energies count together.
        subject: what runs.
        limits: what is known of the job's settings on this device; it learns.
        batch_size: that the run trains with.
        device: label of the GPUs in the job's records.
        seen_s: how long earlier runs have been seen to run at this batch size.
        epochs: expected to the target; ``None`` where nothing is known.
        now_s: moment at which it begins, on the clock of the first GPU.

    Attributes:
        speeds: what was measured, by epoch; empty until the length of an epoch is known.
        held: the setting that is held, or will be once a slice has ended.

    Raises:
        BadInputError: no GPU is given.
    """

    def __init__(
        self,
        gpus: Sequence[Device],
        subject: Subject,
        limits: Limits,
        batch_size: int,
        *,
        device: str,
        seen_s: float = 0.0,
        epochs: float | None = None,
        now_s: float = 0.0,
    ) -> None:
        super().__init__(gpus, subject, 0.0, limits.terms.settings, Guard(_SLOWER), now_s)
        self.limits, self.batch_size = limits, batch_size
        self.speeds: tuple[Speed, ...] = ()
        self.epochs = epochs
        self._device, self._earlier_s = device, seen_s
        # Times are of iterations until an epoch has shown how many it has; earlier runs told theirs by epoch.
        self._by_epoch = bool(limits.measured_at(batch_size))
        self._known_length = False
        self._first_of_epoch: int | None = None
        self._work = 1.0  # iterations in the unit that `limits` knows
        self._held_guarded = False
        self._anew_from_s = 0.0
        self._anew_gap_s = 60.0
        self._slices = 0
        self._latest_s: deque[float] = deque(maxlen=_LATEST)
        self._by_epochs_alone = False
        self._next_s = math.inf  # when a slice will be worth it
        self._unread = 0
        self._trying: Setting | None = None
        self._tell("started", f"{subject.workload}: batch size {batch_size}")
        self.held = self._best()
        self._wanted = self.held

    # ---- what drives it --------------------------------------------------------------------------------------

    def _mark(self, marker: Marker) -> None:
        self._now_s = max(self._now_s, marker.reached_s)
        if marker.gpu != 0 or self._over:
            return
        if marker.name == ITERATION:
            self._begin_iteration(marker.iteration, marker.reached_s)
        elif marker.name == EPOCH:
            self._end_epoch(marker.reached_s)

    def _requests_due_s(self) -> float:
        return self._energy_due_s if self._state == "resting" else super()._requests_due_s()

    def _learn(self, now_s: float) -> None:
        if self._state == "resting" and self._energy_due_s <= self._now_s:
            self._learn_slice(now_s)
        super()._learn(now_s)

    def hold(self, now_s: float) -> None:
        """Go by no iterations, as none are expected any more: whole epochs are measured."""
        self._now_s = max(self._now_s, now_s)
        self._by_epochs_alone = True

    def refuse(self, why: str, now_s: float) -> None:
        """Go back to the default clocks for good."""
        self._now_s = max(self._now_s, now_s)
        self._tell("refused", why)
        self._release()
        self._over = True

    def _give_back(self, ended: Ended) -> Ended:
        if self._state == "resting" and self._ended is not None and self._ended.settled:
            self._learn_slice(self._now_s)
        return super()._give_back(ended)

    # ---- iterations ------------------------------------------------------------------------------------------

    def _begin_iteration(self, iteration: int, reached_s: float) -> None:
        self._by_epochs_alone = False
        if self._first_of_epoch is None:
            self._first_of_epoch = iteration
        if self._iteration is not None and self._iteration_s is not None:
            self._latest_s.append(reached_s - self._iteration_s)
        super()._begin_iteration(iteration, reached_s)

    def _count(self, took_s: float, now_s: float) -> None:
        if self._state == "settling":
            if now_s - took_s >= self._changed_s + self._settle_s:
                self._begin_slice(now_s)
        elif self._state == "slice":
            self._count_in_slice(took_s, now_s)
        elif self._state == "holding":
            self._watch(took_s, now_s)

    def _begin_trials(self, now_s: float) -> None:
        if self._by_epoch and not self._known_length:
            self._hold(now_s)  # earlier runs told times of epochs, and this one has yet to show how long one is
        else:
            self._go_on(now_s)

    def _begin_slice(self, now_s: float) -> None:
        self._state, self._pauses = "slice", 0
        self._begin_stretch(Stretch("block", 0, default=False), now_s)

    def _count_in_slice(self, took_s: float, now_s: float) -> None:
        stretch = self._stretch
        assert stretch is not None
        times_s = stretch.times_s
        # Another setting may be slower by itself, as only iterations of its own can tell.
        most_s = PAUSE * median(times_s) if len(times_s) > 2 else _LONG * median(self._latest_s or [math.inf])
        if took_s > most_s:
            self._pauses += 1
            if self._pauses < MOST_PAUSES:  # a checkpoint, or a validation
                self._begin_stretch(stretch, now_s)
                return
        if times_s:
            self._guard.noise.learn(times_s[-1], took_s)
        times_s.append(took_s)
        slice_s = slice_length_s(self._seen_s(now_s))
        lasts_s = max(slice_s - self._settle_s, 0.5 * slice_s)
        if len(times_s) >= self._least() and math.fsum(times_s) >= lasts_s:
            self._end_stretch(stretch, now_s)
            self._state = "resting"

    def _least(self) -> int:
        return 1 if self._by_epochs_alone else LEAST_ITERATIONS

    def _missed(self, now_s: float) -> None:
        if self._state == "slice":
            self._begin_slice(now_s)
        elif self._state == "holding":
            self._guard.restart()

    # ---- epochs ----------------------------------------------------------------------------------------------

    def _end_epoch(self, now_s: float) -> None:
        """An epoch has ended: how many iterations it had, or, where none are told, what it took as one piece of work."""
        if self._iteration is None or self._by_epochs_alone:
            self._end_whole_epoch(now_s)
            return
        first, self._first_of_epoch = self._first_of_epoch, None
        if first is None or self._iteration_s is None or self._iteration <= first:
            return
        if not self._known_length:
            self._known_length = True
            # No marker ends the last iteration; what comes after it, such as a validation, belongs to the epoch as well.
            self._work = self._iteration - first + max((now_s - self._iteration_s) / median(self._latest_s), 1.0)
            if not self._by_epoch:
                self.limits.scale(self.batch_size, self._work)
                self._by_epoch = True
            if self._state == "holding":  # bounds on the whole run mean something from here on
                self._go_on(now_s)
        self._tell_speeds()

    def _end_whole_epoch(self, now_s: float) -> None:
        self._known_length = self._by_epoch = self._by_epochs_alone = True
        before_s, self._iteration_s = self._iteration_s, now_s
        if before_s is None:
            self._go_on(now_s, settled=True)  # the first one began before anything was told
            return
        if self._state == "starting":
            self._go_on(now_s, settled=True)
        elif self._state in ("settling", "slice", "holding"):
            self._count(now_s - before_s, now_s)

    # ---- settings --------------------------------------------------------------------------------------------

    def _best(self) -> Setting:
        return self.limits.best(self.batch_size, self._epochs_now) if self.limits.choices else AUTO

    @property
    def _epochs_now(self) -> float | None:
        """Epochs to the target, once times are known by epoch."""
        return self.epochs if self._by_epoch else None

    def _seen_s(self, now_s: float) -> float:
        return self._earlier_s + now_s - self._began_s

    def _go_on(self, now_s: float, *, settled: bool = False) -> None:
        """Measure what is worth it, or hold the best."""
        trial = None
        if self.limits.choices > 1 and self._unread < _MOST_UNREAD:
            seen_s = self._seen_s(now_s)
            least_s = self._settle_s + (self._least() + 1) * median(self._latest_s or [0.0])
            lasts_s = max(slice_length_s(seen_s), least_s)
            trial = self.limits.next(self.batch_size, seen_s=seen_s, slice_s=lasts_s, epochs=self._epochs_now)
        if trial is None or trial.from_s > self._seen_s(now_s):
            self._next_s = math.inf if trial is None else now_s + trial.from_s - self._seen_s(now_s)
            self._hold(now_s)
            return
        self._trying, self._state = trial.setting, "settling"
        if trial.setting != self._target:
            self._wanted, self._changed_s = trial.setting, now_s
            self._tell("note", f"{words(trial.setting)}: {trial.why}")
        if settled or now_s >= self._changed_s + self._settle_s:
            self._begin_slice(now_s)

    def _hold(self, now_s: float) -> None:
        best = self._best()
        if best != self.held:
            self._tell("stepped", f"{words(best)} is held")
        self.held, self._trying, self._state, self._pauses = best, None, "holding", 0
        if best != self._target:
            self._wanted, self._changed_s = best, now_s
        self._guard = self._guard_of(best)

    def _guard_of(self, setting: Setting) -> Guard:
        """Watches iterations at a setting against what they took when it was measured."""
        guard = Guard(_SLOWER)
        guard.noise = self._guard.noise
        speed = self.limits.speed(self._device, self.batch_size, setting)
        self._held_guarded = speed is not None and (self._known_length or not self._by_epoch)
        if speed is not None and self._held_guarded:
            guard.reference([speed.epoch_time_s / self._work] * LEAST_ITERATIONS)
        return guard

    def _watch(self, took_s: float, now_s: float) -> None:
        """An iteration at the setting that is held."""
        if now_s >= self._next_s:
            self._next_s = math.inf
            self._go_on(now_s)
            return
        if not self._held_guarded or now_s - took_s < self._changed_s + self._settle_s:
            return
        expected_s = math.exp(self._guard.default_log_s or 0.0)
        if took_s > PAUSE * expected_s and self._pauses < MOST_PAUSES:
            self._pauses += 1
            return
        self._pauses = 0
        alarm = self._guard.watch(took_s)
        if alarm is None or not alarm.sure or now_s < self._anew_from_s:
            return
        # Each time it takes longer until the next: jobs whose iterations come and go are not measured without end.
        self._anew_from_s, self._anew_gap_s = now_s + self._anew_gap_s, 2.0 * self._anew_gap_s
        self._tell("drift", f"iterations are {math.expm1(alarm.excess) + _SLOWER:.1%} slower than measured: measuring again")
        self.limits.forget(self.batch_size)
        self._go_on(now_s)

    def _learn_slice(self, now_s: float) -> None:
        """A slice has ended, and its energy is known, or never will be."""
        slice_ended = self._ended
        assert self._trying is not None and slice_ended is not None
        setting, self._trying = self._trying, None
        power_w = slice_ended.power_w
        if power_w is None and objective_of(self.limits.terms).needs_energy(self.limits.terms):
            self._tell("note", f"{words(setting)}: its energy could not be read")
            self._unread += 1
        else:
            time_s = slice_ended.mean_s * (self._work if self._by_epoch else 1.0)
            time_error = math.sqrt(self._guard.noise.of_mean(len(slice_ended.times_s)))
            power_error = math.hypot(_STEADY_POWER, _EDGE * self._period_s / slice_ended.lasts_s)  # counters move rarely
            self.limits.measured(Speed(self._device, self.batch_size, setting, time_s, power_w, time_error, power_error))
            self._slices += 1
            self._tell_speeds()
        self.held = self._best()
        self._go_on(now_s)

    def _tell_speeds(self) -> None:
        if self._known_length:
            known = self.limits.measured_at(self.batch_size)
            speeds = (self.limits.speed(self._device, self.batch_size, setting) for setting in known)
            self.speeds = tuple(speed for speed in speeds if speed is not None)

    def _refused(self, setting: Setting, error: ClocksRefusedError) -> None:
        self._tell("refused", f"{words(setting)}: {error}")
        self.limits.refused(setting)
        if self._state == "starting":
            self._wanted = self.held = self._best()
        else:
            self._go_on(self._now_s)

    # ---- what is told ----------------------------------------------------------------------------------------

    def _tuning(self) -> Tuning:
        known = self.limits.measured_at(self.batch_size)
        return Tuning(
            done=self._trying is None and self._next_s == math.inf and self._state == "holding",
            tried=len(known),
            left=max(self.limits.choices - len(known), 0),
            trials=self._slices,
            iterations=self.iterations,
            trying=None if self._trying is None or self._over else words(self._trying),
            best=words(self.held),
            time_change=None,
            energy_change=None,
            regret=self.limits.shortfall(self.batch_size, self._epochs_now) if self.limits.choices > 1 else None,
        )

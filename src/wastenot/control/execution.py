"""Carries out a rung of a schedule on one GPU: requests settings ahead of time, by what was learned of the job's pace.

    markers     │iteration      │forward                    │backward  …       reached at moments that are only then known
    requests         ^ early_s before `forward` is expected
    in effect        ·······════════════════════════

Every marker that comes anchors the expectation of the next ones again. Where one does not come, nothing is requested beyond
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from wastenot.control.expected import Expected, expected_at
from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.planning.schedule import Schedule

_GRACE = 0.25  # of an iteration, by which a marker may be late before requests beyond it are held back


class RungExecution(Protocol):
    """Carries out one of several rungs on one GPU."""

    due_s: float
    """When to act next; infinite for never."""
    requests: int
    """How many there were."""

    @property
    def target(self) -> Setting:
        """The setting requested."""

    def place(self, name: str) -> int | None:
        """Index of a marker; ``None`` for one that counts for nothing."""

    def begin(self, rung: int, now_s: float) -> None:
        """Change to a rung."""

    def mark(self, place: int, iteration: int, reached_s: float) -> None:
        """Take note of a marker that was reached."""

    def act(self, now_s: float) -> bool:
        """Make the request that is due; returns whether there was one."""

    def release(self, now_s: float) -> None:
        """Give the clocks back, and request nothing any more."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A segment: from which marker on, how long after it, and by how much earlier it is requested."""

    place: int
    offset_s: float
    early_s: float
    setting: Setting


class Execution:
    """Requests of one GPU.

    Args:
        device: the GPU.
        schedule: what to carry out.
        dry_run: only pretend.

    Attributes:
        lowered: fraction of the core clocks of the rungs that is requested; see :meth:`lower`.
    """

    def __init__(self, device: Device, schedule: Schedule, *, dry_run: bool = False) -> None:
        self.device, self._dry_run = device, dry_run
        self._places: Mapping[str, int] = {m.name: i for i, m in reversed(list(enumerate(schedule.markers)))}
        self._markers = len(schedule.markers)
        self._min_dwell_s = schedule.min_dwell_s
        self._planned: list[Sequence[_Step]] = [
            [_Step(self._places[one.begins], one.offset_s, one.early_s, one.setting) for one in rung.segments]
            for rung in schedule.rungs
        ]
        self._rungs = self._planned
        self.lowered = 1.0
        self._may_lower = True
        self._expected = [expected_at(schedule, rung) for rung in schedule.rungs]
        self.rung = len(self._rungs) - 1
        self.seen: set[int] = set()
        self.target = AUTO
        self.requests = 0
        self.due_s = math.inf
        self._requested_s = -math.inf
        self._anchor: tuple[int, int, float] | None = None  # place, iteration, moment of the latest marker
        self._learn_from: tuple[int, int, float] | None = None
        self._next: tuple[int, int] | None = None  # step and iteration of the next request

    @property
    def expected(self) -> Expected:
        """Times between markers at the present rung."""
        return self._expected[self.rung]

    def place(self, name: str) -> int | None:
        """Index of a marker; ``None`` for one that the schedule does not know."""
        return self._places.get(name)

    def begin(self, rung: int, now_s: float) -> None:
        """Change to a rung, from the latest marker on, which should begin an iteration."""
        self.rung = rung
        self._learn_from = None  # the time until the next marker belongs to neither
        steps = self._rungs[rung]
        place, iteration, _ = self._anchor or (0, 0, now_s)
        current = max((index for index, step in enumerate(steps) if step.place <= place), default=0)
        self._next = (current, iteration)
        self.due_s = now_s

    def lower(self, fraction: float) -> float:
        """Run below the core clocks of the rungs, all but the last, from the next :meth:`begin` on.

        Args:
            fraction: of these clocks; of the highest, where a rung leaves it to the driver.

        Returns:
            The fraction in effect, :attr:`lowered`: clocks that may be requested are rarely just there, and the next above
            are taken.
        """
        self.lowered, self._rungs = 1.0, self._planned
        if fraction < 1.0 and self._may_lower:
            known = self.device.clocks.supported_clocks()
            lower = [[self._lower(step, fraction, known) for step in steps] for steps in self._planned[:-1]]
            self._rungs = [*([step for step, _ in steps] for steps in lower), self._planned[-1]]
            self.lowered = max((each for steps in lower[:1] for _, each in steps), default=1.0)
        return self.lowered

    def _lower(self, step: _Step, fraction: float, known: Mapping[float, tuple[float, ...]]) -> tuple[_Step, float]:
        """A step at a lower clock, and the fraction that it comes to."""
        setting = step.setting
        clocks = known.get(setting.memory_mhz or max(known, default=0.0), ())
        from_mhz = setting.core_mhz or max(clocks, default=0.0)
        clock = next((each for each in clocks if each >= fraction * from_mhz), from_mhz)
        if clock >= from_mhz:
            return step, 1.0
        return replace(step, setting=replace(setting, core_mhz=clock)), clock / from_mhz

    def mark(self, place: int, iteration: int, reached_s: float) -> None:
        """Take note of a marker that was reached."""
        if self._anchor is not None and self._next is not None and not 0 <= iteration - self._anchor[1] <= 1:
            # Counted anew: the program was restarted, or marks itself from now on after running along with another.
            step, at = self._next
            self._next = (step, at + iteration - self._anchor[1] - 1)
        previous, self._anchor = self._learn_from, (place, iteration, reached_s)
        self.seen.add(place)
        if previous is not None:
            was, in_iteration, then_s = previous
            if (iteration == in_iteration and place > was) or (iteration == in_iteration + 1 and place == 0):
                self.expected.learn(was, place, reached_s - then_s)
        self._learn_from = self._anchor
        if self._next is not None and len(self._rungs[self.rung]) > 1:
            self._plan_next()

    def act(self, now_s: float) -> bool:
        """Make the request that is due; returns whether there was one."""
        if now_s < self.due_s or self._next is None:
            return False
        index, _ = self._next
        steps = self._rungs[self.rung]
        self._advance()
        try:
            self._request(steps[index].setting, now_s)
        except ClocksRefusedError:  # as where a policy allows the plan's clocks and none below
            if steps is self._planned[self.rung]:
                raise
            self._may_lower = False
            self.lower(1.0)
            self._request(self._rungs[self.rung][index].setting, now_s)
        self._plan_next()
        return True

    def release(self, now_s: float) -> None:
        """Give the clocks back, and request nothing any more."""
        self._next, self.due_s = None, math.inf
        self._request(AUTO, now_s)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        assert self._next is not None
        index, iteration = self._next
        steps = self._rungs[self.rung]
        if index + 1 < len(steps):
            self._next = (index + 1, iteration)
            return
        # A setting that goes on into the next iteration was asked for already: to wait until that begins could be too late
        # for what follows.
        goes_on = len(steps) > 1 and steps[0].setting == steps[-1].setting
        self._next = (1 if goes_on else 0, iteration + 1)

    def _plan_next(self) -> None:
        """Find out when the next request is due."""
        if len(self._rungs[self.rung]) == 1 and self.target == self._rungs[self.rung][0].setting:
            self.due_s = math.inf
            return
        assert self._next is not None and self._anchor is not None
        due_s = self._wanted_s(self._next)
        place, _, reached_s = self._anchor
        # A step whose successor is due already was overtaken, as after a pause.
        while True:
            here = self._next
            self._advance()
            if self._wanted_s(self._next) > max(reached_s, self._requested_s + self._min_dwell_s):
                self._next = here
                break
            due_s = self._wanted_s(self._next)
        expected = self.expected
        following = next((p for p in range(place + 1, self._markers) if p in self.seen), None)
        wait_s = expected.between_s(place, following, 0) if following is not None else expected.between_s(place, 0, 1)
        if due_s > reached_s + wait_s + _GRACE * expected.iteration_s:
            due_s = math.inf  # the next marker comes first, and says more
        self.due_s = max(due_s, self._requested_s + self._min_dwell_s)

    def _wanted_s(self, step_of: tuple[int, int]) -> float:
        """When a step's request should be made."""
        index, iteration = step_of
        step, expected = self._rungs[self.rung][index], self.expected
        assert self._anchor is not None
        place, at_iteration, reached_s = self._anchor
        away = iteration - at_iteration
        if away < 0:
            return -math.inf
        if away == 0 and step.place <= place:
            begins_s = reached_s - expected.between_s(step.place, place, 0)
        else:
            begins_s = reached_s + expected.between_s(place, step.place, away)
        return begins_s + step.offset_s * expected.iteration_s / expected.planned_s - step.early_s

    def _request(self, setting: Setting, now_s: float) -> None:
        if setting == self.target:
            return
        if not self._dry_run:
            self.device.clocks.request(setting)
        self.target, self._requested_s = setting, now_s
        self.requests += 1

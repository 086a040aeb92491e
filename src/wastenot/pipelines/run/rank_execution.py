"""Carries out a rank's part of a pipeline's plan on one GPU: requests each instruction's clocks ahead of time.

    rank          |F0 ········|F1 ········|     wait     |B0 ·············|
    marks         ^           ^                          ^                      seen as they come
    requests              ^ for F1, `latency` before its begin   ^ for B0
    in effect     ─F0's────────F1's──────────────────────B0's

When the next instruction begins is expected from the latest mark and from how long it took before; at first, from the plan.
A faster clock is requested a little earlier than its median latency, a slower one a little later: being off then costs
energy, which is little, rather than time, which all ranks wait for. Pure bookkeeping: time is passed in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median

from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.pipelines.plan.rank_steps import Step
from wastenot.planning.switching import SwitchTime

CAUTION = {True: 1.0, False: 0.5}
"""Standard deviations of a switch's latency by which a faster clock (``True``) is requested earlier, and a slower one later.

Few switches take very long, and none very short: a faster clock is what comes much too late now and then."""

_REMEMBERED = 5  # times between two instructions
_OF_PLAN = 2  # of them as planned, at first
_GRACE = 0.5  # of the time between two instructions, by which a mark may be late before what follows it is held back


class RankExecution:
    """Requests of one rank's GPU.

    Args:
        device: the GPU.
        steps: what the rank runs in an iteration.
        period_s: time of an iteration, as planned.
        switching: how long the GPU takes to switch.
        dry_run: only pretend.

    Attributes:
        due_s: when to call :meth:`act` next; infinite for never.
        target: the setting requested.
        requests: how many there were.
        out_of_order: instructions that came in another order than planned.
        over: whether the clocks were given back.
    """

    def __init__(
        self, device: Device, steps: Sequence[Step], period_s: float, switching: SwitchTime, *, dry_run: bool = False
    ) -> None:
        self.device = device
        self._switching, self._dry_run = switching, dry_run
        self._place = {(s.instruction.name, s.instruction.micro_batch, s.instruction.stage): i for i, s in enumerate(steps)}
        self.follow(steps, period_s)
        self.due_s, self.target, self.requests, self.out_of_order = math.inf, AUTO, 0, 0
        self.at: int | None = None
        self._began_s = -math.inf
        self.over = False

    def follow(self, steps: Sequence[Step], period_s: float) -> None:
        """Run the same instructions in other ways from now on.

        Args:
            steps: the same instructions in the same order.
            period_s: time of an iteration, as planned.
        """
        self.steps = tuple(steps)
        begins = [step.start_s for step in steps]
        until = [*begins[1:], period_s + begins[0]]
        self._planned_s = [max(end - begin, 0.0) for begin, end in zip(begins, until, strict=True)]
        # The plan counts as two iterations: a first one that is unlike the others, as it sets up connections, is outvoted.
        self._took_s = [deque([planned_s] * _OF_PLAN, maxlen=_REMEMBERED) for planned_s in self._planned_s]

    def place(self, name: str, micro_batch: int, stage: int | None = None) -> int | None:
        """Index of an instruction among :attr:`steps`; ``None`` where the plan has none such.

        Args:
            name: of the instruction.
            micro_batch: from 0.
            stage: of the model; needed only where the rank holds several.
        """
        if stage is not None:
            return self._place.get((name, micro_batch, stage))
        stages = {step.instruction.stage for step in self.steps}
        found = [self._place[key] for each in stages if (key := (name, micro_batch, each)) in self._place]
        return found[0] if len(found) == 1 else None

    def begin(self, place: int, now_s: float) -> None:
        """The GPU begins an instruction.

        Args:
            place: its index among :attr:`steps`.
            now_s: when.
        """
        if self.at is not None:
            if place == (self.at + 1) % len(self.steps):
                self._took_s[self.at].append(now_s - self._began_s)
            else:
                self.out_of_order += 1
        self.at, self._began_s = place, now_s
        self._plan_next(now_s)

    def act(self, now_s: float) -> bool:
        """Make the request that is due; returns whether there was one."""
        if self.over or self.at is None or now_s < self.due_s:
            return False
        return self._plan_next(now_s)

    def release(self, now_s: float) -> None:
        """Give the clocks back, and request nothing any more."""
        self.over, self.due_s = True, math.inf
        self._request(AUTO)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _plan_next(self, now_s: float) -> bool:
        """Request what should be in effect by when a request arrives that is made now; find out when the next one is due."""
        if self.over:
            return False
        assert self.at is not None
        follows_s = self._began_s + self._between_s(self.at)
        held_from_s = max(follows_s + _GRACE * self._between_s(self.at), now_s)
        wanted = self.steps[self.at].stays[0].setting
        before, self.due_s = wanted, math.inf
        for moment_s, setting in self._changes():
            request_s = moment_s - self._lead_s(before, setting)
            if request_s <= now_s:
                wanted = setting
            elif request_s <= held_from_s:
                self.due_s = request_s
                break
            else:
                break
            before = setting
        return self._request(wanted)

    def _changes(self) -> Iterator[tuple[float, Setting]]:
        """When other settings are wanted from the latest mark on, through two iterations at most."""
        assert self.at is not None
        begin_s = self._began_s
        setting = self.steps[self.at].stays[0].setting
        for count in range(2 * len(self.steps)):
            index = (self.at + count) % len(self.steps)
            for stay in self.steps[index].stays:
                if stay.setting != setting:
                    setting = stay.setting
                    yield begin_s + stay.offset_s, setting
            begin_s += self._between_s(index)

    def _between_s(self, index: int) -> float:
        """Time from the begin of an instruction to that of the next."""
        return median(self._took_s[index])

    def _lead_s(self, before: Setting, after: Setting) -> float:
        """How long before it is wanted a setting is requested."""
        faster = _speed(after) > _speed(before)
        caution = (1.0 if faster else -1.0) * CAUTION[faster]
        return self._switching.latency_s(before, after) * math.exp(caution * self._switching.jitter)

    def _request(self, setting: Setting) -> bool:
        if setting == self.target:
            return False
        if not self._dry_run:
            self.device.clocks.request(setting)
        self.target = setting
        self.requests += 1
        return True


def _speed(setting: Setting) -> tuple[float, ...]:
    """What settings are compared by: a part that is auto is the fastest."""
    parts = (setting.core_mhz, setting.memory_mhz, setting.power_limit_w)
    return tuple(math.inf if part is None else part for part in parts)

"""What a controller asks of a simulated cluster: each action is done, or refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wastenot.serving.cluster import classes, model
from wastenot.serving.cluster.model import InstanceState as State
from wastenot.serving.cluster.simulation import core
from wastenot.serving.cluster.simulation.fleet import IN_USE, Fleet, Instance, Resharding
from wastenot.serving.model.engine import Engine


class _RefusedError(Exception):
    """An action that cannot be done."""


class Actions:
    """Does them.

    Args:
        fleet: on which.
        router: where a :class:`Route <wastenot.serving.cluster.model.Route>` names none.
    """

    def __init__(self, fleet: Fleet, router: model.Router) -> None:
        self.fleet, self.router = fleet, router
        self._checked: dict[int, model.ClockRule] = {}

    def act(self, now_s: float, actions: Sequence[model.Action], *, begins: bool = False) -> None:
        """Do what can be done of some actions; the log says what was refused, and why."""
        for action in actions:
            refused = ""
            try:
                self._do(action, now_s, begins)
            except _RefusedError as why:
                refused = str(why)
            self.fleet.log.append(model.LoggedAction(now_s, action, refused))

    def _do(self, action: model.Action, now_s: float, begins: bool) -> None:  # noqa: PLR0912 - one case for each action
        match action:
            case model.Start():
                self._start(action, now_s, begins)
            case model.Stop():
                each = self._of(action.instance, State.SERVING, State.PARKED, State.DRAINING, State.STARTING, State.WAKING)
                if isinstance(each.after, Resharding):
                    raise _RefusedError(f"instance {action.instance} is being re-sharded")
                if each.state == State.SERVING:
                    self.fleet.drain(action.instance, None, now_s)
                elif each.state == State.DRAINING:
                    each.after = None
                else:
                    self.fleet.away(action.instance, State.OFF, now_s)
            case model.Park():
                each = self._of(action.instance, State.SERVING)
                self.fleet.drain(action.instance, State.PARKED, now_s)
            case model.Wake():
                each = self._of(action.instance, State.PARKED, State.DRAINING)
                if each.state == State.DRAINING:
                    if each.after != State.PARKED:
                        raise _RefusedError(f"instance {action.instance} is not draining to be parked")
                    each.after = None
                    self.fleet.turn(action.instance, State.SERVING, now_s)
                else:
                    self.fleet.away(action.instance, State.WAKING, now_s, now_s + self.fleet.cluster.changes.wake_s)
            case model.Reshard():
                self._begin_reshard(action, now_s)
            case model.Assign():
                each = self._of(action.instance, *IN_USE)
                self._check_pool(action.pool)
                each.pool = self.fleet.known[2, action.instance] = action.pool
                self.fleet.stale = True
            case model.SetClock():
                each = self._of(action.instance, *IN_USE)
                self._check_rule(action.clock, each.layout)
                self.fleet.set_clock(action.instance, action.clock)
                core.act(core.HEED, self.fleet.arrays, action.instance, now_s, 0.0)
            case model.Route():
                self._set_route(action)

    def _set_route(self, route: model.Route) -> None:
        if len(route.pools) != classes.COUNT:
            raise _RefusedError(f"routes for {len(route.pools)} classes; there are {classes.COUNT}")
        for pools in route.pools:
            for pool in pools:
                self._check_pool(pool)
        if any(each < 0 for each in route.room):
            raise _RefusedError("room for fewer than no requests")
        if any(each < 1 for each in route.hold):
            raise _RefusedError("instances that hold before the first token of a prompt waits")
        fleet = self.fleet
        fleet.routes, fleet.room, fleet.hold, fleet.stale = route.pools, route.room, route.hold, True
        numbers = fleet.numbers
        numbers.holds = bool(route.hold)
        numbers.router = int(self.router if route.router is None else route.router)

    def _of(self, number: int, *states: State) -> Instance:
        """An instance that is in one of these states."""
        if not 0 <= number < len(self.fleet.instances):
            raise _RefusedError(f"there is no instance {number}")
        each = self.fleet.instances[number]
        if each.state not in states:
            raise _RefusedError(f"instance {number} is {each.state.name.lower()}")
        return each

    def _check_pool(self, pool: int) -> None:
        if not 0 <= pool < 1 << 16:
            raise _RefusedError(f"there can be no pool {pool}")

    def _check_layout(self, layout: int) -> Engine:
        if not 0 <= layout < len(self.fleet.cluster.layouts):
            raise _RefusedError(f"there is no layout {layout}")
        return self.fleet.cluster.layouts[layout]

    def _check_rule(self, rule: model.ClockRule | model.Steered, layout: int) -> None:
        if self._checked.get(layout) is rule or isinstance(rule, model.Steered):
            return
        engine = self.fleet.cluster.layouts[layout]
        settings = len(engine.tables.settings)
        if len(rule.by_batch) != engine.most_running + 1:
            raise _RefusedError(
                f"a clock rule for batches up to {len(rule.by_batch) - 1}; layout {layout} has {engine.most_running}"
            )
        named = (*rule.by_batch, rule.prompts, *rule.backlog)
        if not (min(named) >= 0 and max(named) < settings):
            raise _RefusedError(f"a clock rule with an unknown setting; settings are 0 to {settings - 1}")
        self._checked[layout] = rule

    def _start(self, action: model.Start, now_s: float, begins: bool) -> None:
        engine = self._check_layout(action.layout)
        self._check_pool(action.pool)
        if action.clock is not None:
            self._check_rule(action.clock, action.layout)
        # The fullest host that has room, so that others stay whole.
        room = np.where(self.fleet.free >= engine.gpus, self.fleet.free, self.fleet.cluster.gpus_per_host + 1)
        host = int(np.argmin(room))
        if room[host] > self.fleet.cluster.gpus_per_host:
            raise _RefusedError(f"no host has {engine.gpus} free GPUs")
        number = self.fleet.new(action.layout, action.pool, host, action.clock, State.STARTING, now_s)
        if begins:
            self.fleet.begin(number, now_s)
        else:
            core.act(core.LEAVE, self.fleet.arrays, number, now_s, now_s + self.fleet.cluster.changes.start_s[action.layout])

    def _begin_reshard(self, action: model.Reshard, now_s: float) -> None:
        self._check_pool(action.pool)
        if not action.instances or not action.layouts or len(set(action.instances)) != len(action.instances):
            raise _RefusedError("re-sharding takes at least one instance, each at most once, and makes at least one")
        each = [self._of(number, State.SERVING) for number in action.instances]
        if len({one.host for one in each}) > 1:
            raise _RefusedError("instances of several hosts cannot be re-sharded together")
        gpus = sum(self.fleet.cluster.layouts[one.layout].gpus for one in each)
        wanted = sum(self._check_layout(layout).gpus for layout in action.layouts)
        if wanted > gpus:
            raise _RefusedError(f"{wanted} GPUs are requested from instances that have {gpus}")
        resharding = Resharding(action)
        for number in action.instances:
            self.fleet.drain(number, resharding, now_s)

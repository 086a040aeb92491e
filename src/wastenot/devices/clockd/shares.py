"""The shares of this machine's GPUs in the budgets of the policy, as the event loop of wastenotd sets them each second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf

from wastenot.core.errors import BadInputError
from wastenot.devices.clockd.budget import Budget, Frontier, Seen
from wastenot.devices.clockd.gpu_leases import GpuLeases
from wastenot.devices.clockd.log_lines import Log, Repeats
from wastenot.devices.clockd.policy import Gpus, Policy, fits
from wastenot.devices.clockd.refused import RefusedError
from wastenot.devices.clockd.worker import Job, nobody
from wastenot.devices.common.gpu_driver import Missing

_TURN_S = 1.0  # about as long as cards take to keep a lower limit, and average their readings over


class Shares:
    """The shares of GPUs.

    Args:
        served: by UUID, those that answer.
        missing: by index, those that do not.
        now_s: the clock.
        log: takes what happened, and fields.

    Attributes:
        budgets: by the GPUs that share them.
    """

    def __init__(
        self, served: Mapping[str, GpuLeases], missing: Mapping[int, Missing], now_s: Callable[[], float], log: Log
    ) -> None:
        self.budgets = dict[Gpus, Budget]()
        self._served, self._missing, self._now_s, self._log = served, missing, now_s, log
        self._turned_s, self._repeats = -inf, Repeats(now_s)

    def take_policy(self, policy: Policy) -> None:
        """Hold the budgets of a policy from now on.

        Raises:
            BadInputError: a GPU would share two, or GPUs cannot keep theirs; what held before holds.
        """
        for gpus, budget_w in policy.budgets:
            served = [each for each in self._served.values() if fits(gpus, each.gpu)]
            for each in served:
                if sum(fits(others, each.gpu) for others, _ in policy.budgets) > 1:
                    raise BadInputError(f"[[budget]]: {each} is in more than one; name each GPU in one 'gpus'")
            least_w = sum(each.power.least_w for each in served if each.power is not None)
            if budget_w < least_w:
                raise BadInputError(
                    f"[[budget]]: budget_w {budget_w:g}: its {len(served)} GPUs cannot be kept below {least_w:g} W: their "
                    "lowest power limits, and of those that have none that can be set, the one in force"
                )
        before, self.budgets = self.budgets, {}
        for gpus, budget_w in policy.budgets:
            self.budgets[gpus] = before.get(gpus) or Budget(budget_w)
            self.budgets[gpus].budget_w = budget_w
        for left in self._served.values():
            if any(fits(gpus, left.gpu) for gpus in before) and not self.has(left.gpu.uuid):
                left.worker.put(Job(partial(left.take_share, None), nobody))

    def has(self, uuid: str) -> bool:
        """Whether a GPU shares a budget."""
        return any(fits(gpus, self._served[uuid].gpu) for gpus in self.budgets)

    def tell_frontier(self, owner: object, uuid: str, frontier: Frontier) -> None:
        """Take the frontier of the job that a connection's lease is for.

        Raises:
            RefusedError: it has no lease of the GPU.
        """
        served = self._served[uuid]
        if served.lease is None or served.holder() is not owner:
            raise RefusedError("lost", f"{uuid}: acquire its lease first")
        served.frontier = served.lease, frontier

    def numbers(self) -> dict[str, tuple[float | None, float, float, float]]:
        """By UUID of GPUs that share: power, limit, what it gives of its fair share, and whether it disobeys."""
        return {
            uuid: (
                each.drawn_w, each.limit_w, budget.fair_w[uuid] - budget.targets_w[uuid],
                budget.disobeys(uuid, self._now_s()),
            )
            for gpus, budget in self.budgets.items()
            for uuid, each in self._seen(gpus).items()
            if uuid in budget.targets_w
        }  # fmt: skip

    def look_after(self) -> float:
        """Look at the power of the GPUs that share, and set their limits, if that is due; when it is again."""
        now_s = self._now_s()
        if not self.budgets:
            return inf
        if now_s - self._turned_s >= _TURN_S:
            self._turned_s = now_s
            for gpus, budget in self.budgets.items():
                self._turn(now_s, gpus, budget)
        return self._turned_s + _TURN_S

    def _turn(self, now_s: float, gpus: Gpus, budget: Budget) -> None:
        seen, was_short = self._seen(gpus), budget.short_w > 0.0
        moves = budget.turn(now_s, seen)
        if (budget.short_w > 0.0) is not was_short:
            self._log("budget cannot be kept" if budget.short_w else "budget is kept", budget_w=budget.budget_w)
        for uuid in seen.keys() & self._served.keys():
            worker, served = self._served[uuid].worker, self._served[uuid]
            if budget.disobeys(uuid, now_s) and self._repeats.is_news(uuid, "disobeys"):
                self._log("disobeys its limit", gpu=uuid, drawn_w=seen[uuid].drawn_w, limit_w=seen[uuid].limit_w)
            if uuid in moves:
                worker.once("share", partial(served.take_share, moves[uuid]))
            worker.once("power", served.read_power)

    def _seen(self, gpus: Gpus) -> dict[str, Seen]:
        """What is known of GPUs that share; one that has never answered counts at the most that any other may draw."""
        seen, silent = (
            dict[str, Seen](),
            [each.name for index, each in self._missing.items() if gpus is None or index in gpus],
        )
        for uuid, served in self._served.items():
            if not fits(gpus, served.gpu):
                continue
            if served.power is None:
                silent.append(uuid)
            else:
                frontier, user = served.told_frontier()
                drawn_w = None if served.worker.hung else served.power.drawn_w
                seen[uuid] = replace(served.power, drawn_w=drawn_w, frontier=frontier, user=user)
        most_w = max((each.limits_w[1] for each in seen.values()), default=0.0)
        return seen | dict.fromkeys(silent, Seen((most_w, most_w), most_w, settable=False))

"""Our controller: deadlines are the constraint, energy the objective, and what is not needed now waits awake, in reserve.

    5 min     instances that are there: enough for what is forecast until new ones could have started, and head-room; all
              that there are GPUs for where nothing is forecast
    5 s       instances in use: the number of least power for the load of the moment; the others are the reserve
    a step    the clock: low, and climbing with the backlog of prompts, in the reserve from the lowest level on

    instances      off ──start (minutes)──► in use ◄──at once──► reserve ◄──park / wake (tens of ms)──► parked
                       `_resize`, 5 min               `_steer`, 5 s             `_rest`, where parked ones draw less
    pools                                     0              1: one    2: the others

    n in use       the least power of n instances at rate / n each, plus idle ones, among those n that could take the rate
                   and its head-room, as evenly loaded as all that are there (`_fewest_watts`, from frontiers of power)

All classes share the instances, which evens out the load. Prompts go to the reserve once instances in use have a few waiting
(``SPILL``), without a visit of the controller, and to one instance of it first: alone on several they would cost far more.
Where all have a few waiting, the router holds the others, by deadline, until one has room. More are used as soon as more
are needed, fewer only when fewer were enough for a while. When prompts pile up, instances fail or a class nears the misses
allowed (``CAREFUL``), all are used at the maximum clock. In an emergency as many are started as the load of the moment
needs, and again few prompts wait on an instance, so that instances that come have work at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.planning.tariff import DAY_S, Tariff
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.demand import Demand, SlidingMaximum
from wastenot.serving.cluster.frontiers import InstanceFrontier, greatest, rule_at
from wastenot.serving.cluster.model import (
    Action,
    Assign,
    Cluster,
    ClusterView,
    InstanceState,
    Park,
    Route,
    Router,
    SetClock,
    Start,
    Stop,
    Wake,
)
from wastenot.serving.cluster.pools import SWING, PoolPlan, planned, power_by_count
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.tariffs import start_outweighed_s

# Where no reason is given, chosen by hand while the controller was tried in the simulator; how results depend on each was
# not recorded. `docs/judged-serving.md` has the results: a whole week, and flash crowds with three seeds.

PATIENCE = 0.6
"""Of the longest bound on the time to the first token: waiting prompts that take an instance longer are an emergency."""
REMEMBERED_S = 600.0
"""Time constant over which misses, and the work of a request, are forgotten."""
NEAR = 0.02
"""A load so little above a level is taken for it; by default levels are a twelfth or a sixth of the capacity apart."""
WINDOWS_S = (20.0, 60.0)
"""Over which the load of the moment is averaged; the higher mean counts, so that it is quick to rise and slow to fall. Of λ
requests/s the shorter mean has a relative error of 1 / √(20 λ): 5 % at 20 a second."""
FEW = 200.0
"""Requests of a class of which a miss more or less says little: in fewer, a miss counts as one of these few, which is half
of the misses that 99 % leave."""
ANSWERS = 2.0
"""Work of an answer's token, in tokens of prompts."""
FEW_CAME = 1000.0
"""Requests that say half of how much work a request is: that many of the planned work are added to those that came."""
ENOUGH = 5000.0
"""Requests answered lately that say how many deadlines are missed: of 1 % that may be, 50 with a standard error of 7."""
USED = (0.0, 0.4, 1.0)
"""Of the misses that are allowed: where the load is taken for less, for more by the margin, and for far more than it is.
With the default margin it is multiplied with 0.95, 1.05 and 1.20, linearly in between (:meth:`_raised`)."""
SPILL = 0.4
"""Of the shortest bound on the time to the first token, that prompts which wait may take of an instance in use before others
go to the reserve: at once, without a visit of the controller. On traces that shaped it, 0.2 cost up to a sixth more energy,
and 0.6 missed deadlines."""
SURGE = 4.0
"""Times the load of a minute that instances in use and in reserve can take at once; further ones may be parked."""
CAREFUL = ((0.7, 2.0), (0.4, 1.0))
"""Of the misses that are allowed to a class, and how many more may be chance: beyond the first, all instances are used at
the maximum clock, until there are fewer than the second."""
HOLD_STEPS = (32, 4)
"""Steps' worth of prompts that wait on an instance before it gets no more: so that clocks can climb, and in an emergency.
Rules have levels from 1, 2, 4 … 64 steps on, and ladders that begin to climb at once or at 2 steps are at their top at 16 or
32. In an emergency clocks are at their top in any case, and what the router holds goes to whoever has room first, an
instance that just came included; 4 steps keep an instance busy until its next event, when more is released to it."""
LATE = 0.05
"""Of the requests that came since the last visit: if that many that are held are late, it is an emergency at once."""
MISSED = 0.05
"""Of the requests answered between two visits, or of ``FEW``: if that many missed a deadline twice, it is an emergency.
Raised from 2 % for fewer alarms in calm hours."""
EMERGENCY_S = 10.0
"""Over which the load of the moment is averaged in an emergency: two visits."""
CHANCE = 3.0
"""Standard deviations of independent arrivals over this time that may be chance. A Poisson count N varies by √N, so that a
rate over T seconds varies by √(rate / T). At a load that is just what instances can take, one visit in 740 is beyond 3:
about one an hour."""
EMERGENCY_ROOM = 0.5
"""Of the load that instances could take in an emergency, above that of the moment: those that are started have what was held
meanwhile to catch up with. Raised from 0.25 by hand."""
PLAN_S = 300.0
"""Between two looks at how many instances are to be there: a slot of the forecast (``forecast.SLOT_S``)."""
BURSTS_S = 1800.0
"""Time over which bursts are remembered."""
UNSEEN = 1.3
"""Of the usual load, a burst to be expected before any is seen: it counts as seen ``BURSTS_S / 2`` before the begin."""
UNKNOWN_SWING = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Multiples of the load that the layout is chosen for where no time is known to be like another."""
_ALIKE = Tariff.hourly(1.0)
"""Energy costs the same at all times."""
_THERE = (InstanceState.STARTING, InstanceState.SERVING, InstanceState.PARKED, InstanceState.WAKING)


@dataclass(slots=True, eq=False)
class Parking:
    """Instances that are woken and parked as the load goes, at the cheapest clocks that keep the deadlines.

    Attributes:
        profiles: of the cluster.
        demand: that is expected.
        name: for tables and pictures.
        margin: of the load that clocks are chosen for, above that of the moment; it grows when deadlines are missed, and the
            load is taken for less by as much when they are not.
        head_room: of the load that serving instances could take, above that of the moment.
        reserve: of the load that instances which are there could take, above what is forecast; more where there were bursts.
        lasts_s: that fewer instances must have been enough before some are parked.
        alarm_s: that an emergency lasts after its last sign.
        tariff: what energy costs over time, which decides when a start is worth its cost; the same at all times by default.
    """

    profiles: Profiles
    demand: Demand
    name: str = "parking"
    margin: float = 0.05
    head_room: float = 0.15
    reserve: float = 0.1
    lasts_s: float = 60.0
    alarm_s: float = 10.0
    period_s: float = 5.0
    tariff: Tariff | None = None
    _plan: PoolPlan = field(init=False, repr=False)
    _plan_s: float = field(init=False, repr=False)
    _needed: SlidingMaximum = field(init=False, repr=False)
    _awake: SlidingMaximum = field(init=False, repr=False)
    _alarm_s: float = field(init=False, repr=False)
    _alarm: bool = field(init=False, repr=False)
    _short: float = field(init=False, repr=False)
    _reserve: bool = field(init=False, repr=False)
    _piled: bool = field(init=False, repr=False)
    _failed: int = field(init=False, repr=False)
    _has_reserve: bool = field(init=False, repr=False)
    _careful: bool = field(init=False, repr=False)
    _bursts: SlidingMaximum = field(init=False, repr=False)
    _outcome: FloatArray = field(init=False, repr=False)
    _rule: dict[int, int] = field(init=False, repr=False)
    _usual_work: float = field(init=False, repr=False)
    _came: FloatArray = field(init=False, repr=False)

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """The layout of least power for a day's load, instances for what is forecast for the first minutes, all awake."""
        peak = self.demand.peak(0.0, cluster.changes.start_s[0] + 2 * PLAN_S)
        usual = self.demand.expected(0.0, DAY_S)
        self._plan = planned(
            self.profiles,
            usual,
            usual * (1 + self.reserve),
            spare_gpu_w=self._idle_gpu_w,
            swing=UNKNOWN_SWING if self.demand.one_rate else SWING,
            all_awake=self.demand.one_rate,
        )
        self._plan_s, self._alarm_s, self._short = PLAN_S, -math.inf, math.inf
        self._needed, self._awake = SlidingMaximum(self.lasts_s), SlidingMaximum(self.lasts_s)
        self._alarm = self._has_reserve = self._careful = False
        self._piled, self._failed, self._outcome, self._rule = False, 0, np.zeros((2, COUNT)), {}
        mix = self.profiles.mix(self._plan.blend)
        self._usual_work, self._came = mix.prompt + ANSWERS * mix.output, np.zeros(2)
        self._bursts = SlidingMaximum(BURSTS_S)
        self._bursts.add(-BURSTS_S / 2, UNSEEN)
        start = Start(self._plan.layout, 0, greatest(cluster.layouts[self._plan.layout]))
        return [*[start] * self._there(peak), self._route(alarm=False, reserve=False)]

    def control(self, view: ClusterView) -> Sequence[Action]:
        """What the load of the moment asks for, and every five minutes what is forecast."""
        self.demand.see(view)
        self._note_burst(view.now_s)
        keep = math.exp(-self.period_s / REMEMBERED_S)
        self._outcome = keep * self._outcome + np.stack([view.finished, view.missed])
        came = view.arrived_prompt_tokens + ANSWERS * view.arrived_output_tokens
        self._came = keep * self._came + np.array([came.sum(), view.arrivals.sum()])
        failed = int((view.state == InstanceState.FAILED).sum())
        lost, self._failed = failed > self._failed, failed
        late = view.held_late.sum() > LATE * max(view.arrivals.sum(), 1)
        over = late or self._beyond(view)
        if self._lasting(view) or over or lost:
            self._alarm_s = view.now_s + self.alarm_s
        before, self._alarm = self._alarm, view.now_s < self._alarm_s
        actions: list[Action] = []
        if over or lost or view.now_s >= self._plan_s - 1e-9 or self._free(view) > self._short:
            self._plan_s = view.now_s + PLAN_S
            actions += self._resize(view, self._for_now() if over else 1)
        steered = list(self._steer(view, self._alarm))
        if self._alarm != before or self._has_reserve != self._reserve:
            actions.append(self._route(alarm=self._alarm, reserve=self._has_reserve))
        return [*actions, *steered]

    def _route(self, *, alarm: bool, reserve: bool) -> Route:
        step = self.profiles.cluster.layouts[self._plan.layout].most_step_tokens
        hold = HOLD_STEPS[alarm] * step
        spill = int(SPILL * min(self.profiles.cluster.deadlines.ttft_s) / self._token_s()) if reserve and not alarm else hold
        self._reserve = reserve
        return Route(((0, 1, 2),) * COUNT, router=Router.LEAST_TOKENS, hold=(spill, spill, spill))

    @property
    def _heavier(self) -> float:
        """Work of a request as they came lately, over that of those that the plan was made for; near 1 while few came."""
        work, count = self._came
        return (work / self._usual_work + FEW_CAME) / (count + FEW_CAME)  # type: ignore[no-any-return]

    # ---- instances that are there -----------------------------------------------------------------------------------

    @property
    def _gpus(self) -> int:
        """Of an instance."""
        return self.profiles.cluster.layouts[self._plan.layout].gpus

    @property
    def _idle_gpu_w(self) -> float:
        """What a GPU of the reserve draws."""
        return self.profiles.cluster.layouts[0].idle_gpu_w

    @property
    def _most(self) -> int:
        """Instances that all hosts have GPUs for."""
        return self.profiles.cluster.most(self._plan.layout)

    def keeps(self) -> tuple[int, float]:
        """The layout, chosen when the run begins, and the rate that instances on all GPUs take of requests as expected."""
        return self._plan.layout, self._most * self._known(self._most).capacity_per_s

    def _known(self, instances: int) -> InstanceFrontier:
        return self._plan.frontier(self.profiles, instances)

    def _there(self, peak_per_s: FloatArray) -> int:
        """Instances that are to be there for a peak: those of least power, the others off; all where no peak is known."""
        if self.demand.one_rate:
            return self._most
        rate = float(peak_per_s.sum()) * self._heavier
        upper = rate * max(1 + self.reserve, self._bursts.greatest)
        return max(self._fewest_watts(self._known, rate, upper, self._most, 0.0), 1)

    def _note_burst(self, now_s: float) -> None:
        """The load of the moment beside that of some minutes, or what is expected now: a rise that was foreseen is none."""
        usual = max(float(self.demand.recent(PLAN_S).sum()), float(self.demand.expected(now_s, now_s).sum()))
        if now_s >= PLAN_S and usual > 0:
            self._bursts.add(now_s, float(self.demand.recent(WINDOWS_S[0]).sum()) / usual)
        self._bursts.forget(now_s)

    def _free(self, view: ClusterView) -> int:
        """Instances that hosts have GPUs for."""
        return int((view.free_gpus // self._gpus).sum())

    def _beyond(self, view: ClusterView) -> bool:
        """Whether more comes than all instances that are there can take, by more than chance."""
        rate, there = float(self.demand.recent(EMERGENCY_S).sum()), int(np.isin(view.state, _THERE).sum())
        surely = (rate - CHANCE * math.sqrt(rate / EMERGENCY_S)) * self._heavier
        return surely > there * self._known(max(there, 1)).capacity_per_s

    def _for_now(self) -> int:
        """Instances that the load of the moment needs in an emergency."""
        rate = max(float(self.demand.recent(window_s).sum()) for window_s in (EMERGENCY_S, *WINDOWS_S)) * self._heavier
        most, count = self._most, 1
        while count < most and count * self._known(count).capacity_per_s < rate * (1 + EMERGENCY_ROOM):
            count += 1
        return count

    def _resize(self, view: ClusterView, least: int) -> Iterator[Action]:
        """Start what will be needed by the time that it serves; stop what stays parked longer than a start is worth.

            now ──────── start_s ──── + PLAN_S ─────────────── pays_s ──── + PLAN_S
            ├── peak: start what is missing ──┤                                   │
            ├── peak: stop the parked instances that not even this needs ─────────┤

        For an instance that is needed again before ``pays_s``, another start would take more energy than staying parked.
        """
        changes, layout = self.profiles.cluster.changes, self._plan.layout
        start_s = changes.start_s[layout]
        soon = max(self._there(self.demand.peak(view.now_s, view.now_s + start_s + PLAN_S)), least)
        powers_w = max(changes.parked_power_w, 1.0), changes.start_power_w
        pays_s = start_s + start_outweighed_s(self.tariff or _ALIKE, view.now_s, *powers_w, start_s)
        later = self._there(self.demand.peak(view.now_s, view.now_s + pays_s + PLAN_S))
        own, free = np.flatnonzero(np.isin(view.state, _THERE)), self._free(view)
        start = Start(layout, 0, greatest(self.profiles.cluster.layouts[layout]))
        self._short = free if soon - len(own) > free else math.inf
        yield from [start] * min(soon - len(own), free)
        # Parked ones first, then those of the reserve.
        parked = own[view.state[own] == InstanceState.PARKED]
        reserve = own[(view.state[own] == InstanceState.SERVING) & (view.pool[own] > 0)]
        for instance in [*parked.tolist(), *reserve.tolist()][: max(len(own) - max(soon, later), 0)]:
            yield Stop(instance)

    # ---- instances that serve ---------------------------------------------------------------------------------------

    def _steer(self, view: ClusterView, alarm: bool) -> Iterator[Action]:
        """Wake or park, and set clocks."""
        serving = view.state == InstanceState.SERVING
        used, spare = np.flatnonzero(serving & (view.pool == 0)), np.flatnonzero(serving & (view.pool > 0))
        spare = spare[np.lexsort((-view.running[spare], view.pool[spare]))]  # first the one that takes what spills
        parked = np.flatnonzero((view.state == InstanceState.PARKED) | (view.state == InstanceState.DRAINING))
        waking = int((view.state == InstanceState.WAKING).sum())
        most = len(used) + len(spare) + waking + len(parked)
        rate = max(float(self.demand.recent(window_s).sum()) for window_s in WINDOWS_S) * self._heavier * self._raised()
        # What instances in use have no room for at once goes to the reserve: the load of each is as even as that of all.
        known = self._known(most)
        target = most
        if not (alarm or self._careful):
            target = self._fewest_watts(lambda _: known, rate, rate * (1 + self.head_room), most, self._idle_gpu_w)
        self._needed.add(view.now_s, max(target, min(most, 1)))
        target = int(self._needed.greatest)  # as many as were needed in the last ``lasts_s``
        if target > len(used):
            moved = spare[: target - len(used)].tolist()
            yield from (Assign(each, 0) for each in moved)
            used, spare = np.union1d(used, moved).astype(np.intp), spare[len(moved) :]
        elif target < len(used):
            quiet = sorted(used.tolist(), key=lambda each: (view.running[each] + view.waiting[each], -each))
            quiet = quiet[: min(len(used) - target, len(used) - 1)]
            used, spare = np.setdiff1d(used, quiet), np.append(spare, np.array(quiet, dtype=np.intp))
        self._has_reserve = bool(len(spare))
        yield from (
            Assign(each, 1 + bool(place)) for place, each in enumerate(spare.tolist()) if view.pool[each] != 1 + bool(place)
        )
        yield from self._rest(view, len(used) + waking, spare, parked, all_awake=target == most)
        yield from self._clock(used, rate / max(target, 1), known, alarm or self._careful)
        yield from self._clock(spare, 0.0, known, alarm or self._careful)

    def _rest(
        self, view: ClusterView, used: int, spare: IndexArray, parked: IndexArray, *, all_awake: bool
    ) -> Iterator[Action]:
        """Park of the reserve what not even a surge needs, where that draws less; wake what it does."""
        most, awake = used + len(spare) + len(parked), used + len(spare)
        keep = most
        if not all_awake and self.profiles.cluster.changes.parked_power_w < self._idle_gpu_w:
            surge = SURGE * float(self.demand.recent(WINDOWS_S[1]).sum()) * self._heavier
            keep = next((n for n in range(used + 1, most) if n * self._known(n).capacity_per_s >= surge), most)
        self._awake.add(view.now_s, keep)
        keep = int(self._awake.greatest)
        if keep > awake:
            back = sorted(parked.tolist(), key=lambda each: (view.state[each] == InstanceState.PARKED, each))
            yield from (Wake(each) for each in back[: keep - awake])
        idle = spare[(view.running[spare] + view.waiting[spare]) == 0]
        yield from (Park(each) for each in idle[: max(awake - keep, 0)].tolist())

    def _fewest_watts(
        self, known: Callable[[int], InstanceFrontier], rate: float, upper: float, most: int, spare_gpu_w: float
    ) -> int:
        """Instances that draw least at a rate, of those that could take a higher one; all where they are too few."""
        power = power_by_count(known, rate, upper, most)
        power -= spare_gpu_w * self._gpus * np.arange(most + 1)
        return int(power.argmin()) if np.isfinite(power).any() else most

    def _lasting(self, view: ClusterView) -> bool:
        """Whether prompts pile up or are held, or deadlines are missed, for longer than a visit."""
        piled_s = view.waiting_tokens[view.state == InstanceState.SERVING].max(initial=0) * self._token_s()
        piled = bool(view.unplaced) or piled_s > PATIENCE * max(self.profiles.cluster.deadlines.ttft_s)
        piled |= bool(view.missed.sum() > MISSED * max(view.finished.sum(), FEW))
        self._piled, lasting = piled, piled and self._piled
        return lasting

    def _token_s(self) -> float:
        """Of a token of a prompt at the maximum clock, in full steps."""
        engine = self.profiles.cluster.layouts[self._plan.layout]
        tokens = float(min(engine.most_step_tokens, engine.tables.prefill_tokens[-1]))
        return engine.tables.prefill(len(engine.tables.settings) - 1, tokens).time_s / tokens

    def _raised(self) -> float:
        """What the load of the moment is multiplied with: less than 1 while hardly any deadline is missed, else more.

        1 + margin × f, where f rises from −1 at no miss through 1 at 0.4 of those allowed to 4 at all of them, by the class
        that misses most. Before ``ENOUGH`` requests were answered, no miss yet says little, and f begins nearer to 1.
        """
        finished, missed = self._outcome
        allowed = 1 - self.profiles.cluster.deadlines.share
        used = float((missed / np.maximum(finished, FEW)).max()) / allowed  # of the misses that are allowed to a class
        share, chance = CAREFUL[self._careful]
        self._careful = bool((missed > share * allowed * finished + chance).any())
        unknown = max(1 - float(finished.sum()) / ENOUGH, 0.0)
        return 1 + self.margin * float(np.interp(used, USED, (2 * unknown - 1, 1.0, 4.0)))

    def _clock(self, serving: IndexArray, rate: float, known: InstanceFrontier, alarm: bool) -> Iterator[Action]:
        """The rule for the rate that each instance has; asked for again only where the level changed."""
        level = len(known.rate_per_s) if alarm else int(np.searchsorted(known.rate_per_s * (1 + NEAR), rate))
        rule = greatest(known.engine) if alarm else rule_at(known, rate / (1 + NEAR))
        for instance in serving.tolist():
            if self._rule.get(instance) != level:
                self._rule[instance] = level
                yield SetClock(instance, rule)

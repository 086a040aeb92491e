"""A cluster, what may be done with it, and what a controller sees of it.

An *instance* is an engine on GPUs of one host, of one of the *layouts* (parallel degrees) that the cluster knows. It
belongs to a *pool*; requests of a class go to the pools that the routes name for it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.documents import Count, NotNegative
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.simulation.policy import Policy


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """What changes of a cluster take.

    Attributes:
        start_s: from asking for an instance to its first step, by layout: host, weights, engine (minutes for 70B).
        reshard_s: from the last step of the old instances to the first of the new ones: weights over NVLink, engine.
        wake_s: of a parked instance, whose weights are in memory.
        off_power_w: of a GPU that is off or between tenants.
        parked_power_w: of a GPU of a parked instance (lowest clock, weights in memory).
        start_power_w: of a GPU while its instance starts or is re-sharded.
        host_power_w: of a host with at least one instance, whatever it does; 0 where only GPUs are counted.
    """

    start_s: tuple[float, ...]
    reshard_s: float = 3.0
    wake_s: float = 0.03
    off_power_w: float = 0.0
    parked_power_w: float = 60.0
    start_power_w: float = 120.0
    host_power_w: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """GPUs and what can run on them.

    Attributes:
        layouts: engines by rising parallel degree, all of one model and device; ``layouts[i].gpus`` divides a host's GPUs.
        hosts: of the cluster.
        gpus_per_host: of each.
        changes: what changes take.
        deadlines: of requests.
    """

    layouts: tuple[Engine, ...]
    hosts: int
    changes: ChangeTimes
    gpus_per_host: int = 8
    deadlines: Deadlines = LITERATURE

    @property
    def gpus(self) -> int:
        """Of all hosts."""
        return self.hosts * self.gpus_per_host

    def most(self, layout: int) -> int:
        """Instances of a layout that all hosts have GPUs for."""
        return self.hosts * (self.gpus_per_host // self.layouts[layout].gpus)


class InstanceState(enum.IntEnum):
    """What an instance is doing. Requests are routed to those that serve, and to no others."""

    OFF = 0
    STARTING = 1
    SERVING = 2
    DRAINING = 3  # finishes what it has, then goes off, is parked, or is re-sharded
    PARKED = 4
    WAKING = 5
    RESHARDING = 6
    FAILED = 7


@dataclass(frozen=True, slots=True, eq=False)
class ClockRule:
    """The clock of an instance between two visits of a controller, looked up before each step.

    Attributes:
        by_batch: setting while the step only decodes, by requests in the batch; shape (most_running + 1,), the first for an
            idle engine.
        prompts: setting while a prompt waits or is being prefilled.
        backlog: the same where one full step's worth of prompts or more is left to prefill, where 2, 4 … 64 are; the last
            holds beyond. By default as ``prompts``.
    """

    by_batch: IndexArray
    prompts: int
    backlog: tuple[int, ...] = ()

    @classmethod
    def fixed(cls, setting: int, engine: Engine) -> ClockRule:
        """One clock whatever happens."""
        return cls(np.full(engine.most_running + 1, setting, dtype=np.intp), setting)


@dataclass(frozen=True, slots=True, eq=False)
class Steered:
    """The clock of an instance is steered by a policy of its own, which is asked as that of a single engine is.

    Attributes:
        make: the policy of one instance.
    """

    make: Callable[[], Policy]


# ---- what a controller may ask for -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """An instance of a layout for a pool, wherever a host has GPUs to spare; refused, and logged, where none has."""

    layout: int
    pool: int
    clock: ClockRule | Steered | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """No new requests; once it is empty the instance is off, and its GPUs free."""

    instance: int


@dataclass(frozen=True, slots=True)
class Park:
    """No new requests; once it is empty the instance keeps its weights and sleeps."""

    instance: int


@dataclass(frozen=True, slots=True)
class Wake:
    """A parked instance serves again after ``wake_s``; one that drains in order to be parked serves at once."""

    instance: int


@dataclass(frozen=True, slots=True)
class Reshard:
    """Instances of one host become others on the same GPUs: each drains, then all take ``reshard_s`` together."""

    instances: tuple[int, ...]
    layouts: tuple[int, ...]
    pool: int


@dataclass(frozen=True, slots=True)
class Assign:
    """An instance belongs to another pool from now on; what it has it finishes."""

    instance: int
    pool: int


@dataclass(frozen=True, slots=True, eq=False)
class SetClock:
    """An instance follows another rule, or has another policy."""

    instance: int
    clock: ClockRule | Steered


@dataclass(frozen=True, slots=True)
class Route:
    """Pools that take the requests of each class, in order: the next one where those before have no room.

    Requests go to an instance at once, unless ``hold`` says how much may wait there; then the others are held at the router
    until there is room. Held requests go by the deadlines of their first tokens. Those that can no longer keep them come
    after all that can, and those whose answers were begun on a host that failed before all others.

    Attributes:
        pools: by class.
        room: by pool, requests that an instance may have for there to be room for one more; pools without one always have
            room. Where no pool has room, the first that can takes a request all the same.
        hold: by pool, tokens of prompts waiting on an instance at and above which it gets no further request; pools without
            one never hold.
        router: how an instance of a pool is chosen; ``None`` for that of the run.
    """

    pools: tuple[tuple[int, ...], ...]
    room: tuple[int, ...] = ()
    hold: tuple[int, ...] = ()
    router: Router | None = None


Action = Start | Stop | Park | Wake | Reshard | Assign | SetClock | Route


@dataclass(frozen=True, slots=True, eq=False)
class ClusterView:
    """A cluster at a visit of its controller. Arrays by instance have one row for each that ever was; look, do not write.

    Attributes:
        now_s: the time.
        state: of each instance, as :class:`InstanceState`; shape (instances,).
        layout: of each; shape (instances,).
        pool: of each; shape (instances,).
        host: of each; shape (instances,).
        setting: in effect on each; shape (instances,).
        running: requests that decode on each; shape (instances,).
        waiting: other requests on each; shape (instances,).
        waiting_tokens: of their prompts, still to be prefilled; shape (instances,).
        context: tokens in the cache of each; shape (instances,).
        free_gpus: of each host; shape (hosts,).
        arrivals: requests since the last visit, by class as predicted; shape (9,).
        arrived_prompt_tokens: theirs; shape (9,).
        arrived_output_tokens: theirs, as predicted; shape (9,).
        finished: requests since the last visit, by class as predicted; shape (9,).
        missed: of those, the ones that missed a deadline; shape (9,).
        unplaced: requests that wait at the router, since no instance could take them or had room.
        held: these by class as predicted; shape (9,).
        held_late: of those requests, the ones without a first token whose deadline for it is over; shape (9,).
    """

    now_s: float
    state: IndexArray
    layout: IndexArray
    pool: IndexArray
    host: IndexArray
    setting: IndexArray
    running: IndexArray
    waiting: IndexArray
    waiting_tokens: IndexArray
    context: IndexArray
    free_gpus: IndexArray
    arrivals: IndexArray
    arrived_prompt_tokens: IndexArray
    arrived_output_tokens: FloatArray
    finished: IndexArray
    missed: IndexArray
    unplaced: int
    held: IndexArray
    held_late: IndexArray


class Controller(Protocol):
    """Decides what runs where, at which clock. Small ones are put together to larger ones."""

    @property
    def name(self) -> str:
        """For tables and pictures."""

    @property
    def period_s(self) -> float:
        """Between two visits."""

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """What the run begins with: instances that are started here serve from the first moment on, at no cost."""

    def control(self, view: ClusterView) -> Sequence[Action]:
        """What to change now."""


class Router(enum.IntEnum):
    """How an instance of a pool is chosen for a request."""

    LEAST_REQUESTS = 0  # join the shortest queue; the first of several
    POWER_OF_TWO = 1  # the shorter of two drawn at random
    LEAST_TOKENS = 2  # fewest tokens still to be prefilled and, as predicted, made
    LEAST_ENERGY = 3  # least added energy a step by the tables at the clock for so many, of those that keep the deadlines


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """The controller of instances of the first layout that are there throughout, all with the same clock.

    Attributes:
        count: of them.
        clock: a rule that they follow, or what steers each of them.
        by_tokens: whether requests go where there are fewest tokens, however the run's router chooses.
    """

    count: int
    clock: ClockRule | Steered
    by_tokens: bool = False
    name: str = "alike"
    period_s: float = math.inf

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """Start them."""
        route = Route(((0,),) * COUNT, router=Router.LEAST_TOKENS if self.by_tokens else None)
        return [*[Start(0, 0, self.clock)] * self.count, route]

    def control(self, view: ClusterView) -> Sequence[Action]:
        """Nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A host that fails at a time, with all its instances; what they had comes to the router again."""

    host: Count
    at_s: NotNegative
    back_s: NotNegative | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoggedAction:
    """What was done, or befell, when, and what came of it.

    Attributes:
        at_s: when.
        action: of a controller, or a failure.
        refused: why it could not be done; empty where it was.
        rerouted: requests that came to the router again, of a failure.
    """

    at_s: float
    action: Action | Failure
    refused: str = ""
    rerouted: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ClusterTimeline:
    """A run by bins of time.

    Attributes:
        bin_s: their width.
        energy_j: of all that has power, in each; shape (bins,).
        gpus: by state, on average; shape (bins, 8).
        instances: that serve, by layout, on average; shape (bins, layouts).
        clock_mhz: mean ceiling of the core clock over GPUs that serve; shape (bins,).
        arrivals: by class; shape (bins, 9).
        missed: requests that came in the bin and missed a deadline, by class; shape (bins, 9).
    """

    bin_s: float
    energy_j: FloatArray
    gpus: FloatArray
    instances: FloatArray
    clock_mhz: FloatArray
    arrivals: IndexArray
    missed: IndexArray


@dataclass(frozen=True, slots=True, eq=False)
class ClusterServed:
    """One run of a cluster.

    Attributes:
        name: of the controller.
        instance: that answered each request, -1 for those that were given up; shape (requests,).
        sent_s: when each went from the router to that instance; shape (requests,).
        first_token_s: when each had its first token; shape (requests,).
        finish_s: when each had its last; shape (requests,).
        late_tokens: later than the bound after the one before; shape (requests,).
        end_s: of the run.
        energy_j: by what it was used for: ``prefill``, ``decode``, ``mixed``, ``idle``, ``parked``, ``changing`` (starting,
            waking, re-sharding), ``off``, ``hosts``.
        gap_counts: tokens by the gap before them, in the bins of the engine's simulator.
        switches: of clocks.
        log: all actions.
        timeline: by bins of time.
    """

    name: str
    instance: IndexArray
    sent_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    late_tokens: IndexArray
    end_s: float
    energy_j: dict[str, float]
    gap_counts: IndexArray
    switches: int
    timeline: ClusterTimeline
    log: Sequence[LoggedAction] = field(default_factory=list)

    @property
    def total_energy_j(self) -> float:
        """Of the whole run."""
        return sum(self.energy_j.values())

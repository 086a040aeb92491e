"""An engine: what its steps cost, how many requests and tokens it holds, and how it makes up its steps."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.serving.model.engine_tables import EngineTables


class Scheduler(enum.StrEnum):
    """Whose turn it is in an engine: which prompts its next step prefills, and who is preempted when its cache is full."""

    FCFS = "fcfs"
    """First come, first served: what a stock vLLM does."""
    PRIORITY = "priority"
    """vLLM's ``--scheduling-policy priority``, where a request's priority is the deadline of its first token. It orders
    those that wait, and the least urgent is preempted when the cache is full; a prompt that was begun is finished first."""
    DEADLINE = "deadline"
    """Prompts by the deadline of their first token, also between two chunks of another. No stock engine offers it."""

    @classmethod
    def named(cls, name: SchedulerName) -> Scheduler:
        """The one of a name.

        Raises:
            BadInputError: there is none.
        """
        if name not in tuple(cls):
            raise BadInputError(f"`scheduler` {name}: is not one of {', '.join(cls)}")
        return cls(name)


SchedulerName = Literal["fcfs", "priority", "deadline"]


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """One engine with continuous batching.

    Attributes:
        tables: what its steps cost.
        cache_blocks: of the key-value cache.
        block_tokens: tokens of a block.
        most_running: requests that may be in the batch (vLLM's ``max_num_seqs``).
        most_step_tokens: new tokens of one step (vLLM's ``max_num_batched_tokens``).
        chunked: whether prompts are prefilled in chunks beside decoding requests; otherwise whole, in steps of their own,
            which decoding requests wait for.
        scheduler: whose turn it is.
        switch_s: from the moment a clock is asked for to the moment it is in effect.
        overhead_s: of each step on the host, while the GPUs wait.
        launch_s: that the host takes to launch a step with prompts, while the GPUs run the one before (vLLM's asynchronous
            scheduling): GPUs that are done sooner wait for it at idle power.
        graph_launch_s: the same of steps of few enough tokens that they are launched as CUDA graphs.
        most_graph_tokens: of steps launched as graphs (vLLM's ``max_cudagraph_capture_size``).
        limit_w: power that all its GPUs exceed for a moment only: steps with prompts last longer then. ``None`` where none
            was met.
        gpus: its parallel degree.
        model: such as ``llama-8b``.
        device: such as ``sim:h200``.
        assumed_below_mhz: core clocks below this were neither measured nor fitted: what steps cost there is assumed.
            ``None`` where that is so of none.

    Raises:
        BadInputError: a time or a number that cannot be.
    """

    tables: EngineTables
    cache_blocks: int
    block_tokens: int = 16
    most_running: int = 256
    most_step_tokens: int = 2048
    chunked: bool = True
    scheduler: Scheduler = Scheduler.FCFS
    switch_s: float = 0.05
    overhead_s: float = 0.0
    launch_s: float = 0.0
    graph_launch_s: float = 0.0
    most_graph_tokens: int = 512
    limit_w: float | None = None
    gpus: int = 1
    model: str = ""
    device: str = ""
    assumed_below_mhz: float | None = None

    def __post_init__(self) -> None:
        if self.most_running < 1 or self.most_step_tokens < 1:
            raise BadInputError("`most_running` and `most_step_tokens` of an engine must be at least 1")
        for name in ("switch_s", "overhead_s", "launch_s", "graph_launch_s"):
            seconds = getattr(self, name)
            if not 0.0 <= seconds < float("inf"):
                raise BadInputError(f"`{name}` {seconds:g}: must be a number of seconds, at least 0")

    def assumes(self, setting: Setting) -> bool:
        """Whether what steps cost at a setting is assumed."""
        limit, core = self.assumed_below_mhz, setting.core_mhz
        return limit is not None and core is not None and bool(core < limit)

    @property
    def known_settings(self) -> tuple[int, ...]:
        """Places of the settings whose clocks were measured or fitted."""
        return tuple(place for place, setting in enumerate(self.tables.settings) if not self.assumes(setting))

    @property
    def idle_gpu_w(self) -> float:
        """What one of its GPUs draws with nothing to do, at the setting at which that is least."""
        return float(self.tables.idle_power_w.min()) / self.gpus

    def with_idle_power(self, power_w: float) -> Engine:
        """The same with another power of all its GPUs while it has nothing to do, at each setting."""
        return replace(self, tables=replace(self.tables, idle_power_w=np.full_like(self.tables.idle_power_w, power_w)))

    def within_known_clocks(self) -> Engine:
        """The same with only those settings whose clocks were measured or fitted.

        Raises:
            BadInputError: there are none.
        """
        known = self.known_settings
        if len(known) == len(self.tables.settings):
            return self
        if not known:
            raise BadInputError(
                f"all clocks of this profile are below {self.assumed_below_mhz:g} MHz, where its device is assumed; "
                "to use them all the same, give `assumed_clocks`"
            )
        return replace(self, tables=self.tables.at_settings(known))


def core_clocks_mhz(engine: Engine) -> FloatArray | None:
    """Ceilings of the core clock by setting, the greatest where it is automatic; ``None`` where no setting has one."""
    known = [each.core_mhz for each in engine.tables.settings if each.core_mhz is not None]
    if not known:
        return None
    return np.array([max(known) if each.core_mhz is None else each.core_mhz for each in engine.tables.settings])

"""What a test sees of a stand-in GPU, whatever NVML would tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wastenot.core.setting import Setting

if TYPE_CHECKING:
    from testbed.stand_in.gpu import Gpu


@dataclass(frozen=True, slots=True)
class SetterCall:
    """A call that asked to change a GPU.

    Attributes:
        name: of the function, as in ``pynvml``.
        arguments: after the handle.
        error: what it returned, such as ``NO_PERMISSION``; ``None`` for success.
        process: that called.
    """

    name: str
    arguments: tuple[int, ...]
    error: str | None
    process: int


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU, as it truly is.

    Attributes:
        locked_core_mhz: range that the core clock is locked to; ``None`` where it is not.
        locked_memory_mhz: the same of the memory clock.
        power_limit_w: in force.
        default_power_limit_w: that the board comes with.
        profiles: numbers of the workload power profiles that are requested.
        persistence: mode.
        requested: what is asked of the simulated GPU.
        in_effect_mhz: core and memory clock of the running task; ``None`` where none runs.
        setters: calls seen since the last reset, refused ones included, in order.
        task: name of the running task.
        now_s: seconds that the GPU has lived.
        energy_j: true energy used until then.
        temperature_c: true temperature.
        throttled_s: for how long a limit has held the clocks down.
        uuid: of the GPU.
    """

    locked_core_mhz: tuple[int, int] | None
    locked_memory_mhz: tuple[int, int] | None
    power_limit_w: float
    default_power_limit_w: float
    profiles: frozenset[int]
    persistence: bool
    requested: Setting
    in_effect_mhz: tuple[float, float] | None
    setters: tuple[SetterCall, ...]
    task: str | None
    now_s: float
    energy_j: float
    temperature_c: float
    throttled_s: float
    uuid: str

    @property
    def untouched(self) -> bool:
        """Whether everything that can be set is as a fresh machine has it."""
        free = self.locked_core_mhz is None and self.locked_memory_mhz is None and not self.profiles
        return free and self.power_limit_w == self.default_power_limit_w and self.persistence


def state_of(gpu: Gpu) -> GpuState:
    """What a test sees of it."""
    gpu.engine.advance(0.0)
    return GpuState(
        locked_core_mhz=gpu.locked_core,
        locked_memory_mhz=gpu.locked_memory,
        power_limit_w=gpu.power_limit_mw / 1000,
        default_power_limit_w=gpu.default_power_limit_mw / 1000,
        profiles=gpu.profiles.requested,
        persistence=bool(gpu.persistence),
        requested=gpu.engine.requested,
        in_effect_mhz=gpu.engine.clocks_in_effect(),
        setters=tuple(gpu.setters),
        task=None if gpu.task is None else gpu.task.name,
        now_s=gpu.engine.now_s,
        energy_j=gpu.engine.energy_at(gpu.engine.now_s),
        temperature_c=gpu.engine.temperature_c,
        throttled_s=gpu.engine.throttled_s,
        uuid=gpu.uuid,
    )

"""One GPU of the stand-in: a simulated device, its locks, and NVML's getters and setters of it in NVML's units."""

from __future__ import annotations

import uuid
from typing import cast

from testbed.stand_in.arrival import Arrival
from testbed.stand_in.boards import BOARDS, UNKNOWN_BOARD
from testbed.stand_in.codes import Code, Refused
from testbed.stand_in.fields import Fields
from testbed.stand_in.memory_power import MemoryPower
from testbed.stand_in.profiles import Profiles
from testbed.stand_in.state import SetterCall
from testbed.stand_in.timing import Timing
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Lap, Task
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.hardware import SensorModels, Switching
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import Preset
from wastenot.devices.simulated.sensors import FULL_BYTES_PER_S, SimulatedSensors
from wastenot.devices.simulated.tracer import SimulatedTracer

GRAPHICS, SM, MEMORY = 0, 1, 2  # NVML_CLOCK_*
_SYMBOLIC_MHZ = (0xFFFFFF01, 0xFFFFFF02)  # NVML_CLOCK_LIMIT_ID_TDP, _UNLIMITED
GPU_IDLE, SW_POWER_CAP, SW_THERMAL = 0x1, 0x4, 0x20  # nvmlClocksEventReason*
GLANCE_S = 1e-6
_GPM_REFRESH_S = 0.1
_CONTEXT_BYTES = 1 << 30  # of a process that runs a task
_LIVED_S = 5.0  # before anyone looks: every sensor has a whole window behind it

Range = tuple[int, int]


class _Physics(ModelPhysics):
    """A preset's, of a board that an idle process may keep from resting."""

    awake_w = 0.0

    def idle_power_w(self, setting: Setting, temperature_c: float) -> float:
        return super().idle_power_w(setting, temperature_c) + self.awake_w


class Gpu:
    """A GPU that knows nothing of sockets; whoever calls it holds the server's lock.

    Args:
        preset: of the simulated GPU.
        index: by NVML.
        seed: of its noise.
        timing: that it lives in.
        memory_lock: whether the memory clock can be locked; by default as on the real board.
        count: of GPUs in the machine.
    """

    def __init__(
        self, preset: Preset, index: int, seed: int, timing: Timing, memory_lock: bool | None, count: int = 1
    ) -> None:
        self.preset, self.index, self.seed, self.timing, self.count = preset, index, seed, timing, count
        self.board = BOARDS.get(preset.name, UNKNOWN_BOARD)
        self.arrival = Arrival(preset.switching)
        self._lived_s = 0.0
        late = cast(Switching, self.arrival)
        self.physics = _Physics(preset)
        self.engine = Engine(self.physics, preset.thermal, late, preset.noise, seed + index, self._now_s)
        self._lived_s = _LIVED_S
        self.sensors = SimulatedSensors(self.engine, preset.sensors)
        self.tracer = SimulatedTracer(self.engine, preset)
        gauge = preset.sensors.power
        second = None if gauge is None else gauge.model_copy(update={"window_s": 1.0, "lag_s": 0.0, "sample_s": 0.0})
        self._second = SimulatedSensors(self.engine, SensorModels(power=second))
        self.fields = Fields(self)
        memories = len(preset.clocks.memory_mhz) > 1
        self._memory_lockable = memories and (self.board.memory_lock if memory_lock is None else memory_lock)
        self.locked_core: Range | None = None
        self.locked_memory: Range | None = None
        self.power_limit_mw = self.default_power_limit_mw
        self.profiles = Profiles(preset, self._apply)
        self.persistence = 1
        self.mig = False
        self.lost = False
        self.foreign: dict[int, int] = {}
        self.setters: list[SetterCall] = []
        self.task: Task | None = None
        self.task_process = 0
        self._task_bytes = 0.0
        self._memory_power = MemoryPower(preset)
        self._gpm_looked = self._gpm_sampled = (0.0, 0.0)

    # ---- identity --------------------------------------------------------------------------------------------

    @property
    def uuid(self) -> str:
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.preset.name}/{self.seed}/{self.index}')}"

    @property
    def is_second_die(self) -> bool:
        """Whether it is the other die of a package whose first one reports the power of both."""
        return self.index % self.board.dies > 0

    @property
    def bus_id(self) -> str:
        return f"00000000:{self.index + 1:02X}:00.0"

    def pci(self) -> dict[str, int | bytes]:
        return {
            "busIdLegacy": self.bus_id[4:].encode(),
            "busId": self.bus_id.encode(),
            "domain": 0,
            "bus": self.index + 1,
            "device": 0,
            "pciDeviceId": self.board.pci_device_id,
            "pciSubSystemId": self.board.pci_device_id,
        }

    # ---- what runs -------------------------------------------------------------------------------------------

    def start(self, task: Task, process: int) -> None:
        """Run a task back to back."""
        self._note()
        self.engine.start(task)
        self.task, self.task_process = task, process
        self._task_bytes = sum(calls * kernel.bytes_moved for kernel, calls in task.steps)
        self._memory_power.began()

    def stop(self, marks: list[float]) -> tuple[Lap, ...]:
        """End it; its laps."""
        self._note()
        self.task = None
        return self.engine.stop(marks)

    def processes(self) -> list[tuple[int, int]]:
        found = dict(self.foreign)
        if self.task is not None:
            found.setdefault(self.task_process, _CONTEXT_BYTES)
        return list(found.items())

    def memory(self) -> dict[str, int]:
        used = sum(amount for _, amount in self.processes())
        return {"total": self.board.memory_bytes, "used": used, "free": self.board.memory_bytes - used}

    def utilization(self) -> dict[str, int]:
        busy = 100 if self.task is not None else 0
        return {"gpu": busy, "memory": busy}

    # ---- sensors ---------------------------------------------------------------------------------------------

    def power_mw(self) -> int:
        return self.average_mw() if self.board.averages_power else self.instant_mw()

    def instant_mw(self) -> int:
        return _milli(self.sensors.power_w())

    def average_mw(self) -> int:
        if not self.board.averages_power:
            raise Refused(Code.NOT_SUPPORTED)
        return _milli(self._second.power_w())

    def memory_mw(self) -> int:
        if not self.board.has_memory_power:
            raise Refused(Code.NOT_SUPPORTED)
        self._note()
        return _milli(self._memory_power.mean_w())

    def energy_mj(self) -> int:
        return _milli(self.sensors.energy_j())

    def temperature(self, sensor: int = 0) -> int:
        if sensor != 0:
            raise Refused(Code.INVALID_ARGUMENT)
        return int(self.sensors.temperature_c() or 0)

    def clock_mhz(self, kind: int) -> int:
        found = self.sensors.clocks()
        if kind in (GRAPHICS, SM):
            return round(found.core_mhz) if found.core_mhz is not None else self._idle_core()
        if kind == MEMORY:
            return round(found.memory_mhz) if found.memory_mhz is not None else self._idle_memory()
        raise Refused(Code.NOT_SUPPORTED if kind == 3 else Code.INVALID_ARGUMENT)

    def top_clock_mhz(self, kind: int) -> int:
        if kind in (GRAPHICS, SM):
            return round(self.preset.clocks.core_mhz[-1])
        if kind == MEMORY:
            return round(self.preset.clocks.memory_mhz[-1])
        raise Refused(Code.NOT_SUPPORTED if kind == 3 else Code.INVALID_ARGUMENT)

    def reasons(self) -> int:
        """Why the clocks are what they are, now."""
        self.engine.advance(0.0)
        if self.task is None:
            return GPU_IDLE
        before = self.engine.throttled_s
        self.timing.spend(GLANCE_S)
        self.engine.advance(0.0)
        if self.engine.throttled_s == before:
            return 0
        return SW_THERMAL if self.hot else SW_POWER_CAP

    @property
    def hot(self) -> bool:
        """Whether what holds the clocks down is the temperature."""
        return self.engine.temperature_c >= self.preset.thermal.limit_c

    def gpm_sample(self) -> tuple[float, float]:
        """The latest refresh of the performance monitors: moment, and traffic until then, as time at full bandwidth."""
        if not self.board.has_gpm:
            raise Refused(Code.NOT_SUPPORTED)
        moved, now_s = self.engine.moved_bytes() / FULL_BYTES_PER_S, self.engine.now_s
        before_s, before = self._gpm_looked
        sample_s = max(now_s // _GPM_REFRESH_S * _GPM_REFRESH_S, before_s)
        if now_s > before_s:
            self._gpm_looked = (now_s, moved)
            self._gpm_sampled = sample_s, before + (moved - before) * (sample_s - before_s) / (now_s - before_s)
        return self._gpm_sampled

    # ---- clocks ----------------------------------------------------------------------------------------------

    def memory_clocks(self) -> list[int]:
        return [round(clock) for clock in reversed(self.preset.clocks.memory_mhz)]

    def core_clocks(self, memory_mhz: int) -> list[int]:
        for memory, cores in self.engine.physics.supported_clocks().items():
            if round(memory) == memory_mhz:
                return [round(core) for core in reversed(cores)]
        raise Refused(Code.NOT_FOUND)

    @property
    def default_power_limit_mw(self) -> int:
        limit = self.preset.parameters.power_limit_w
        return round(1000 * (self.preset.power_limits_w[1] if limit is None else limit))

    def power_limits_mw(self) -> tuple[int, int]:
        low, high = self.preset.power_limits_w
        return round(1000 * low), round(1000 * high)

    def lock_core(self, low_mhz: int, high_mhz: int) -> None:
        symbols = (low_mhz in _SYMBOLIC_MHZ) + (high_mhz in _SYMBOLIC_MHZ)
        clocks = self.preset.clocks.core_mhz
        # drivers take 0 for no lower limit
        within = clocks[0] <= high_mhz <= clocks[-1] and (low_mhz == 0 or clocks[0] <= low_mhz <= high_mhz)
        if symbols == 1 or (not symbols and not within):
            raise Refused(Code.INVALID_ARGUMENT)
        self.locked_core = (low_mhz, high_mhz)
        self._apply()

    def unlock_core(self) -> None:
        self.locked_core = None
        self._apply()

    def lock_memory(self, low_mhz: int, high_mhz: int) -> None:
        self._needs_memory_lock()
        clocks = self.preset.clocks.memory_mhz
        if not (low_mhz <= high_mhz and clocks[0] <= high_mhz <= clocks[-1]):
            raise Refused(Code.INVALID_ARGUMENT)
        self.locked_memory = (low_mhz, high_mhz)
        self._apply()

    def unlock_memory(self) -> None:
        self._needs_memory_lock()
        self.locked_memory = None
        self._apply()

    def limit_power(self, limit_mw: int) -> None:
        low, high = self.power_limits_mw()
        if not low <= limit_mw <= high:
            raise Refused(Code.INVALID_ARGUMENT)
        self.power_limit_mw = limit_mw
        self._apply()

    def persist(self, mode: int) -> None:
        if mode not in (0, 1):
            raise Refused(Code.INVALID_ARGUMENT)
        self.persistence = mode

    def never_arrive(self, never: bool) -> None:
        """From now on, clocks that are asked for do not take effect; or do again, at once those asked for before."""
        self.arrival.never = never
        if not never:
            self.engine.request(Setting(power_limit_w=self.preset.power_limits_w[0]))
            self._apply()

    # ---- inside ----------------------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return self.timing.now_s() + self._lived_s

    def _apply(self) -> None:
        clocks = self.preset.clocks
        limit = self.power_limit_mw / 1000
        self.engine.request(
            Setting(
                _at_or_below(clocks.core_mhz, self.locked_core),
                _at_or_below(clocks.memory_mhz, self.locked_memory),
                None if self.power_limit_mw == self.default_power_limit_mw else limit,
                self.profiles.name,
            )
        )

    def _note(self) -> None:
        """Bring the memory's power up to now."""
        self.engine.advance(0.0)
        moved = None if self.task is None else self.engine.progress() * self._task_bytes
        self._memory_power.note(self.engine.now_s, moved)

    def _needs_memory_lock(self) -> None:
        if not self._memory_lockable:
            raise Refused(Code.NOT_SUPPORTED)

    def keep_awake(self, watts: float) -> None:
        """From now on, draw so much more than at rest with nothing running, at the highest clocks."""
        self.physics.awake_w = watts
        self.engine.follow(None)

    def mig_mode(self) -> tuple[int, int]:
        if self.board is not BOARDS["h200"]:
            raise Refused(Code.NOT_SUPPORTED)
        return int(self.mig), int(self.mig)

    def _idle_core(self) -> int:
        lowest = round(self.preset.clocks.core_mhz[-1 if self.physics.awake_w else 0])
        locked = self.locked_core
        return lowest if locked is None or locked[0] in _SYMBOLIC_MHZ else max(lowest, locked[0])

    def _idle_memory(self) -> int:
        asked = self.engine.requested.memory_mhz
        return round(self.preset.clocks.memory_mhz[self.board.idle_memory] if asked is None else asked)


def _at_or_below(states_mhz: tuple[float, ...], locked: Range | None) -> float | None:
    """The state that a locked range means: the highest not above its upper end."""
    if locked is None or locked[1] in _SYMBOLIC_MHZ:
        return None
    return max(state for state in states_mhz if round(state) <= locked[1])


def _milli(value: float | None) -> int:
    if value is None:
        raise Refused(Code.NOT_SUPPORTED)
    return round(1000 * value)

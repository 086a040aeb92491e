"""The physics of a preset: the time and power model subject to clock tables, power limit and temperature."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import CannotRunError, ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.core.suggest import suggestion
from wastenot.devices.protocol import Task
from wastenot.devices.simulated import model
from wastenot.devices.simulated.demands import analytical_parameters
from wastenot.devices.simulated.kinds import traits_for
from wastenot.devices.simulated.model import KernelParameters
from wastenot.devices.simulated.physics import OperatingPoint
from wastenot.devices.simulated.preset import DataTraits, Preset, ProfileCeilings
from wastenot.devices.simulated.trace import Parts, Steady, carry_over_j
from wastenot.devices.timeline import Data
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.order import stretches

_RANDOM = DataTraits()
_NO_PROFILE = ProfileCeilings()
_SURELY = 1e-9  # relative difference of powers that is more than rounding
_ON_TENSOR_CORES = ("gemm", "attention", "attention_backward")


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """What a kernel does at each of several core clocks that are in effect, run back to back; arrays of shape (clocks,).

    Attributes:
        time_s: time of a call.
        power_w: power that it demands by consumer (base, core, memory); shape (3, clocks).
        counted: fraction of cycles that the chip does not skip while it runs.
    """

    time_s: FloatArray
    power_w: FloatArray
    counted: FloatArray


@dataclass(slots=True, eq=False)
class _Asked:
    """The task and setting last asked about, which are asked about again and again, and all that is the same each time.

    Attributes:
        top: place of the highest of its clocks; ``top_s``, ``top_reference_w``, ``top_leakage_w`` and ``top_mhz`` are there.
        limit_w: the power limit in force below the limit of temperature.
        rises: whether power rises with the clock at all temperatures that are not below the ambient one.
        over: place of a clock that the power limit may still be below, to search down from.
    """

    task: Task
    setting: Setting
    time_s: list[float]
    reference_w: list[float]
    memory_mhz: float
    top: int
    limit_w: float
    top_s: float
    top_reference_w: float
    top_leakage_w: float
    top_mhz: float
    rises: bool
    over: int


class ModelPhysics:
    """Time and power of tasks on the GPU of a preset."""

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        clocks = preset.clocks
        self._supported_mhz = clocks.core_mhz
        self._core = np.array([clock for clock in self._supported_mhz if clock <= clocks.boost_mhz] or [clocks.boost_mhz])
        voltage = model.voltage(preset.parameters, self._core)
        self._leakage_w: list[float] = (preset.parameters.leakage_w * voltage**model.LEAKAGE_VOLTAGE_EXPONENT).tolist()
        self._core_mhz: list[float] = self._core.tolist()
        stated_w, thermal = preset.parameters.power_limit_w, preset.thermal
        self._own_limit_w = preset.power_limits_w[1] if stated_w is None else stated_w
        self._hot_limit_w = math.inf  # that keeps the temperature at its limit
        if thermal.resistance_c_per_w > 0:
            self._hot_limit_w = (thermal.limit_c - thermal.ambient_c) / thermal.resistance_c_per_w
        self._limit_c, self._reference_c, self._leakage_per_c = thermal.limit_c, thermal.reference_c, thermal.leakage_per_c
        self._coldest = thermal.leakage_per_c * (thermal.ambient_c - thermal.reference_c)
        self._leakage_rises = self._leakage_w == sorted(self._leakage_w)
        self._asked: _Asked | None = None
        self._curves: dict[tuple[Task, float], tuple[list[float], list[float], bool]] = {}
        self._kernels: dict[KernelSpec, KernelParameters] = {}

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """The same core clocks may be requested with every memory clock; not all take effect."""
        return dict.fromkeys(self.preset.clocks.memory_mhz, self._supported_mhz)

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit."""
        return self.preset.power_limits_w

    def profiles(self) -> tuple[str, ...]:
        """Names of the workload power profiles that may be requested."""
        return tuple(self.preset.profiles or ())

    def check(self, setting: Setting) -> None:
        """Refuse clocks that are not in the table, power limits out of range, and unknown profiles."""
        if setting.profile is not None and setting.profile not in self.profiles():
            have = ", ".join(self.profiles()) or "none"
            raise ClocksRefusedError(f"{self.preset.name}: no workload power profile '{setting.profile}'; it has {have}")
        clocks = self.preset.clocks
        if setting.memory_mhz is not None and setting.memory_mhz not in clocks.memory_mhz:
            have = ", ".join(f"{clock:g}" for clock in clocks.memory_mhz)
            raise ClocksRefusedError(f"{self.preset.name}: no memory clock of {setting.memory_mhz:g} MHz; it has {have}")
        if setting.core_mhz is not None and setting.core_mhz not in self._supported_mhz:
            raise ClocksRefusedError(
                f"{self.preset.name}: no core clock of {setting.core_mhz:g} MHz; it has {clocks.core_from_mhz:g} to "
                f"{clocks.core_to_mhz:g} in steps of {clocks.core_step_mhz:g}"
            )
        low, high = self.preset.power_limits_w
        if setting.power_limit_w is not None and not low <= setting.power_limit_w <= high:
            raise ClocksRefusedError(
                f"{self.preset.name}: no power limit of {setting.power_limit_w:g} W; it can be {low:g} to {high:g}"
            )

    def operating_point(self, task: Task, setting: Setting, temperature_c: float) -> OperatingPoint:
        """The task at the highest clocks that the setting, the power limit and the temperature allow.

        Where power would exceed the limit, the GPU alternates between two neighbouring clocks so that the mean meets it.
        """
        asked = self._asked
        if asked is None or task is not asked.task or setting is not asked.setting:
            memory_mhz = self._memory_in_effect(setting)
            time_s, reference_w, rises = self._curve(task, memory_mhz)
            top = self._top(min(setting.core_mhz or math.inf, self._profile(setting).core_mhz or math.inf))
            at_top = time_s[top], reference_w[top], self._leakage_w[top], self._core_mhz[top]
            limit_w = self.limit_w(setting, -math.inf)
            self._asked = asked = _Asked(task, setting, time_s, reference_w, memory_mhz, top, limit_w, *at_top, rises, top)
        if temperature_c >= self._limit_c:
            return self._limited(asked.time_s, asked.reference_w, asked.memory_mhz, asked.top, setting, temperature_c)
        warmer = self._leakage_per_c * (temperature_c - self._reference_c)
        power_w = asked.top_reference_w + asked.top_leakage_w * warmer
        if power_w <= asked.limit_w:
            return OperatingPoint(asked.top_s, power_w, asked.top_mhz, asked.memory_mhz, False)
        # Temperature changes little from step to step: the clock found last is mostly next to the one to be found.
        over = asked.over
        known = asked.rises and warmer >= self._coldest
        if not known or asked.reference_w[over] + self._leakage_w[over] * warmer <= asked.limit_w:
            over = asked.top
        point = self._limited(asked.time_s, asked.reference_w, asked.memory_mhz, over, setting, temperature_c)
        asked.over = bisect_left(self._core_mhz, point.core_mhz, 0, over)
        return point

    def steady_point(self, response: Response, setting: Setting, ceiling_mhz: float, temperature_c: float) -> OperatingPoint:
        """A kernel back to back, of which what it does at :attr:`core_mhz` is known.

        Args:
            response: what it does.
            setting: requested clocks.
            ceiling_mhz: its highest clock.
            temperature_c: temperature of the GPU.
        """
        reference_w = response.power_w.sum(axis=0).tolist()
        memory_mhz, top = self._memory_in_effect(setting), self._top(ceiling_mhz)
        return self._limited(response.time_s.tolist(), reference_w, memory_mhz, top, setting, temperature_c)

    def _top(self, ceiling_mhz: float) -> int:
        """Place of the highest core clock up to a ceiling."""
        return max(bisect_right(self._core_mhz, ceiling_mhz) - 1, 0)

    def _limited(
        self,
        time_s: list[float],
        reference_w: list[float],
        memory_mhz: float,
        top: int,
        setting: Setting,
        temperature_c: float,
    ) -> OperatingPoint:
        """The highest clocks that setting, power limit and temperature allow, by time and power at every core clock.

        Lists, since a few single values are read out of them at every step of a run.
        """
        leakage_w, core_mhz = self._leakage_w, self._core_mhz
        warmer = self._leakage_per_c * (temperature_c - self._reference_c)
        limit_w = self.limit_w(setting, temperature_c)
        power_w = reference_w[top] + leakage_w[top] * warmer
        if power_w <= limit_w:
            return OperatingPoint(time_s[top], power_w, core_mhz[top], memory_mhz, False)
        low = top
        while power_w > limit_w and low:
            low, above_w = low - 1, power_w
            power_w = reference_w[low] + leakage_w[low] * warmer
        if power_w > limit_w:
            return OperatingPoint(time_s[0], power_w, core_mhz[0], memory_mhz, True)
        fraction = (limit_w - power_w) / (above_w - power_w)  # of time at the higher of the two
        speed = (1.0 - fraction) / time_s[low] + fraction / time_s[low + 1]
        between_mhz = (1.0 - fraction) * core_mhz[low] + fraction * core_mhz[low + 1]
        return OperatingPoint(1.0 / speed, limit_w, between_mhz, memory_mhz, True)

    def response(self, kernel: KernelSpec, core_mhz: FloatArray, setting: Setting, data: Data = "random") -> Response:
        """Time and power of a kernel at core clocks in effect, at the reference temperature, whatever any limit says.

        Args:
            kernel: the kernel.
            core_mhz: core clocks in effect; shape (clocks,).
            setting: requested clocks, of which only the memory's matters.
            data: what its inputs hold.

        Raises:
            CannotRunError: the kernel is unknown.
        """
        device, parameters = self.preset.parameters, self._parameters(kernel)
        parameters = replace(parameters, work_j=np.asarray(parameters.work_j) * self._data(data).work)
        memory_mhz = np.asarray(self._memory_in_effect(setting))
        counted, left = self._cycles(kernel, parameters, core_mhz, memory_mhz)
        time_s = model.time_s(device, parameters, core_mhz * left, memory_mhz)
        total_w = model.demanded_power_w(device, parameters, core_mhz, memory_mhz, time_s)
        base_w = np.full_like(total_w, model.by_memory_state(device, memory_mhz, device.base_w))
        bytes_j = np.asarray(parameters.memory_j) * model.by_memory_state(device, memory_mhz, device.byte_energy_factor)
        memory_w = bytes_j / time_s
        return Response(time_s, np.stack([base_w, total_w - base_w - memory_w, memory_w]), counted)

    def _cycles(
        self, kernel: KernelSpec, parameters: KernelParameters, core_mhz: FloatArray, memory_mhz: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Fraction of cycles that are not skipped at core clocks, and ratio of the clocks at which traits apply to them."""
        preset = self.preset
        clock = preset.dynamics.cycle_clock
        ones = np.ones_like(core_mhz)
        if kernel.op not in _ON_TENSOR_CORES:
            return ones, ones
        limit_w = preset.parameters.power_limit_w or preset.power_limits_w[1]
        top_w = float(model.demanded_power_w(preset.parameters, parameters, self._core[-1], memory_mhz))
        heavy = top_w > clock.heavy * limit_w
        return clock.counted(core_mhz, heavy=heavy), clock.left_of_traits(core_mhz) if heavy else ones

    def ceiling_mhz(self, kernel: KernelSpec, setting: Setting, data: Data) -> float:
        """Highest clock of a kernel, whatever the power limit allows."""
        own_mhz = self._data(data).product_mhz if kernel.op == "gemm" else None
        ceilings = (setting.core_mhz, self._profile(setting).core_mhz, own_mhz)
        return float(min(self._core[-1], *(mhz or self._core[-1] for mhz in ceilings)))

    def _profile(self, setting: Setting) -> ProfileCeilings:
        return _NO_PROFILE if setting.profile is None else (self.preset.profiles or {})[setting.profile]

    def _data(self, data: Data) -> DataTraits:
        return self.preset.data.get(data, _RANDOM)

    def leakage_w_per_c(self, core_mhz: FloatArray) -> FloatArray:
        """Growth of power with temperature at core clocks."""
        voltage = model.voltage(self.preset.parameters, core_mhz)
        leakage_w = self.preset.parameters.leakage_w * voltage**model.LEAKAGE_VOLTAGE_EXPONENT
        return np.asarray(leakage_w * self.preset.thermal.leakage_per_c)

    @property
    def core_mhz(self) -> FloatArray:
        """Core clocks that the card runs at, ascending."""
        return self._core

    def idle_power_w(self, setting: Setting, temperature_c: float) -> float:
        """Power with nothing running."""
        return self.preset.idle_w

    def waiting_power_w(self, setting: Setting, temperature_c: float) -> float:
        """Board, memory and leakage without any kernel, as a GPU that waits for another keeps its clocks up."""
        top, device = self._top(setting.core_mhz or math.inf), self.preset.parameters
        base_w = float(model.by_memory_state(device, self._memory_in_effect(setting), device.base_w))
        warmer = self._leakage_per_c * (temperature_c - self._reference_c)
        return max(base_w + self._leakage_w[top] * (1.0 + warmer) - device.leakage_w, self.preset.idle_w)

    def steady(self, kernel: KernelSpec, setting: Setting, temperature_c: float) -> Steady:
        """One kernel back to back, its power by consumer.

        Raises:
            CannotRunError: the kernel is unknown.
        """
        point = self.operating_point(Task.of_kernel(kernel), setting, temperature_c)
        return Steady(kernel.op, point.time_s, self.parts_of(kernel, point))

    def parts_of(self, kernel: KernelSpec, point: OperatingPoint) -> Parts:
        """The power of a kernel back to back, by consumer."""
        device, parameters = self.preset.parameters, self._parameters(kernel)
        memory_mhz = np.asarray(point.memory_mhz)
        bytes_j = np.asarray(parameters.memory_j) * model.by_memory_state(device, memory_mhz, device.byte_energy_factor)
        memory_w = float(bytes_j) / point.time_s
        base_w = float(model.by_memory_state(device, memory_mhz, device.base_w))
        return Parts(base_w, point.power_w - base_w - memory_w, memory_w)

    def limit_w(self, setting: Setting, temperature_c: float) -> float:
        """Power limit in force."""
        limit = self._own_limit_w if setting.power_limit_w is None else setting.power_limit_w
        if setting.profile is not None:
            limit = min(limit, self._profile(setting).power_limit_w or math.inf)
        if temperature_c >= self._limit_c:
            limit = min(limit, self._hot_limit_w)
        return limit

    def _memory_in_effect(self, setting: Setting) -> float:
        clocks = self.preset.clocks
        memory = clocks.memory_mhz[-1] if setting.memory_mhz is None else setting.memory_mhz
        core = clocks.core_to_mhz if setting.core_mhz is None else setting.core_mhz
        for pair in clocks.moved:
            if memory == pair.memory_mhz and core > pair.core_above_mhz:
                return pair.to_memory_mhz
        return memory

    def _curve(self, task: Task, memory_mhz: float) -> tuple[list[float], list[float], bool]:
        """Time and power of a task at every core clock of a memory state, at the reference temperature.

        And whether its power rises with the clock at all temperatures that are not below the ambient one.
        """
        key = (task, memory_mhz)
        if key not in self._curves:
            time = np.zeros(len(self._core))
            energy = np.zeros(len(self._core))
            each_s, each_w = [], []
            for parameters, calls in self._parts(task):
                each = model.time_s(self.preset.parameters, parameters, self._core, np.asarray(memory_mhz))
                power = model.demanded_power_w(self.preset.parameters, parameters, self._core, np.asarray(memory_mhz))
                time += calls * each
                energy += calls * each * power
                each_s.append(each)
                each_w.append(power)
            if self.preset.dynamics.carry_over_share and len(each_s) > 1:
                for before, own, lasting, times in stretches(task.order):
                    extra_j = carry_over_j(self.preset.dynamics, each_w[before], each_w[own], lasting * each_s[own])
                    energy += times * extra_j
            power = energy / time
            coldest_w = power + np.array(self._leakage_w) * self._coldest
            rises = self._leakage_rises and bool((np.diff(coldest_w) > _SURELY * power[1:]).all())
            self._curves[key] = time.tolist(), power.tolist(), rises
        return self._curves[key]

    def _parts(self, task: Task) -> list[tuple[KernelParameters, int]]:
        """The kernels of a task with their calls; the task itself where it was calibrated as a whole, as a pass may be."""
        if not task.is_kernel and task.name in self.preset.kernels:
            return [(self.preset.kernels[task.name].parameters, 1)]
        return [(self._parameters(kernel), calls) for kernel, calls in task.steps]

    def _parameters(self, kernel: KernelSpec) -> KernelParameters:
        if kernel not in self._kernels:
            self._kernels[kernel] = self._find(kernel)
        return self._kernels[kernel]

    def _find(self, kernel: KernelSpec) -> KernelParameters:
        preset = self.preset
        if kernel.name in preset.kernels:
            return preset.kernels[kernel.name].parameters
        if not preset.ops or kernel.bytes_moved <= 0:
            known = (
                "only its name is known. Replay its study (recorded:STUDY), or fit a GPU to it: wastenot device calibrate"
            )
            if preset.kernels:
                known = suggestion(kernel.name, preset.kernels)
            raise CannotRunError(f"{preset.name}: does not know kernel '{kernel.name}'; {known}")
        return analytical_parameters(kernel, traits_for(kernel, preset.ops))

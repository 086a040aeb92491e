"""The physics of a preset: the time and power model subject to clock tables, power limit and temperature."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.protocol import Task
from wastenot.devices.simulated import model
from wastenot.devices.simulated.demands import analytical_parameters
from wastenot.devices.simulated.kinds import traits_for
from wastenot.devices.simulated.model import KernelParameters
from wastenot.devices.simulated.physics import OperatingPoint
from wastenot.devices.simulated.preset import Preset
from wastenot.devices.simulated.trace import Parts, Steady, carry_over_j
from wastenot.errors import CannotRunError, ClocksRefusedError
from wastenot.setting import Setting
from wastenot.suggest import suggestion
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.order import stretches


class ModelPhysics:
    """Time and power of tasks on the GPU of a preset.

    Args:
        preset: the GPU.
    """

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        clocks = preset.clocks
        self._core = np.array([clock for clock in clocks.core_mhz if clock <= clocks.boost_mhz] or [clocks.boost_mhz])
        voltage = model.voltage(preset.parameters, self._core)
        self._leakage_w = np.asarray(preset.parameters.leakage_w * voltage**model.LEAKAGE_VOLTAGE_EXPONENT)
        self._curves: dict[tuple[Task, float], tuple[FloatArray, FloatArray]] = {}
        self._kernels: dict[KernelSpec, KernelParameters] = {}

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """The same core clocks may be requested with every memory clock; not all take effect."""
        clocks = self.preset.clocks
        return dict.fromkeys(clocks.memory_mhz, clocks.core_mhz)

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit."""
        return self.preset.power_limits_w

    def check(self, setting: Setting) -> None:
        """Refuse clocks that are not in the table, and power limits out of range."""
        clocks = self.preset.clocks
        if setting.memory_mhz is not None and setting.memory_mhz not in clocks.memory_mhz:
            have = ", ".join(f"{clock:g}" for clock in clocks.memory_mhz)
            raise ClocksRefusedError(f"{self.preset.name}: no memory clock of {setting.memory_mhz:g} MHz; it has {have}")
        if setting.core_mhz is not None and setting.core_mhz not in clocks.core_mhz:
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
        memory = self._memory_in_effect(setting)
        time_s, reference_w = self._curve(task, memory)
        ceiling = self._core[-1] if setting.core_mhz is None else setting.core_mhz
        top = max(int(np.searchsorted(self._core, ceiling, side="right")) - 1, 0)
        thermal = self.preset.thermal
        power = reference_w[: top + 1] + self._leakage_w[: top + 1] * (
            thermal.leakage_per_c * (temperature_c - thermal.reference_c)
        )
        limit = self._limit_w(setting, temperature_c)
        if power[top] <= limit:
            return OperatingPoint(float(time_s[top]), float(power[top]), float(self._core[top]), memory, False)
        under = np.flatnonzero(power <= limit)
        if not len(under):
            return OperatingPoint(float(time_s[0]), float(power[0]), float(self._core[0]), memory, True)
        low = int(under[-1])
        fraction = float((limit - power[low]) / (power[low + 1] - power[low]))  # of time at the higher of the two
        speed = (1.0 - fraction) / time_s[low] + fraction / time_s[low + 1]
        core = (1.0 - fraction) * self._core[low] + fraction * self._core[low + 1]
        return OperatingPoint(float(1.0 / speed), float(limit), float(core), memory, True)

    def idle_power_w(self, setting: Setting, temperature_c: float) -> float:
        """Power with nothing running."""
        return self.preset.idle_w

    def steady(self, kernel: KernelSpec, setting: Setting, temperature_c: float) -> Steady:
        """One kernel back to back, its power by consumer.

        Raises:
            CannotRunError: the kernel is unknown.
        """
        point = self.operating_point(Task.of_kernel(kernel), setting, temperature_c)
        device, parameters = self.preset.parameters, self._parameters(kernel)
        memory_mhz = np.asarray(point.memory_mhz)
        bytes_j = np.asarray(parameters.memory_j) * model.by_memory_state(device, memory_mhz, device.byte_energy_factor)
        memory_w = float(bytes_j) / point.time_s
        base_w = float(model.by_memory_state(device, memory_mhz, device.base_w))
        return Steady(kernel.op, point.time_s, Parts(base_w, point.power_w - base_w - memory_w, memory_w))

    def _limit_w(self, setting: Setting, temperature_c: float) -> float:
        limit = self.preset.power_limits_w[1]
        for stated in (self.preset.parameters.power_limit_w, setting.power_limit_w):
            limit = limit if stated is None else stated
        thermal = self.preset.thermal
        if temperature_c >= thermal.limit_c and thermal.resistance_c_per_w > 0:
            limit = min(limit, (thermal.limit_c - thermal.ambient_c) / thermal.resistance_c_per_w)
        return limit

    def _memory_in_effect(self, setting: Setting) -> float:
        clocks = self.preset.clocks
        memory = clocks.memory_mhz[-1] if setting.memory_mhz is None else setting.memory_mhz
        core = clocks.core_to_mhz if setting.core_mhz is None else setting.core_mhz
        for pair in clocks.moved:
            if memory == pair.memory_mhz and core > pair.core_above_mhz:
                return pair.to_memory_mhz
        return memory

    def _curve(self, task: Task, memory_mhz: float) -> tuple[FloatArray, FloatArray]:
        """Time and power of a task at every core clock of a memory state, at the reference temperature."""
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
            self._curves[key] = time, energy / time
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
            known = "only its name is known. Replay its study (recorded:STUDY), or fit a GPU to it: wastenot calibrate"
            if preset.kernels:
                known = suggestion(kernel.name, preset.kernels)
            raise CannotRunError(f"{preset.name}: does not know kernel '{kernel.name}'; {known}")
        return analytical_parameters(kernel, traits_for(kernel, preset.ops))

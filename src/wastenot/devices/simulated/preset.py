"""Presets: everything that makes a simulated device, from a TOML file that says where each number comes from.

Read with validation: a missing or impossible value is refused with its field and the reason.
"""

from __future__ import annotations

import math
import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.errors import BadInputError
from wastenot.setting import Setting
from wastenot.suggest import suggestion

SCHEMA = "wastenot.gpu/1"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Thermal(_Part):
    """A GPU that warms with a single time constant: dT/dt = (ambient + resistance · power − T) / time constant.

    Attributes:
        ambient_c: temperature with no power at all.
        resistance_c_per_w: degrees above that for each watt, in the end.
        time_constant_s: after which 63 % of a change is done.
        leakage_per_c: share by which leakage grows with each degree.
        reference_c: temperature at which the power model is stated.
        limit_c: temperature above which the clocks are lowered to hold it.
    """

    ambient_c: Annotated[float, Field(ge=-50, le=80)]
    resistance_c_per_w: NotNegative
    time_constant_s: Positive
    leakage_per_c: NotNegative
    reference_c: Annotated[float, Field(ge=-50, le=120)]
    limit_c: Annotated[float, Field(ge=30, le=130)]

    def after(self, temperature_c: float, power_w: float, seconds: float) -> float:
        """Temperature after some time at constant power."""
        end = self.ambient_c + self.resistance_c_per_w * power_w
        return end + (temperature_c - end) * math.exp(-seconds / self.time_constant_s)


class Switching(_Part):
    """How late requested clocks arrive; the target matters most (Velicka et al., IPDPSW 2025).

    Attributes:
        core_s: (core clock, latency) pairs by rising clock; between them it is interpolated; auto is the highest.
        memory_s: latency of a change of memory clock.
        jitter: standard deviation of the logarithm of the latency.
    """

    core_s: tuple[tuple[Positive, NotNegative], ...] = ()
    memory_s: NotNegative = 0.0
    jitter: NotNegative = 0.0

    def latency_s(self, before: Setting, after: Setting) -> float:
        """Mean latency of a change."""
        memory = self.memory_s if before.memory_mhz != after.memory_mhz else 0.0
        if not self.core_s:
            return memory
        import numpy as np

        clocks, latencies = zip(*self.core_s, strict=True)
        target = clocks[-1] if after.core_mhz is None else after.core_mhz
        return max(memory, float(np.interp(target, clocks, latencies)))


class Noise(_Part):
    """How runs of the same task at the same setting differ: standard deviations of logarithms.

    Attributes:
        run_time: of the time of a call, from run to run.
        run_power: of the power, from run to run.
    """

    run_time: NotNegative = 0.0
    run_power: NotNegative = 0.0


class CounterModel(_Part):
    """An energy counter.

    Attributes:
        period_s: between its steps.
        read_s: what a read costs.
        gain: it reads this times the truth.
        noise_w: standard deviation of the power that each step stands for.
        quantum_j: of its readings.
    """

    period_s: Positive
    read_s: NotNegative = 0.0
    gain: Positive = 1.0
    noise_w: NotNegative = 0.0
    quantum_j: Positive = 0.001


class GaugeModel(_Part):
    """A power gauge.

    Attributes:
        period_s: between its readings.
        window_s: that a reading averages.
        delay_s: between the window's end and the reading.
        read_s: what a read costs.
        gain: it reads this times the truth.
        noise_w: standard deviation of a reading.
    """

    period_s: Positive
    window_s: Positive
    delay_s: NotNegative = 0.0
    read_s: NotNegative = 0.0
    gain: Positive = 1.0
    noise_w: NotNegative = 0.0


class SensorModels(_Part):
    """The sensors of a device; a missing one cannot be read.

    Attributes:
        energy: the counter.
        power: the gauge.
        clock_period_s: between samples of the clocks that it tells; 0 for at once.
        clock_read_s: what reading them costs.
    """

    energy: CounterModel | None = None
    power: GaugeModel | None = None
    clock_period_s: NotNegative = 0.0
    clock_read_s: NotNegative = 0.0


class Moved(_Part):
    """Pairs that do not arrive as asked: with a core clock above ``core_above_mhz`` the memory runs at ``to_memory_mhz``."""

    memory_mhz: Positive
    core_above_mhz: Positive
    to_memory_mhz: Positive


class ClockTable(_Part):
    """Clocks that may be asked for.

    Attributes:
        memory_mhz: memory states, rising.
        core_from_mhz: lowest core clock.
        core_to_mhz: highest core clock.
        core_step_mhz: between them.
        boost_mhz: the card never runs faster than this, whatever is asked for.
        moved: pairs that do not arrive as asked.
    """

    memory_mhz: Annotated[tuple[Positive, ...], Field(min_length=1)]
    core_from_mhz: Positive
    core_to_mhz: Positive
    core_step_mhz: Positive
    boost_mhz: Positive
    moved: tuple[Moved, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.core_to_mhz < self.core_from_mhz:
            raise ValueError("core_to_mhz must not be below core_from_mhz")
        if list(self.memory_mhz) != sorted(set(self.memory_mhz)):
            raise ValueError("memory_mhz must rise")
        return self

    @property
    def core_mhz(self) -> tuple[float, ...]:
        """Core clocks that may be asked for."""
        steps = int((self.core_to_mhz - self.core_from_mhz) / self.core_step_mhz + 1e-9)
        return tuple(self.core_from_mhz + step * self.core_step_mhz for step in range(steps + 1))


class OpTraits(_Part):
    """From a kernel's FLOPs and bytes to what it asks of this GPU, by operation.

    Attributes:
        flops_per_s: reached when nothing else holds it up, at the reference core clock.
        bytes_per_s: reached when nothing else holds it up, at the reference memory clock.
        issue_bytes_per_s: bytes that the core can ask for and work on, at the reference core clock.
        fixed_s: launch and tail of a call.
        clock_w: floor of switching power while it runs, at the reference core clock and lowest voltage.
        flop_j: energy of a FLOP at the lowest voltage.
        issue_byte_j: energy of a byte inside the chip at the lowest voltage.
        byte_j: energy of a byte of device memory, in the highest memory state.
    """

    flops_per_s: Positive
    bytes_per_s: Positive
    issue_bytes_per_s: Positive
    fixed_s: NotNegative
    clock_w: NotNegative
    flop_j: NotNegative
    issue_byte_j: NotNegative
    byte_j: NotNegative


class KernelTraits(_Part):
    """What one kernel, fitted to measurements, asks of the GPU; see :class:`KernelParameters`."""

    core_s: NotNegative
    memory_s: NotNegative
    latency_core_s: NotNegative
    latency_memory_s: NotNegative
    fixed_s: NotNegative
    clock_w: NotNegative
    work_j: NotNegative
    memory_j: NotNegative

    @property
    def parameters(self) -> KernelParameters:
        """The same for the model."""
        return KernelParameters(**self.model_dump())


class Preset(_Part):
    """A simulated GPU.

    Attributes:
        schema_: of the file.
        name: of the preset.
        model: of the GPU.
        provenance: for each part, where its numbers come from.
        clocks: that may be asked for.
        power_limits_w: least and greatest power limit.
        idle_w: power with nothing running.
        parameters: of the power and time model that all kernels share; see the model's own text.
        kernels: kernels known by name, as fitted to measurements.
        ops: for kernels known by formula only; ``default`` for operations not listed.
        thermal, switching, noise, sensors: see there.
    """

    schema_: Literal["wastenot.gpu/1"] = Field(alias="schema")
    name: str
    model: str
    provenance: dict[str, str]
    clocks: ClockTable
    power_limits_w: tuple[Positive, Positive]
    idle_w: Positive
    parameters: DeviceParameters
    kernels: dict[str, KernelTraits] = {}
    ops: dict[str, OpTraits] = {}
    thermal: Thermal
    switching: Switching
    noise: Noise
    sensors: SensorModels

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.kernels and not self.ops:
            raise ValueError("neither kernels nor ops: nothing could be run")
        if self.ops and "default" not in self.ops:
            raise ValueError("ops: 'default' is missing")
        low, high = self.power_limits_w
        if low > high:
            raise ValueError("power_limits_w: the least is above the greatest")
        return self


def read_preset(path: str | os.PathLike[str]) -> Preset:
    """Read a preset file.

    Raises:
        BadInputError: it is not there, not TOML, or a value is missing or impossible; names the field.
    """
    try:
        return parse_preset(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error


def parse_preset(content: bytes, where: str) -> Preset:
    """A preset from the content of its file; raises what :func:`read_preset` does."""
    try:
        document: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{where}: not a simulated GPU: not TOML ({error})") from error
    try:
        return Preset.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "file"
        raise BadInputError(f"{where}: {field}: {first['msg']}; mend the field, or calibrate anew") from error


def preset_names() -> list[str]:
    """Presets that come with wastenot."""
    folder = resources.files("wastenot.devices.simulated") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def find_preset(name: str) -> Preset:
    """A preset by name, or from a file (a name that ends in ``.toml``).

    Raises:
        BadInputError: there is none; says which there are, and the nearest.
    """
    if name.endswith(".toml"):
        return read_preset(name)
    if name not in preset_names():
        raise BadInputError(f"device 'sim:{name}': there is no such simulated GPU; {suggestion(name, preset_names())}")
    entry = resources.files("wastenot.devices.simulated") / "presets" / f"{name}.toml"
    return parse_preset(entry.read_bytes(), f"sim:{name}")

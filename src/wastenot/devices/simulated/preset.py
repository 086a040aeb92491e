"""Presets: everything that makes a simulated device, from a TOML file that says where each number comes from.

Read with validation: a missing or impossible value is refused with its field and the reason.
"""

from __future__ import annotations

import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from wastenot.devices.simulated.dynamics import Dynamics
from wastenot.devices.simulated.hardware import (
    Noise,
    NotNegative,
    Part,
    Positive,
    SensorModels,
    Switching,
    Thermal,
)
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.devices.simulated.parameter_check import check_parameters
from wastenot.documents import first_problem
from wastenot.errors import BadInputError
from wastenot.suggest import suggestion

SCHEMA = "wastenot.gpu/1"


class Moved(Part):
    """Pairs that do not arrive as asked: with a core clock above ``core_above_mhz`` the memory runs at ``to_memory_mhz``."""

    memory_mhz: Positive
    core_above_mhz: Positive
    to_memory_mhz: Positive


class ClockTable(Part):
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


class OpTraits(Part):
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
        square: of a GEMM, the edge of the square of outputs that all multiprocessors work on at once; for each such square
            the strips of both inputs are read anew. 0: a cache so large that each input is read once.
    """

    flops_per_s: Positive
    bytes_per_s: Positive
    issue_bytes_per_s: Positive
    fixed_s: NotNegative
    clock_w: NotNegative
    flop_j: NotNegative
    issue_byte_j: NotNegative
    byte_j: NotNegative
    square: NotNegative = 0.0


class KernelTraits(Part):
    """What one kernel, fitted to measurements, asks of the GPU; see :class:`KernelParameters`."""

    core_s: NotNegative
    memory_s: NotNegative
    latency_core_s: NotNegative
    latency_memory_s: NotNegative
    fixed_s: NotNegative
    clock_w: NotNegative
    work_j: NotNegative
    memory_j: NotNegative

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if not self.core_s + self.memory_s + self.latency_core_s + self.latency_memory_s > 0:
            raise ValueError("core_s, memory_s and the latencies are all 0: it would take no time")
        return self

    @property
    def parameters(self) -> KernelParameters:
        """The same for the model."""
        return KernelParameters(**self.model_dump())


class Preset(Part):
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
        dynamics: power within and between executions; what is not told of it is assumed.
    """

    schema_: Literal["wastenot.gpu/1"] = Field(alias="schema")
    name: str
    model: str
    provenance: dict[str, str]
    clocks: ClockTable
    power_limits_w: tuple[Positive, Positive]
    idle_w: Positive
    parameters: Annotated[DeviceParameters, AfterValidator(check_parameters)]
    kernels: dict[str, KernelTraits] = Field(default_factory=dict)
    ops: dict[str, OpTraits] = Field(default_factory=dict)
    thermal: Thermal
    switching: Switching
    noise: Noise
    sensors: SensorModels
    dynamics: Dynamics = Dynamics()

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
        location, problem = first_problem(error)
        field = ".".join(map(str, location)) or "file"
        raise BadInputError(f"{where}: {field}: {problem}; fix the field, or calibrate anew") from error


def preset_toml(preset: Preset) -> str:
    """The text of a preset's file. :func:`parse_preset` reads the same preset back, every number exactly equal."""
    import tomli_w

    document = preset.model_dump(by_alias=True, exclude_none=True)
    if not document["clocks"]["moved"]:
        del document["clocks"]["moved"]
    document["dynamics"] = preset.dynamics.model_dump(exclude_defaults=True)
    return tomli_w.dumps({name: value for name, value in document.items() if value != {}})


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

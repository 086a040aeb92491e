"""Presets: TOML files that define simulated devices and say where each number comes from.

They are validated when read: a missing or impossible value is refused with its field and the reason.
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from wastenot.core.documents import NotNegative, Positive, first_problem
from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.dynamics import Dynamics
from wastenot.devices.simulated.hardware import Noise, PresetPart, SensorModels, Switching, Thermal
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.devices.simulated.regulator import Regulator
from wastenot.devices.timeline import Data

SCHEMA = "wastenot.gpu/1"


class Moved(PresetPart):
    """Clock pairs that take effect changed: with a core clock above ``core_above_mhz`` memory runs at ``to_memory_mhz``."""

    memory_mhz: Positive
    core_above_mhz: Positive
    to_memory_mhz: Positive


class ClockTable(PresetPart):
    """Clocks that may be requested.

    Attributes:
        memory_mhz: memory states, ascending.
        core_from_mhz: lowest core clock.
        core_to_mhz: highest core clock.
        core_step_mhz: step between core clocks.
        boost_mhz: the card never runs faster than this, whatever is requested.
        assumed_below_mhz: power and speed at core clocks below this are assumed; ``None`` where no such limit is stated.
        moved: clock pairs that take effect changed.
    """

    memory_mhz: Annotated[tuple[Positive, ...], Field(min_length=1)]
    core_from_mhz: Positive
    core_to_mhz: Positive
    core_step_mhz: Positive
    boost_mhz: Positive
    assumed_below_mhz: Positive | None = None
    moved: tuple[Moved, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.core_to_mhz < self.core_from_mhz:
            raise ValueError("core_to_mhz must not be below core_from_mhz")
        if list(self.memory_mhz) != sorted(set(self.memory_mhz)):
            raise ValueError("memory_mhz must be ascending")
        return self

    @property
    def core_mhz(self) -> tuple[float, ...]:
        """Core clocks that may be requested."""
        steps = int((self.core_to_mhz - self.core_from_mhz) / self.core_step_mhz + 1e-9)
        return tuple(self.core_from_mhz + step * self.core_step_mhz for step in range(steps + 1))


class ProfileCeilings(PresetPart):
    """What a workload power profile comes to: ceilings of core clock and power, under which the card decides as before.

    What NVIDIA's profiles set inside the chip is not published; these stand for it, and are evidence of no saving.
    """

    core_mhz: Positive | None = None
    power_limit_w: Positive | None = None


class OpTraits(PresetPart):
    """How an operation's FLOPs and bytes translate into demands on this GPU.

    Attributes:
        flops_per_s: throughput where nothing else limits it, at the reference core clock.
        bytes_per_s: memory throughput where nothing else limits it, at the reference memory clock.
        issue_bytes_per_s: bytes the core can request and process per second, at the reference core clock.
        fixed_s: launch and tail of a call.
        clock_w: minimum switching power while it runs, at the reference core clock and lowest voltage.
        flop_j: energy per FLOP at the lowest voltage.
        issue_byte_j: energy per byte inside the chip at the lowest voltage.
        byte_j: energy per byte of device memory, in the highest memory state.
        square: for a GEMM, the edge of the square of outputs that all multiprocessors compute at once; the strips of both
            inputs are read again for each such square. 0 for a cache so large that each input is read once.
        latency_s: core-clocked time of a call beside its FLOPs and bytes, at the reference core clock.
        ramp_s: time that it takes the memory to reach its throughput, which kernels of few bytes do not need.
        row_s: core-clocked time that each row of a softmax or norm, or each query of attention, takes beside its elements;
            of attention's backward pass time that no core clock changes.
        score_s: core-clocked time that each score of attention takes beside the products, as for its exponential.
        turn_s: core-clocked time of each element of one row: all rows at once take at least that long.
        tiles_at_once: tiles of a product or of attention that are computed at once; 0 where whole tiles do not count.
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
    latency_s: NotNegative = 0.0
    ramp_s: NotNegative = 0.0
    row_s: NotNegative = 0.0
    score_s: NotNegative = 0.0
    turn_s: NotNegative = 0.0
    tiles_at_once: Annotated[int, Field(ge=0)] = 0


class DataTraits(PresetPart):
    """How kernels run on data other than random ones.

    Attributes:
        work: energy of their instructions relative to that with random data.
        product_mhz: highest clock of matrix products, whatever the power limit allows.
    """

    work: Annotated[float, Field(gt=0, le=1)] = 1.0
    product_mhz: Positive | None = None


class KernelTraits(PresetPart):
    """Demands of one kernel, fitted to measurements; see :class:`KernelParameters`."""

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
            raise ValueError("core_s, memory_s and the latencies are all 0: the kernel would take no time")
        return self

    @property
    def parameters(self) -> KernelParameters:
        """As parameters of the model."""
        return KernelParameters(**self.model_dump())


def _consistent(parameters: DeviceParameters) -> DeviceParameters:
    """The same parameters, if their tuples fit together; raises ValueError with the field otherwise."""
    lengths = dict.fromkeys(("bandwidth_factor", "base_w", "byte_energy_factor"), "memory_states_mhz")
    for name, clocks in (lengths | {"voltage_ratio": "voltage_clocks_mhz"}).items():
        values, expected = len(getattr(parameters, name)), len(getattr(parameters, clocks))
        if values != expected:
            raise ValueError(f"{name}: {values} values for {expected} {clocks}")
    for name in ("memory_states_mhz", "voltage_clocks_mhz"):
        if list(getattr(parameters, name)) != sorted(set(getattr(parameters, name))):
            raise ValueError(f"{name}: must be ascending")
    if list(parameters.voltage_ratio) != sorted(parameters.voltage_ratio):
        raise ValueError("voltage_ratio: must not fall as the clock rises")
    return parameters


class Preset(PresetPart):
    """A simulated GPU.

    Attributes:
        schema_: schema of the file.
        name: name of the preset.
        model: model of the GPU.
        basis: what its constants rest on, in a few words; shown beside its numbers.
        provenance: for each part, where its numbers come from.
        clocks: clocks that may be requested.
        power_limits_w: lowest and highest power limit.
        idle_w: power with nothing running.
        parameters: parameters of the power and time model that all kernels share.
        kernels: kernels fitted to measurements, by name.
        ops: traits of analytical kernels, by operation, or by kinds of one (see
            :func:`wastenot.devices.simulated.kinds.kinds_of`); ``default`` for operations not listed.
        thermal, switching, noise, sensors: see their classes.
        dynamics: power within and between executions; defaults are assumptions.
        data: what other data than random ones change.
        profiles: its workload power profiles by name; ``None`` where it has none.
        regulator: how the clock follows power; ``None`` for one that is always where mean power meets the limit.
    """

    schema_: Literal["wastenot.gpu/1"] = Field(alias="schema")
    name: str
    model: str
    basis: str = ""
    provenance: dict[str, str]
    clocks: ClockTable
    power_limits_w: tuple[Positive, Positive]
    idle_w: Positive
    parameters: Annotated[DeviceParameters, AfterValidator(_consistent)]
    kernels: dict[str, KernelTraits] = Field(default_factory=dict)
    ops: dict[str, OpTraits] = Field(default_factory=dict)
    thermal: Thermal
    switching: Switching
    noise: Noise
    sensors: SensorModels
    dynamics: Dynamics = Dynamics()
    data: dict[Data, DataTraits] = Field(default_factory=dict)
    profiles: dict[str, ProfileCeilings] | None = None
    regulator: Regulator | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.kernels and not self.ops:
            raise ValueError("neither kernels nor ops: nothing can run")
        if self.ops and "default" not in self.ops:
            raise ValueError("ops: 'default' is missing")
        low, high = self.power_limits_w
        if low > high:
            raise ValueError("power_limits_w: the lowest is above the highest")
        return self


def read_preset(path: str | os.PathLike[str]) -> Preset:
    """Read a preset file.

    Raises:
        BadInputError: it cannot be read, is not TOML, or a value is missing or impossible; names the field.
    """
    try:
        return parse_preset(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error


def parse_preset(content: bytes, where: str) -> Preset:
    """A preset from the content of its file; raises like :func:`read_preset`."""
    try:
        document: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{where}: not a simulated GPU: not TOML ({error})") from error
    try:
        return Preset.model_validate(document)
    except ValidationError as error:
        location, problem = first_problem(error)
        field = ".".join(map(str, location)) or "file"
        raise BadInputError(f"{where}: {field}: {problem}; fix the field, or calibrate again") from error


def preset_toml(preset: Preset) -> str:
    """The text of a preset's file, with every key written out; a value that is ``None`` has no key.

    :func:`parse_preset` reads the same preset back, every number exactly equal.
    """
    import tomli_w

    return tomli_w.dumps(preset.model_dump(by_alias=True, exclude_none=True))


def find_preset(name: str) -> Preset:
    """A preset by name, or from a file (a name that ends in ``.toml``).

    Raises:
        BadInputError: there is none; the message lists those there are.
    """
    if name.endswith(".toml"):
        return read_preset(name)
    if name not in preset_names():
        raise BadInputError(f"device 'sim:{name}': there is no such simulated GPU; {suggestion(name, preset_names())}")
    return _packaged(name)


@cache
def _packaged(name: str) -> Preset:
    entry = resources.files("wastenot.devices.simulated") / "presets" / f"{name}.toml"
    return parse_preset(entry.read_bytes(), f"sim:{name}")

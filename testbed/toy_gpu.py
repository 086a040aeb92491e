"""A small simulated GPU, whose faults can be chosen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from wastenot.devices.protocol import Task
from wastenot.devices.simulated.preset import Noise, Preset, find_preset, read_preset
from wastenot.workloads.kernel import KernelSpec

TOY = Path(__file__).with_name("toy.toml")


def quiet(preset: Preset) -> Preset:
    """The same GPU whose runs do not differ: what is left is what sensors do."""
    return preset.model_copy(update={"noise": Noise()})


def toy(**changes: object) -> Preset:
    return read_preset(TOY).model_copy(update=changes)


def preset_of(name: str) -> Preset:
    return toy() if name == "toy" else find_preset(name)


def kernel_of(seconds: float, preset: Preset) -> Task:
    """A memory-bound kernel that takes about so long at the highest clocks."""
    traits = preset.ops["default"]
    moved = max(seconds - traits.fixed_s, 1e-7) * traits.bytes_per_s
    spec = KernelSpec("probe", "probe", "elementwise", (1,), moved / 20, moved / 2, moved / 2, "forward", None, 1)
    return Task.of_kernel(dataclasses.replace(spec, name=f"probe-{seconds:g}"))

"""Cards to judge natural sweeps on: like a simulated H200, but with all that such a sweep has to find out drawn anew.

Beside the constants that `bench_coverage` changes by about 15 %: the regulator, the voltage curve, how limits overlap, the
power sensor, and each kernel's split between core and memory. Nothing may be tuned on the cards that judge it: seeds below
``JUDGES`` are for development.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from benchmarks.bench_coverage import drawn_card
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.devices.simulated.model_physics import analytical_parameters
from wastenot.devices.simulated.preset import KernelTraits, Preset, preset_toml, read_preset
from wastenot.devices.simulated.regulator import Regulator
from wastenot.workloads.kernel import KernelSpec

JUDGES = 1000
"""Seeds from here on judge."""

_SPLIT = 0.4  # standard deviation of the logarithm of a kernel's core time, the memory's kept
_POWER = 0.08
_REGULATOR = 0.2
_LIMITS, _LIMIT = ("aim", "mean"), 0.015  # cards keep their power limit
_PRODUCTS_MHZ = (1400.0, 1500.0)  # where products settle; 1,455 to 1,515 on the cards that we measured


def natural_card(seed: int, kernels: Sequence[KernelSpec], folder: Path) -> str:
    """The name of a card that is about like an H200.

    Args:
        seed: which card.
        kernels: of the workload to measure; each is drawn.
        folder: for its file.
    """
    rng = np.random.default_rng((4217, seed))
    path = Path(drawn_card("h200", seed, folder).removeprefix("sim:"))
    preset = read_preset(path)
    device = preset.parameters
    device = replace(
        device,
        voltage_ratio=_voltage(np.array(device.voltage_clocks_mhz), rng),
        overlap_exponent=float(rng.uniform(3.0, 20.0)),
        core_bandwidth=device.core_bandwidth * float(rng.uniform(0.7, 1.3)),
        core_bandwidth_sharpness=float(rng.uniform(4.0, 20.0)),
    )
    found = {kernel.name: _kernel(preset, kernel, rng) for kernel in kernels}
    products = {kernel.name: found[kernel.name] for kernel in kernels if kernel.op == "gemm"}
    of_products = _switching(device, list(products.values()), float(rng.uniform(*_PRODUCTS_MHZ)))
    top = device.reference_core_mhz
    of_others = float((model.voltage(preset.parameters, top) / model.voltage(device, top)) ** 2)
    switching = {name: of_products if name in products else of_others for name in found}
    works = {data: traits.work + float(rng.normal(0.0, 0.08)) for data, traits in preset.data.items()}
    drawn = preset.model_copy(
        update={
            "name": f"h200-{seed}",
            "parameters": device,
            "kernels": {name: _traits(kernel, switching[name]) for name, kernel in found.items()},
            "regulator": _regulator(preset, rng),
            "data": {
                data: traits.model_copy(update={"work": min(max(works[data], 0.3), 1.0)})
                for data, traits in preset.data.items()
            },
            "sensors": _sensors(preset, rng),
        }
    )
    path.write_text(preset_toml(drawn), encoding="utf-8")
    return f"sim:{path}"


def _voltage(clocks_mhz: np.ndarray, rng: np.random.Generator) -> tuple[float, ...]:
    """Flat to a knee, then a straight line that bends up or down a little."""
    knee_mhz, slope, bend = rng.uniform(1000.0, 1500.0), rng.uniform(0.4, 0.8), rng.uniform(-0.3, 0.5)
    above_ghz = np.maximum(clocks_mhz - knee_mhz, 0.0) / 1000.0
    ratio = 1.0 + slope * above_ghz * (1.0 + bend * above_ghz)
    return tuple(np.maximum.accumulate(ratio).tolist())


def _kernel(preset: Preset, kernel: KernelSpec, rng: np.random.Generator) -> KernelParameters:
    """A kernel with a split between core and memory of its own, and its time at full clocks about as before."""
    found = analytical_parameters(kernel, preset.ops.get(kernel.op, preset.ops["default"]))
    core_s, memory_s = float(np.max(found.core_s)), float(np.max(found.memory_s))
    other_s = core_s * float(np.exp(rng.normal(-0.5 * _SPLIT**2, _SPLIT)))
    scale = max(core_s, memory_s) / max(other_s, memory_s)
    powers = {
        name: getattr(found, name) * float(np.exp(rng.normal(0.0, _POWER))) for name in ("clock_w", "work_j", "memory_j")
    }
    return replace(found, core_s=other_s * scale, memory_s=memory_s * scale, **powers)


def _switching(device: DeviceParameters, products: Sequence[KernelParameters], core_mhz: float) -> float:
    """Factor on switching power with which half of the products are held below a clock by the power limit."""
    assert device.power_limit_w is not None
    clock, memory = np.array(core_mhz), np.array(device.reference_memory_mhz)
    factors = []
    for product in products:
        all_w = model.demanded_power_w(device, product, clock, memory)
        other_w = model.demanded_power_w(device, replace(product, clock_w=0.0, work_j=0.0), clock, memory)
        factors.append(float((device.power_limit_w - other_w) / (all_w - other_w)))
    return float(np.median(factors))


def _traits(kernel: KernelParameters, switching: float) -> KernelTraits:
    values = {each.name: float(np.max(getattr(kernel, each.name))) for each in fields(KernelParameters)}
    return KernelTraits(**values | {name: values[name] * switching for name in ("clock_w", "work_j")})


def _regulator(preset: Preset, rng: np.random.Generator) -> Regulator:
    regulator = preset.regulator
    assert regulator is not None
    names = set(Regulator.model_fields) - {"step_s", "exponent", "bursts"}
    changed = {
        name: getattr(regulator, name) * float(np.exp(rng.normal(0.0, _LIMIT if name in _LIMITS else _REGULATOR)))
        for name in sorted(names)
    }
    steps = {name: min(changed[name], 1.0) for name in ("lower_by", "raise_by")}  # at most all the way
    return Regulator.model_validate(regulator.model_dump() | changed | steps)


def _sensors(preset: Preset, rng: np.random.Generator):
    gauge = preset.sensors.power
    assert gauge is not None
    changed = {name: getattr(gauge, name) * float(rng.uniform(0.8, 1.2)) for name in ("lag_s", "delay_s", "noise_w")}
    return preset.sensors.model_copy(update={"power": gauge.model_copy(update=changed)})

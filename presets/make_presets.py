"""Writes the presets that come with wastenot: python -m presets.make_presets [NAME ...], by default all.

rtx-3080-ti, rtx-a4000, v100 and a100 need ../shared/data beside the checkout, the others nothing else; presets/rtx_a4000.py
fits what is fitted to the A4000 itself. Fits repeat to their last digits only on the same machine with the same libraries.

The files hold parameters and where they come from, never the data. None is fitted to a result of the kernel-level DVFS
paper.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np

from presets import cards, h200, h200_data, h200_errors, judge_scaled, mi300x
from presets.cards import NOISE, Card
from presets.h200_kinds import fit_ops
from presets.ops import Population, ops_of, population_of
from presets.regulator import H200_CYCLE_CLOCK, H200_REGULATOR, data_traits
from presets.rtx_a4000 import FP32_KERNEL
from presets.scaled import A100, B200, H100, Sister, scaled_preset
from wastenot.core.files import write_text
from wastenot.devices.simulated.dynamics import Dynamics
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.preset import ClockTable, Moved, Preset, find_preset, preset_toml
from wastenot.kernels.calibration.calibrate import CalibratedGpu, calibrate_sweep
from wastenot.study.sweep import Sweep
from wastenot.study.sweep_file import read_sweep

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
PRESETS = ROOT / "src" / "wastenot" / "devices" / "simulated" / "presets"
SCHEMA = "wastenot.gpu/1"


def main(*names: str) -> None:
    """Write those named, or all."""
    makers: dict[str, Callable[[], Preset]] = {
        "rtx-3080-ti": lambda: rtx_3080_ti(_ti()),
        "rtx-a4000": lambda: rtx_a4000(_ti()),
        "v100": lambda: v100_preset(calibrate_sweep(_sweep("gpu-dvfs/v100.csv"), name="v100")),
        "h200": h200_preset,
        "h100": lambda: scaled(H100, **judge_scaled.h100_numbers(scaled_preset(find_preset("h200"), H100, {}))),
        "a100": lambda: scaled(A100, **judge_scaled.a100_numbers(scaled_preset(find_preset("h200"), A100, {}))),
        "b200": lambda: scaled(B200),
        "mi300x": lambda: mi300x.mi300x_preset(provenance(mi300x.MI300X)),
    }
    for name in names or makers:
        preset = makers[name]()
        text = f"# Made by presets/make_presets.py; see [provenance] and docs/calibration.md.\n{preset_toml(preset)}"
        write_text(PRESETS / f"{preset.name}.toml", text)
        print(preset.name, {name: f"{value.flop_j:.3g}" for name, value in preset.ops.items()}, flush=True)


@cache
def _ti() -> CalibratedGpu:
    return calibrate_sweep(_sweep("rtx3080ti-polybench/sweep.csv"), name="rtx-3080-ti", power_limit_w=350.0)


def _sweep(name: str) -> Sweep:
    return read_sweep(DATA / name, device=name)


def provenance(card: Card, **numbers: object) -> dict[str, str]:
    """Where the numbers of a card come from, with ``numbers`` filled in."""
    texts = tomllib.loads((ROOT / "presets" / "provenance.toml").read_text())
    numbers |= {"sustained_mhz": card.sustained_mhz}
    shared = {name: text.format(**numbers) for name, text in texts["shared"].items()}
    return {part: text.format(**(shared | numbers)) for part, text in texts[card.name].items()}


def _fitted(card: Card, found: CalibratedGpu) -> dict[str, str]:
    errors = "; ".join(map(str, found.report.errors))
    held = found.report.errors[-1]  # kernels held out
    return provenance(
        card, points=found.report.points, kernels=found.report.kernels, errors=errors, held_time=held.time.mean,
        held_energy=held.energy.mean,
    )  # fmt: skip


def rtx_3080_ti(found: CalibratedGpu) -> Preset:
    """The paper's card, from a public sweep of other kernels."""
    card, device = cards.RTX_3080_TI, found.calibration.device
    return Preset(
        schema=SCHEMA,
        name=card.name,
        model=card.model,
        basis=card.basis,
        provenance=_fitted(card, found),
        clocks=ClockTable(
            memory_mhz=(405.0, 810.0, 5001.0, 9251.0, 9501.0),
            core_from_mhz=210.0,
            core_to_mhz=2100.0,
            core_step_mhz=15.0,
            boost_mhz=1965.0,
            moved=(Moved(memory_mhz=405.0, core_above_mhz=420.0, to_memory_mhz=810.0),),
        ),
        power_limits_w=card.limits_w,
        idle_w=card.idle_w,
        parameters=device,
        ops=ops_of(card, device, population_of(found.calibration.kernels)),
        thermal=cards.thermal(350.0, reference_c=70.0, limit_c=90.0),
        switching=cards.switching(210.0, 2100.0, core_s=0.02, memory_s=0.1),
        noise=NOISE,
        sensors=cards.sensors(counter_s=0.1, counter_read_s=0.002, gauge_s=0.1, window_s=0.1, clock_s=0.1),
    )


def rtx_a4000(sister: CalibratedGpu) -> Preset:
    """A card of the 3080 Ti's generation, of which one kernel's power over clocks is public."""
    card, base = cards.RTX_A4000, sister.calibration.device
    power = FP32_KERNEL
    clocks = (210.0, power.knee_mhz, 1470.0, 1610.0, 1755.0)
    device: DeviceParameters = replace(
        base,
        reference_core_mhz=1755.0,
        reference_memory_mhz=7001.0,
        memory_states_mhz=(405.0, 810.0, 5001.0, 7001.0),
        bandwidth_factor=(*base.bandwidth_factor[:3], 1.0),
        byte_energy_factor=(*base.byte_energy_factor[:3], 1.0),
        core_floor_mhz=210.0,
        voltage_clocks_mhz=clocks,
        voltage_ratio=tuple(float(ratio) for ratio in power.voltage_ratio(np.array(clocks))),
        base_w=(16.0, 17.0, 26.0, power.intercept_w),
        leakage_w=0.0,
        power_limit_w=140.0,
    )
    other = population_of(sister.calibration.kernels)
    switching_w = power.w_per_ghz * device.reference_core_mhz / 1000  # of a kernel that the core bounds, all of it
    scale = switching_w / (other.clock_w + other.work_w)
    bytes_share = card.bandwidth_gbytes_per_s / cards.RTX_3080_TI.bandwidth_gbytes_per_s
    found = Population(
        clock_w=other.clock_w * scale,
        memory_w=other.memory_w * bytes_share,
        issue_w=other.issue_w * bytes_share,
        issue_share=other.issue_share,
        work_w=other.work_w * scale,
    )
    return Preset(
        schema=SCHEMA,
        name=card.name,
        model=card.model,
        basis=card.basis,
        provenance=provenance(card, **asdict(power)),
        clocks=ClockTable(
            memory_mhz=(405.0, 810.0, 5001.0, 7001.0),
            core_from_mhz=210.0,
            core_to_mhz=2100.0,
            core_step_mhz=15.0,
            boost_mhz=1755.0,
            moved=(Moved(memory_mhz=405.0, core_above_mhz=420.0, to_memory_mhz=810.0),),
        ),
        power_limits_w=card.limits_w,
        idle_w=card.idle_w,
        parameters=device,
        ops=ops_of(card, device, found),
        thermal=cards.thermal(140.0, reference_c=70.0, limit_c=90.0),
        switching=cards.switching(210.0, 2100.0, core_s=0.02, memory_s=0.1),
        noise=NOISE,
        sensors=cards.sensors(counter_s=0.1, counter_read_s=0.002, gauge_s=0.1, window_s=0.1, clock_s=0.1),
    )


def v100_preset(found: CalibratedGpu) -> Preset:
    """A card with HBM and one memory clock, from a public sweep."""
    card = cards.V100
    device = replace(found.calibration.device, power_limit_w=card.limits_w[1])
    return Preset(
        schema=SCHEMA,
        name=card.name,
        model=card.model,
        basis=card.basis,
        provenance=_fitted(card, found),
        clocks=ClockTable(memory_mhz=(877.0,), core_from_mhz=802.5, core_to_mhz=1380.0, core_step_mhz=7.5, boost_mhz=1380.0),
        power_limits_w=card.limits_w,
        idle_w=card.idle_w,
        parameters=device,
        ops=ops_of(card, device, population_of(found.calibration.kernels)),
        thermal=cards.thermal(250.0, reference_c=60.0, limit_c=83.0),
        switching=cards.switching(802.5, 1380.0, core_s=0.02, memory_s=0.0),
        noise=NOISE,
        sensors=cards.sensors(counter_s=0.02, counter_read_s=0.002, gauge_s=0.02, window_s=0.01, clock_s=0.02),
    )


def h200_preset() -> Preset:
    """Our own card, from kernels at its own clocks."""
    card, device = cards.H200, h200.parameters()
    operations = h200_data.read_all()
    fitted_to = [one for one in operations if not one.held]
    thermal, switching, sensors = h200.surroundings()
    preset = Preset(
        schema=SCHEMA,
        name=card.name,
        model=card.model,
        basis=card.basis,
        provenance={},
        clocks=h200.clocks(),
        power_limits_w=card.limits_w,
        idle_w=card.idle_w,
        parameters=device,
        ops=fit_ops(fitted_to, device),
        thermal=thermal,
        switching=switching,
        noise=NOISE,
        sensors=sensors,
        dynamics=Dynamics(cycle_clock=H200_CYCLE_CLOCK),
        regulator=H200_REGULATOR,
    )
    preset = preset.model_copy(update={"data": data_traits(preset)})
    never = [one for one in operations if one.held]
    numbers: dict[str, float] = {}
    for which, errors in (
        ("seen", h200_errors.errors_at_auto(preset, fitted_to)),
        ("never", h200_errors.errors_at_auto(preset, never)),
    ):
        for what in ("time", "power"):
            off = np.abs([getattr(error, what) for error in errors])
            numbers |= {f"{which}_{what}_median": np.median(off), f"{which}_{what}_mean": np.mean(off)}
    halves = [h200_errors.errors_of_halves(preset, operations, seed) for seed in range(h200_errors.HALVES)]
    for what in ("time", "power"):
        means = [np.mean(np.abs([getattr(error, what) for error in errors])) for errors in halves]
        numbers |= {f"half_{what}": np.mean(means), f"half_{what}_least": np.min(means), f"half_{what}_most": np.max(means)}
    counts = {"count": len(fitted_to), "never": len(never), "halves": h200_errors.HALVES}
    return preset.model_copy(update={"provenance": provenance(card, **counts, **numbers)})


def scaled(sister: Sister, **errors: float) -> Preset:
    """A card whose kernels nobody fitted, from the H200's preset as it is in the package."""
    return scaled_preset(find_preset("h200"), sister, provenance(sister.card, **errors))


if __name__ == "__main__":
    main(*sys.argv[1:])

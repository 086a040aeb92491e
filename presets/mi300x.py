"""The MI300X that FinGraV was made on: from its data sheet, the rest assumed so that it shows what the paper describes.

FinGraV (Singhania et al.) gives no watts and no times, and its 1 ms logger is not public: nothing here is fitted. What it
does describe is here: three dies' components, first executions slower, a heavy product's first burst drawing more before
the firmware answers, light kernels taking after heavy ones.
"""

from __future__ import annotations

from presets.cards import NOISE, Card
from wastenot.devices.simulated.dynamics import Component, Dynamics, Firmware, GpuClockModel, Shape
from wastenot.devices.simulated.hardware import CounterModel, GaugeModel, SensorModels, Switching, Thermal
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.preset import ClockTable, OpTraits, Preset

MI300X = Card("mi300x", "AMD Instinct MI300X", 1307.4, 163.4, 1000, 2100, 5300, (300, 750), 140, 304, "constants assumed")

_REFERENCE_MHZ = 2100.0
_KNEE_MHZ, _SLOPE_PER_GHZ = 1300.0, 0.5


def parameters() -> DeviceParameters:
    """What all kernels share: one memory clock, voltage flat to a knee."""
    clocks = (500.0, _KNEE_MHZ, 1700.0, 2100.0)
    return DeviceParameters(
        reference_core_mhz=_REFERENCE_MHZ,
        reference_memory_mhz=1300.0,
        memory_states_mhz=(1300.0,),
        bandwidth_factor=(1.0,),
        core_bandwidth=0.66,
        core_bandwidth_sharpness=10.0,
        overlap_exponent=14.0,
        core_floor_mhz=500.0,
        voltage_clocks_mhz=clocks,
        voltage_ratio=tuple(1.0 + max(clock - _KNEE_MHZ, 0.0) / 1000 * _SLOPE_PER_GHZ for clock in clocks),
        base_w=(200.0,),
        leakage_w=10.0,
        byte_energy_factor=(1.0,),
        power_limit_w=750.0,
    )


def operations() -> dict[str, OpTraits]:
    """Traits assumed from the data sheet's peaks: 65 % of them for products, 80 % of the bandwidth for streams."""
    stream = OpTraits(
        flops_per_s=0.5 * MI300X.fp32_tflops * 1e12, bytes_per_s=0.8 * 5.3e12, issue_bytes_per_s=9e12, fixed_s=2e-6,
        clock_w=35.0, flop_j=3e-12, issue_byte_j=20e-12, byte_j=35e-12,
    )  # fmt: skip
    product = OpTraits(
        flops_per_s=0.65 * MI300X.tensor_tflops * 1e12, bytes_per_s=0.8 * 5.3e12, issue_bytes_per_s=14e12, fixed_s=6e-6,
        clock_w=60.0, flop_j=0.23e-12, issue_byte_j=20e-12, byte_j=35e-12,
    )  # fmt: skip
    # Seven links of 64 GB/s each way; a ring or a direct exchange keeps all of them busy.
    links = OpTraits(
        flops_per_s=1e15, bytes_per_s=0.75 * 7 * 64e9, issue_bytes_per_s=4e12, fixed_s=15e-6,
        clock_w=30.0, flop_j=0.0, issue_byte_j=60e-12, byte_j=450e-12,
    )  # fmt: skip
    return {"default": stream, "gemm": product, "collective": links}


def dynamics() -> Dynamics:
    """Assumed; see the head of this file."""
    return Dynamics(
        fast_s=20e-6,
        slow_s=1.2e-3,
        slow_share=0.35,
        warm_up=(0.30, 0.12, 0.05),
        jitter=0.003,
        run_jitter=0.006,
        outlier_chance=0.12,
        outlier_slower=0.12,
        carry_over_share=0.12,
        carry_over_s=0.8e-3,
        firmware=Firmware(heavy_w=600.0, boost=0.12, reaction_s=2.5e-3, drop=0.08, recover_s=6e-3),
        shapes={
            "default": Shape(core=(0.8, 1.0, 1.05, 1.05, 1.05, 1.0, 0.9), memory=(1.1, 1.05, 1.0, 1.0, 1.0, 0.95, 0.9)),
            "gemm": Shape(core=(0.65, 1.0, 1.1, 1.1, 1.1, 1.05, 0.8), memory=(1.5, 1.1, 0.95, 0.9, 0.9, 0.9, 1.0)),
            "collective": Shape(core=(0.9, 1.1, 1.1, 0.9, 0.95, 1.05, 0.9), memory=(0.9, 1.0, 1.1, 0.9, 1.0, 1.1, 0.9)),
        },
        components={
            "XCD": Component(base=0.35, core=0.9, memory=0.0),
            "IOD": Component(base=0.40, core=0.1, memory=0.45),
            "HBM": Component(base=0.25, core=0.0, memory=0.55),
        },
        logger=GaugeModel(period_s=1e-3, window_s=20e-6, read_s=0.0, noise_w=4.0),
        gpu_clock=GpuClockModel(offset_s=5000.0, drift_ppm=25.0, read_s=6e-6, read_jitter_s=4e-6, resolution_s=1e-8),
    )


def mi300x_preset(provenance: dict[str, str]) -> Preset:
    """The whole of it."""
    return Preset(
        schema="wastenot.gpu/1",
        name=MI300X.name,
        model=MI300X.model,
        basis=MI300X.basis,
        provenance=provenance,
        clocks=ClockTable(
            memory_mhz=(1300.0,), core_from_mhz=500.0, core_to_mhz=2100.0, core_step_mhz=50.0, boost_mhz=2100.0
        ),
        power_limits_w=MI300X.limits_w,
        idle_w=MI300X.idle_w,
        parameters=parameters(),
        ops=operations(),
        thermal=Thermal(
            ambient_c=30.0, resistance_c_per_w=0.06, time_constant_s=40.0, leakage_per_c=0.01, reference_c=70.0, limit_c=95.0
        ),
        switching=Switching(core_s=((500.0, 0.02), (2100.0, 0.03)), memory_s=0.0, jitter=0.3),
        noise=NOISE,
        sensors=SensorModels(
            energy=CounterModel(period_s=0.001, read_s=50e-6, noise_w=2.5, quantum_j=15.259e-6),
            power=GaugeModel(period_s=0.001, window_s=20e-6, read_s=4e-6, noise_w=4.0),
            clock_period_s=0.001,
            clock_read_s=4e-6,
        ),
        dynamics=dynamics(),
    )

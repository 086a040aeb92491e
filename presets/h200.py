"""The H200: what its sensors, its idle power and its clocks in wakes of products say of the card itself (data/h200)."""

from __future__ import annotations

from presets.cards import sensors, switching
from wastenot.devices.simulated.hardware import SensorModels, Switching, Thermal
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.preset import ClockTable

IDLE_W, IDLE_MEMORY_W = 79.0, 46.0
AWAKE_MEMORY_W = 82.0  # median over seven sweeps of lines through the memory power of their kernels
ASSUMED_BELOW_MHZ = 1350.0  # no kernel was seen at lower clocks
_KNEE_MHZ, _SLOPE_PER_GHZ = 1185.0, 0.42


def parameters() -> DeviceParameters:
    """What is known and assumed of the card itself; see provenance.toml."""
    clocks = (345.0, _KNEE_MHZ, 1380.0, 1580.0, 1780.0, 1980.0)
    base = IDLE_W - IDLE_MEMORY_W
    return DeviceParameters(
        reference_core_mhz=1980.0,
        reference_memory_mhz=3201.0,
        memory_states_mhz=(2201.0, 3201.0),
        bandwidth_factor=(1.0, 1.0),
        core_bandwidth=0.68,
        core_bandwidth_sharpness=30.0,
        overlap_exponent=9.0,
        core_floor_mhz=330.0,
        voltage_clocks_mhz=clocks,
        voltage_ratio=tuple(1.0 + max(clock - _KNEE_MHZ, 0.0) / 1000 * _SLOPE_PER_GHZ for clock in clocks),
        base_w=(base + round(AWAKE_MEMORY_W * 2201 / 3201, 1), base + AWAKE_MEMORY_W),
        leakage_w=7.0,
        byte_energy_factor=(1.0, 1.0),
        power_limit_w=700.0,
    )


def clocks() -> ClockTable:
    """As the card lists them."""
    return ClockTable(
        memory_mhz=(2201.0, 3201.0), core_from_mhz=345.0, core_to_mhz=1980.0, core_step_mhz=15.0, boost_mhz=1980.0,
        assumed_below_mhz=ASSUMED_BELOW_MHZ,
    )  # fmt: skip


def surroundings() -> tuple[Thermal, Switching, SensorModels]:
    """Heat, latencies and sensors."""
    resistance = (62.0 - 39.0) / (673.0 - 79.0)
    heat = Thermal(
        ambient_c=round(39.0 - resistance * 79.0, 1),
        resistance_c_per_w=round(resistance, 4),
        time_constant_s=30.0,
        leakage_per_c=0.012,
        reference_c=58.0,
        limit_c=87.0,
    )
    models = sensors(counter_s=0.10002, counter_read_s=0.0031, gauge_s=0.1, window_s=0.025, clock_s=0.1)
    assert models.power is not None
    seen = {"lag_s": 0.0125, "delay_s": 0.002, "sample_s": 0.02, "sample_drift": 2e-4}  # data/h200/fingrav
    models = models.model_copy(update={"power": models.power.model_copy(update=seen)})
    return heat, switching(345.0, 1980.0, core_s=0.015, memory_s=1.0), models

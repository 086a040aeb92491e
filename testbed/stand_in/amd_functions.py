"""AMD SMI's functions of one stand-in GPU, by the names of its C library, in its units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from testbed.stand_in.codes import Code, Refused
from testbed.stand_in.gpu import MEMORY, SM, Gpu
from wastenot.devices.simulated.sensors import FULL_BYTES_PER_S

ACTIVITY_S = 1e-5  # of the counter of memory activity: per cent of a millisecond
TICK_UJ = 15.259  # of the energy counter
NO_VALUE, NO_WATTS = 0xFFFFFFFF, 0xFFFF
GFX, MEM = 0, 4  # AMDSMI_CLK_TYPE_*
MIN, MAX = 0, 1  # CLK_LIMIT_*
HOTSPOT, CURRENT = 1, 0
AUTO = 0  # AMDSMI_DEV_PERF_LEVEL_AUTO
_STEP_S = 1e-3  # of the firmware, which it counts


def functions_of(gpu: Gpu) -> Mapping[str, Callable[..., Any]]:
    """Getters and setters by their names, with arguments after the handle."""
    return {
        "amdsmi_get_gpu_device_uuid": lambda: gpu.uuid.removeprefix("GPU-"),
        "amdsmi_get_gpu_enumeration_info": lambda: _enumeration(gpu),
        "amdsmi_get_gpu_asic_info": lambda: _asic(gpu),
        "amdsmi_get_gpu_driver_info": lambda: {"driver_name": b"amdgpu", "driver_version": b"6.16.6"},
        "amdsmi_get_gpu_vram_info": lambda: {"vram_size": gpu.memory()["total"] >> 20},
        "amdsmi_get_gpu_process_list": gpu.processes,
        "amdsmi_get_energy_count": lambda: _energy(gpu),
        "amdsmi_get_power_info": lambda: _power(gpu),
        "amdsmi_get_clock_info": lambda kind: _clock(gpu, kind),
        "amdsmi_get_clk_freq": lambda kind: _states(gpu, kind),
        "amdsmi_get_temp_metric": lambda kind, metric: _temperature(gpu, kind, metric),
        "amdsmi_get_gpu_metrics_info": lambda: {"mem_activity_acc": round(_activity_s(gpu) / ACTIVITY_S) % 2**32},
        "amdsmi_get_violation_status": lambda: _violations(gpu),
        "amdsmi_get_power_cap_info": lambda sensor: _caps(gpu),
        "amdsmi_get_gpu_perf_level": lambda: AUTO if gpu.locked_core is gpu.locked_memory is None else 3,
        "amdsmi_set_gpu_clk_limit": lambda kind, end, mhz: _limit(gpu, kind, end, mhz),
        "amdsmi_set_gpu_perf_level": lambda level: _level(gpu, level),
        "amdsmi_set_power_cap": lambda sensor, microwatts: gpu.limit_power(round(1e-3 * microwatts)),
    }


def unique_id(gpu: Gpu) -> str:
    """Its unique ID as PyTorch's UUID has it: HIP's 16 characters, each as the two of its byte."""
    text = _hip_id(gpu).encode().hex()
    return f"AMD-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _hip_id(gpu: Gpu) -> str:
    return gpu.uuid.removeprefix("GPU-").replace("-", "")[:16]


def _enumeration(gpu: Gpu) -> dict[str, Any]:
    # HIP's order is the other way round, as on some MI350X.
    return {"drm_render": 128 + gpu.index, "drm_card": gpu.index, "hsa_id": gpu.index + 1,
            "hip_id": gpu.count - 1 - gpu.index, "hip_uuid": f"GPU-{_hip_id(gpu)}".encode()}  # fmt: skip


def _asic(gpu: Gpu) -> dict[str, Any]:
    return {"market_name": gpu.preset.model.encode(), "vendor_id": 0x1002, "vendor_name": b"Advanced Micro Devices Inc",
            "device_id": 0x74A1, "asic_serial": b"0x%016X" % (gpu.seed + gpu.index), "num_of_compute_units": 304,
            "target_graphics_version": 0x90A if gpu.is_second_die or gpu.board.dies > 1 else 0x942}  # fmt: skip


def _energy(gpu: Gpu) -> tuple[int, float, int]:
    if gpu.is_second_die:
        return 0, TICK_UJ, round(1e9 * gpu.timing.now_s())
    return round(1e-3 * gpu.energy_mj() / (1e-6 * TICK_UJ)), TICK_UJ, round(1e9 * gpu.timing.now_s())


def _power(gpu: Gpu) -> dict[str, int]:
    now = NO_WATTS if gpu.is_second_die else round(1e-3 * gpu.instant_mw())
    return {"socket_power": now, "current_socket_power": now, "average_socket_power": NO_WATTS, "gfx_voltage": NO_WATTS,
            "soc_voltage": NO_WATTS, "mem_voltage": NO_WATTS, "power_limit": round(1e-3 * gpu.power_limit_mw)}  # fmt: skip


def _clock(gpu: Gpu, kind: int) -> dict[str, int]:
    if kind not in (GFX, MEM):
        raise Refused(Code.NOT_SUPPORTED)
    states = gpu.preset.clocks.core_mhz if kind == GFX else gpu.preset.clocks.memory_mhz
    locked = gpu.locked_core if kind == GFX else gpu.locked_memory
    return {"clk": gpu.clock_mhz(SM if kind == GFX else MEMORY), "min_clk": round(states[0]), "max_clk": round(states[-1]),
            "clk_locked": int(locked is not None), "clk_deep_sleep": 0xFF}  # fmt: skip


def _states(gpu: Gpu, kind: int) -> list[int]:
    if kind != MEM:
        raise Refused(Code.NOT_SUPPORTED)
    return [round(1e6 * mhz) for mhz in gpu.preset.clocks.memory_mhz]


def _temperature(gpu: Gpu, kind: int, metric: int) -> int:
    if (kind, metric) != (HOTSPOT, CURRENT):
        raise Refused(Code.NOT_SUPPORTED)  # the data-centre cards have no sensor at the edge
    return gpu.temperature()


def _violations(gpu: Gpu) -> dict[str, int]:
    gpu.engine.advance(0.0)
    held = round(gpu.engine.throttled_s / _STEP_S)
    power, heat = (0, held) if gpu.hot else (held, 0)
    now_s = gpu.timing.now_s()
    return {"reference_timestamp": round(1e6 * now_s), "acc_counter": round(now_s / _STEP_S), "acc_ppt_pwr": power,
            "acc_socket_thrm": heat, "acc_prochot_thrm": 0, "acc_hbm_thrm": 0, "acc_vr_thrm": 0}  # fmt: skip


def _activity_s(gpu: Gpu) -> float:
    """Time for which the memory controllers were busy; the counter begins near its end, as if the GPU had run for long."""
    return ACTIVITY_S * (2**32 - 1000) + gpu.engine.moved_bytes() / FULL_BYTES_PER_S


def _caps(gpu: Gpu) -> dict[str, int]:
    low, high = gpu.power_limits_mw()
    return {"power_cap": 1000 * gpu.power_limit_mw, "default_power_cap": 1000 * gpu.default_power_limit_mw,
            "dpm_cap": 0, "min_power_cap": 1000 * low, "max_power_cap": 1000 * high}  # fmt: skip


def _limit(gpu: Gpu, kind: int, end: int, mhz: int) -> None:
    locked = gpu.locked_core if kind == GFX else gpu.locked_memory
    states = gpu.preset.clocks.core_mhz if kind == GFX else gpu.preset.clocks.memory_mhz
    low, high = locked or (0, round(states[-1]))
    lock = {GFX: gpu.lock_core, MEM: gpu.lock_memory}.get(kind)
    if lock is None:
        raise Refused(Code.NOT_SUPPORTED)
    lock(mhz if end == MIN else low, mhz if end == MAX else high)


def _level(gpu: Gpu, level: int) -> None:
    """AUTO undoes the limits of all clocks."""
    if level == AUTO:
        gpu.locked_memory = None
        gpu.unlock_core()

"""Time and energy of a kernel's first execution at full speed: FinGraV's SSE (Singhania et al., §IV-A), by its profile.

Executions between SSE and SSP take equally long and draw differently; in a program that runs a kernel now and then, not back
to back, the first of them is nearer to what it costs.
"""

from __future__ import annotations

import math

import numpy as np

from wastenot.devices.protocol import Device, Task
from wastenot.errors import BadInputError
from wastenot.profiling.profile import Options, profile_kernel
from wastenot.profiling.result import Profile
from wastenot.progress import Silent
from wastenot.setting import Setting
from wastenot.sweeping.point import Measurement, Method

_CLOCKS_ARRIVE_S = 1.0
_PROFILES = 6.0  # times a point's usual time that a profile may take: it needs hundreds of runs
_OF_MEDIAN = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean, of normal numbers


def measure_at_sse(device: Device, task: Task, setting: Setting, method: Method) -> Measurement:
    """Profile a kernel at a setting and take its SSE.

    Args:
        device: to run it on; it needs an instrument.
        task: one kernel.
        setting: to run it at.
        method: its time, several times over, is what a profile may take where its sensor averages.

    Raises:
        BadInputError: the task is of several kernels.
        ClocksRefusedError, CannotRunError, DeviceError: as :func:`~wastenot.profiling.profile.profile_kernel`;
            also where it could have made something of what was collected before the device failed.
    """
    if not task.is_kernel:
        raise BadInputError(f"--at sse: '{task.name}' is of several kernels; a profile is of one: --granularity kernel")
    device.clocks.request(setting)
    device.time.sleep(_CLOCKS_ARRIVE_S)
    began_s, temperature_c = device.time.now_s(), device.sensors.temperature_c()
    options = Options(budget_s=_PROFILES * (method.warm_up_s + method.window_s), check=False)
    found = profile_kernel(device, task.steps[0][0], options=options, progress=Silent())
    found.check_ran_to_end()
    state = found.state("SSE")
    total = state.channels["total"]
    time_s, time_se_s = state.time_s / found.group, _time_error_s(found)
    energy_j = state.energy_j / found.group
    return Measurement(
        task=task.name,
        setting=setting,
        time_s=time_s,
        time_se_s=time_se_s,
        energy_j=energy_j,
        energy_se_j=energy_j * math.hypot(total.mean_error_w / total.mean_w, time_se_s / time_s),
        in_effect=device.sensors.clocks(),
        calls=found.golden_runs,
        temperature_c=temperature_c,
        window_s=device.time.now_s() - began_s,
        throttled_share=None,
        memory_power_w=None,
        how=f"SSE is execution {found.group * (state.unit - 1) + 1} of a run",
        stopped=f"{found.runs} runs, {found.golden_runs} golden",
        flags=found.notes,
    )


def _time_error_s(found: Profile) -> float:
    """Standard error of the median time of golden runs, of one execution."""
    times = found.execution_time_s / found.group
    golden = times[np.abs(times / np.median(times) - 1.0) <= max(found.margin, 1e-6)]
    return _OF_MEDIAN * float(np.std(golden)) / math.sqrt(max(len(golden), 1))

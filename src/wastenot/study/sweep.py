"""A sweep in memory: what each kernel of a workload costs at each setting. Every way in and out speaks it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from wastenot.origin import Origin
from wastenot.setting import Setting

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One GPU operation with fixed shapes.

    Attributes:
        name: unique within a workload.
        count: how often it runs in one iteration.
        pass_name: forward, loss, backward, ...; ``None`` where the data do not say.
        block: the loop it belongs to, such as ``layer``; ``None`` where the data do not say.
    """

    name: str
    count: int
    pass_name: str | None = None
    block: str | None = None


@dataclass(frozen=True, eq=False)
class Sweep:
    """Measurements of the kernels of one workload on one device, in the order they were read.

    All arrays have shape (rows,). In the clocks and the power limit NaN means auto; in the other optional
    columns it means absent. Times and energies are for ONE call.

    Attributes:
        kernels: in order of execution.
        kernel_index: the kernel of each row, an index into ``kernels``.
        core_mhz: requested core clock.
        memory_mhz: requested memory clock.
        power_limit_w: requested power limit.
        time_s: time of one call.
        energy_j: energy of one call.
        time_se_s: standard error of ``time_s``.
        energy_se_j: standard error of ``energy_j``.
        effective_core_mhz: core clock that was in effect.
        effective_memory_mhz: memory clock that was in effect.
        calls: how many calls the row averages.
        temperature_c: GPU temperature.
        workload: name of the workload.
        device: name of the device.
        origin: whether the numbers were measured, simulated, synthetic or forecast.
    """

    kernels: tuple[Kernel, ...]
    kernel_index: NDArray[np.int64]
    core_mhz: FloatArray
    memory_mhz: FloatArray
    power_limit_w: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    time_se_s: FloatArray
    energy_se_j: FloatArray
    effective_core_mhz: FloatArray
    effective_memory_mhz: FloatArray
    calls: FloatArray
    temperature_c: FloatArray
    workload: str = field(kw_only=True)
    device: str = field(kw_only=True)
    origin: Origin = field(kw_only=True, default="measured")

    def __len__(self) -> int:
        return len(self.time_s)

    def setting(self, row: int) -> Setting:
        """The requested setting of one row."""
        return Setting(_known(self.core_mhz[row]), _known(self.memory_mhz[row]), _known(self.power_limit_w[row]))


def in_order_of_execution(sweep: Sweep) -> Sweep:
    """The sweep itself where its kernels appear first in order of execution, else its rows by kernel."""
    _, first = np.unique(sweep.kernel_index, return_index=True)
    if bool((np.diff(first) > 0).all()):
        return sweep
    order = np.argsort(sweep.kernel_index, kind="stable")
    columns = {
        column.name: getattr(sweep, column.name)[order]
        for column in fields(sweep)
        if isinstance(getattr(sweep, column.name), np.ndarray)
    }
    return replace(sweep, **columns)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)

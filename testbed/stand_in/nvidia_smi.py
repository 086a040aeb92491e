"""``nvidia-smi`` on the stand-in, as far as pages tell readers to use it: locks clocks, and resets them.

Prints what drivers 570 and 580 print for core clocks: ``GPU clocks set to "(gpuClkMin 0, gpuClkMax 1500)" for GPU ...``.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any


def main() -> int:
    """Do what was asked of all GPUs, or of one."""
    import pynvml

    parser = argparse.ArgumentParser(prog="nvidia-smi", add_help=False)
    parser.add_argument("-i", type=int, dest="index")
    for flag in ("-lgc", "-lmc"):
        parser.add_argument(flag, type=_range)
    for flag in ("-rgc", "-rmc"):
        parser.add_argument(flag, action="store_true")
    asked = parser.parse_args()
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()) if asked.index is None else (asked.index,):
        _change(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index), asked)
    print("All done.")
    return 0


def _change(nvml: Any, gpu: Any, asked: argparse.Namespace) -> None:
    if asked.lgc:
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, *asked.lgc)
        least, most = asked.lgc
        print(f'GPU clocks set to "(gpuClkMin {least}, gpuClkMax {most})" for GPU {nvml.nvmlDeviceGetPciInfo(gpu).busId}')
    if asked.lmc:
        nvml.nvmlDeviceSetMemoryLockedClocks(gpu, *asked.lmc)
    if asked.rgc:
        nvml.nvmlDeviceResetGpuLockedClocks(gpu)
    if asked.rmc:
        nvml.nvmlDeviceResetMemoryLockedClocks(gpu)


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(",")
    return int(low), int(high or low)


if __name__ == "__main__":
    sys.exit(main())

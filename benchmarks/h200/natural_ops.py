"""Time, power and SM clock of many operations: alone, and in the wake of products. Only reads the GPU's state.

    WASTENOT_READ_ONLY=1 python benchmarks/h200/natural_ops.py OPERATIONS.py OUT.npz [SECONDS [FIRST [DEVICE]]]

OPERATIONS.py defines operations() -> list of dicts with name, kernel or make(device) -> callable, copies and aten. Of each
the output holds every group of calls (time, calls, clock, phase: 0 alone, then products and wakes in turn) and the power
readings with their moments on the same clock.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from natural_probe import product

from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.timeline import Phase
from wastenot.devices.torch.launcher import Program
from wastenot.devices.torch.task_run import launch_of
from wastenot.devices.torch.timeline import PreparedSubjects

GROUP_S = 1e-3
ALONE_S = {True: 0.9, False: 0.3}  # of operations that the power limit probably holds, and of others
WAKES, PRODUCTS_S, WAKE_S = 2, 0.1, 0.24
HEAVY = ("gemm", "attention", "attention_backward")


class Calls:
    """Functions that take turns, as :class:`Program` has kernels on several buffers."""

    kernels_per_call = 4  # at most about as many in each

    def __init__(self, functions: list[Callable[[], object]]) -> None:
        self._functions, self._held, self._next = functions, [None] * len(functions), 0
        self.buffers = len(functions)

    def run(self) -> None:
        """Run one; its output is kept until its turn comes again."""
        now = self._next
        self._held[now] = None
        output = self._functions[now]()
        if len(self._functions) > 1:
            self._held[now] = output  # type: ignore[call-overload]
        self._next = (now + 1) % len(self._functions)

    def drop_outputs(self) -> None:
        """Release all outputs."""
        self._held, self._next = [None] * len(self._functions), 0


def main(operations: str, out: str, seconds: str = "540", first: str = "0", name: str = "nvidia:0") -> None:
    began = time.perf_counter()
    spec = importlib.util.spec_from_file_location("operations", operations)
    module: Any = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    device = open_device(name)
    recorder = device.timelines()
    runner = recorder._runner
    cuda = str(runner._device)
    l2_bytes = torch.cuda.get_device_properties(cuda).L2_cache_size
    found: dict[str, Any] = {}
    notes: dict[str, Any] = {"gpu": device.identity.label, "driver": device.identity.driver, "torch": torch.__version__,
                             "stamps": [recorder.stamps.cost_s, recorder.stamps.resolution_s], "operations": {}}  # fmt: skip
    heavy = launch_of(Program(Task.of_kernel(product()), cuda, l2_bytes=l2_bytes), runner._stream, GROUP_S)
    listed = module.operations()
    warm = PreparedSubjects([heavy], runner._stamps, runner._stream, time.perf_counter)
    warm.run([Phase(0, 6.0)])
    for index, op in enumerate(listed[int(first) :], int(first)):
        if time.perf_counter() - began > float(seconds):
            break
        took = time.perf_counter()
        try:
            if op.get("kernel") is not None:
                program: Any = Program(Task.of_kernel(op["kernel"]), cuda, l2_bytes=l2_bytes, free_bytes=60 << 30)
                how = "; ".join(program.notes)
            else:
                program, how = Calls([op["make"](cuda) for _ in range(int(op.get("copies", 1)))]), ""
            torch.cuda.synchronize()
            with torch.no_grad():
                launch = launch_of(program, runner._stream, GROUP_S)
            prepared = PreparedSubjects([launch, heavy], runner._stamps, runner._stream, time.perf_counter)
            prepare_s = time.perf_counter() - took
            limited = str(op.get("op", op["cls"])) in HEAVY or op["cls"].startswith(HEAVY)
            phases = [Phase(0, ALONE_S[limited])]
            for _ in range(WAKES):
                phases += [Phase(1, PRODUCTS_S), Phase(0, WAKE_S if not limited else 0.1)]
            before_c = device.sensors.temperature_c()
            with recorder._poller.following():
                ran = prepared.run(phases)
                time.sleep(0.11)
            total = recorder._poller.readings()[0]
            clock = fit_clocks(ran.round_trips, drift=False)
            start = float(ran.begin_s[0])
            at_s = clock.gpu_s + (total.moment_s - clock.host_s) - start
            notes["operations"][str(index)] = {
                "name": op["name"], "cls": op["cls"], "op": op.get("op"), "shape": list(op["shape"]), "flops": op["flops"],
                "bytes_read": op["bytes_read"], "bytes_written": op["bytes_written"], "aten": op.get("aten"),
                "held": bool(op.get("held")), "how": "; ".join((launch.how, how)),
                "temperature_c": [before_c, device.sensors.temperature_c()],
                "prepare_s": prepare_s,
            }  # fmt: skip
            found[f"{index}_phase"] = ran.phase.astype(np.uint8)
            found[f"{index}_calls"] = ran.calls.astype(np.uint32)
            found[f"{index}_at_us"] = np.round(1e6 * (ran.begin_s - start)).astype(np.uint32)
            found[f"{index}_ns"] = np.round(1e9 * (ran.end_s - ran.begin_s)).astype(np.uint32)
            found[f"{index}_mhz"] = ran.core_mhz.astype(np.float32)
            found[f"{index}_w"] = np.column_stack([at_s, total.power_w]).astype(np.float32)
            alone = ran.phase == 0
            half = alone & (ran.begin_s - start > 0.5 * ALONE_S[limited])
            us = 1e6 * float(np.median(((ran.end_s - ran.begin_s) / ran.calls)[half]))
            watts = np.median(total.power_w[at_s < ALONE_S[limited]][1:])
            took_s = time.perf_counter() - began
            print(
                f"{took_s:5.0f} {index} {op['name']} {us:.2f} us at "
                f"{np.median(ran.core_mhz[half]):.0f} MHz, {watts:.0f} W; {how[:40]}"
            )
        except Exception as error:  # the others are still worth measuring
            print(index, op["name"], "FAILED", type(error).__name__, str(error)[:200], flush=True)
            notes["operations"][str(index)] = {"name": op["name"], "failed": str(error)[:300]}
            if "illegal" in str(error) or "launch failure" in str(error):
                break
        program = launch = prepared = None
        gc.collect()
        torch.cuda.empty_cache()
    np.savez_compressed(out, notes=np.array(json.dumps(notes)), **found)
    print("next", index, "of", len(listed))


if __name__ == "__main__":
    main(*sys.argv[1:])

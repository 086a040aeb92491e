"""GPU loads that can be switched on and off, for the benchmark of windows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from wastenot.devices.protocol import Device


class TorchLoad:
    """GEMMs in a thread of this process, while switched on."""

    def __init__(self, size: int = 8192) -> None:
        import torch

        self._torch = torch
        self._operands = [torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self._on = threading.Event()
        self._idle = threading.Event()
        self.done = 0
        threading.Thread(target=self._run, daemon=True).start()
        self.off()

    def product(self) -> None:
        """Launch another."""
        a, b, c = self._operands
        self._torch.mm(a, b, out=c)

    def on(self) -> None:
        """Switch on."""
        self._idle.clear()
        self._on.set()

    def off(self) -> None:
        """Switch off, and wait until nothing runs."""
        self._on.clear()
        self._idle.wait()

    def _run(self) -> None:
        end = self._torch.cuda.Event()
        while True:
            if not self._on.is_set():
                self._torch.cuda.synchronize()
                self._idle.set()
                self._on.wait()
            for _ in range(2):
                self.product()
                self.done += 1
            end.record()
            end.synchronize()


class SimulatedLoad:
    """A task on a simulated GPU, while switched on."""

    def __init__(self, device: Device, lock: threading.Lock) -> None:
        from wastenot.meters.tasks import find_tasks

        self._device, self._lock = device, lock
        self._task = find_tasks("gpt3-xl", "sim:h200").tasks[2]  # a GEMM
        self._launched: Any = None
        self.done = 0

    def product(self) -> None:
        """Stands for a launch."""
        time.sleep(1e-4)

    def on(self) -> None:
        """Switch on."""
        with self._lock:
            self._launched = self._device.launcher.start(self._task)
            self._launched.__enter__()

    def off(self) -> None:
        """Switch off, and wait until nothing runs."""
        with self._lock:
            if self._launched is not None:
                self._launched.__exit__(None, None, None)
                self._launched = None


Load = TorchLoad | SimulatedLoad


@contextlib.contextmanager
def running(load: Load, duty: tuple[float, float] | None = None) -> Iterator[None]:
    """A running load, steady or alternating between on and off for the given seconds."""
    stop = threading.Event()

    def switch() -> None:
        assert duty is not None
        while not stop.is_set():
            load.on()
            stop.wait(duty[0])
            load.off()
            stop.wait(duty[1])

    if duty is None:
        load.on()
        yield
        load.off()
        return
    thread = threading.Thread(target=switch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        load.off()

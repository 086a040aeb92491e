"""Starting the stand-in, and putting it where ``import pynvml`` finds it.

@pytest.fixture(scope="module")
def server():
    with start_stand_in("h200") as stand_in:      # virtual time; wall=True for real time
        yield stand_in

@pytest.fixture
def stand_in(server, monkeypatch):
    server.control.reset()
    server.use(monkeypatch)                       # pynvml of this process
    return server

subprocess.run([...], env=stand_in.environment())  # pynvml of another one
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from testbed.stand_in.amd_library import SOCKET_VARIABLE as AMD_SOCKET_VARIABLE
from testbed.stand_in.control import Control
from testbed.stand_in.launcher import StandInLauncher, StandInTime, StandInTracer
from testbed.stand_in.library import SOCKET_VARIABLE
from wastenot.devices.amd import smi

_SHIM = Path(__file__).parent / "shim"
_ROOT = Path(__file__).parents[2]
_MODELS = {"mi210": "AMD Instinct MI210", "mi250": "AMD Instinct MI250X"}  # with the toy's clocks: no preset is known
_AMD = ("mi300x", *_MODELS)


@dataclass(frozen=True)
class StandIn:
    """A server that runs.

    Attributes:
        socket: its path.
        control: a line to it.
        wall: whether it lives in real time.
        amd: whether its GPUs are AMD's, behind AMD SMI, instead of NVIDIA's.
    """

    socket: str
    control: Control
    wall: bool
    amd: bool = False

    def use(self, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """Make it the driver of this process until the test ends; the module that speaks to it."""
        return use_amd_stand_in(monkeypatch, self.socket) if self.amd else use_stand_in(monkeypatch, self.socket)

    def environment(self, **more: str) -> dict[str, str]:
        """Environment of a process whose driver it shall be, with more variables."""
        return environment(self.socket, amd=self.amd) | more

    def launcher(self, index: int = 0) -> StandInLauncher:
        """What runs tasks on one of its GPUs."""
        return StandInLauncher(self.socket, index)

    def tracer(self, index: int = 0) -> StandInTracer:
        """What shows on one of its GPUs when a switch takes effect."""
        return StandInTracer(self.socket, index)

    def time(self, index: int = 0) -> StandInTime:
        """Time of one of its GPUs."""
        return StandInTime(self.socket, index, wall=self.wall)


@contextmanager
def start_stand_in(
    preset: str = "h200", *, gpus: int = 1, wall: bool = False, seed: int = 0, memory_lock: bool | None = None
) -> Iterator[StandIn]:
    """Run a server until the context is left; it ends with this process, whatever happens to that.

    Args:
        preset: of the simulated GPUs: a name, or a file that ends in ``.toml``; ``mi300x``, ``mi210`` and ``mi250``
            are AMD's.
        gpus: how many.
        wall: live in real time; otherwise time passes only when it is let.
        seed: of the noise.
        memory_lock: whether memory clocks can be locked; by default as on the real board (not on Hopper and Volta).
    """
    lock = "board" if memory_lock is None else ("supported" if memory_lock else "unsupported")
    with tempfile.TemporaryDirectory(prefix="stand-in-") as folder:
        socket = f"{folder}/driver"
        made = Path(f"{folder}/{preset}.toml")
        if preset in _MODELS:
            toy = (_ROOT / "testbed" / "toy.toml").read_text()
            toy = toy.replace('name = "toy"', f'name = "{preset}"').replace(
                'model = "Toy GPU"', f'model = "{_MODELS[preset]}"'
            )
            made.write_text(toy)
        server = subprocess.Popen(
            [
                sys.executable, "-m", "testbed.stand_in.server", socket, str(made) if made.exists() else preset,
                "--gpus", str(gpus), "--seed", str(seed),
                "--memory-lock", lock, "--until-input-ends", "--wall" if wall else "--virtual",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": _python_path(_ROOT / "src", _ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert server.stdin is not None and server.stdout is not None
        try:
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the stand-in for NVML did not start (exit {server.wait()})")
            control = Control(socket)
            yield StandIn(socket, control, wall, Path(preset).stem in _AMD)
            control.close()
        finally:
            server.stdin.close()
            server.stdout.close()
            server.kill()
            server.wait()


def use_stand_in(monkeypatch: pytest.MonkeyPatch, socket: str) -> ModuleType:
    """Make a server the ``pynvml`` of this process until the test ends, not yet initialised.

    Args:
        monkeypatch: that undoes it.
        socket: path of the server's.

    Returns:
        The module.
    """
    shim = _shim()
    shim.nvmlLib = None  # type: ignore[attr-defined]
    shim._nvmlLib_refcount = 0  # type: ignore[attr-defined]
    shim._nvmlGetFunctionPointer_cache.clear()
    monkeypatch.setenv(SOCKET_VARIABLE, socket)
    monkeypatch.setitem(sys.modules, "pynvml", shim)
    return shim


def use_amd_stand_in(monkeypatch: pytest.MonkeyPatch, socket: str) -> ModuleType:
    """Make a server what ``amdsmi`` speaks to in this process until the test ends.

    Args:
        monkeypatch: that undoes it.
        socket: path of the server's.

    Returns:
        The module.
    """
    monkeypatch.setenv(AMD_SOCKET_VARIABLE, socket)
    module = _amd_shim()
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    monkeypatch.setattr(smi, "_library", lambda: module)
    return module


def environment(socket: str, *, amd: bool = False) -> dict[str, str]:
    """Environment of a process whose ``pynvml`` or ``amdsmi`` is a server's."""
    variable = AMD_SOCKET_VARIABLE if amd else SOCKET_VARIABLE
    return os.environ | {variable: socket, "PYTHONPATH": _python_path(_SHIM, _ROOT / "src", _ROOT)}


def _python_path(*first: Path) -> str:
    already = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, first), *([already] if already else [])])


@cache
def _amd_shim() -> ModuleType:
    """One module for the process, whose library connects to whichever server is named when it is initialised."""
    spec = importlib.util.spec_from_file_location("amdsmi_shim", _SHIM / "amdsmi.py")
    assert spec is not None and spec.loader is not None
    before = {name: sys.modules.pop(name) for name in _parts_of_amdsmi()}
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        return sys.modules["amdsmi"]
    finally:
        for name in _parts_of_amdsmi():
            del sys.modules[name]
        sys.modules.update(before)


def _parts_of_amdsmi() -> tuple[str, ...]:
    return tuple(name for name in sys.modules if name.partition(".")[0] == "amdsmi")


@cache
def _shim() -> ModuleType:
    """One module for the process, so that its error classes stay the same."""
    spec = importlib.util.spec_from_file_location("pynvml", _SHIM / "pynvml.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get("pynvml")
    sys.modules["pynvml"] = module  # pynvml looks itself up while it is imported
    try:
        spec.loader.exec_module(module)
    finally:
        if before is None:
            del sys.modules["pynvml"]
        else:
            sys.modules["pynvml"] = before
    return module

"""What doctor says first: the verdict on a machine and the next command, for every state a machine may be in."""

import json
import os
import subprocess
import sys
import types

import pytest
import torch

from testbed.stand_in.controlled import PROGRAM
from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.errors import DeviceError
from wastenot.core.processes import holders_of, name_of
from wastenot.devices.common import journal, machine
from wastenot.devices.common.control import Control
from wastenot.devices.common.gpu_driver import setter_of
from wastenot.devices.common.journal import Holder
from wastenot.devices.common.rights import Rights

ROOT = Rights(root=True, sys_admin=True, container=None, forbidden=None)
USER = Rights(root=False, sys_admin=False, container=None, forbidden=None)
READ_ONLY = Rights(root=True, sys_admin=True, container=None, forbidden="WASTENOT_READ_ONLY=1 is set")
IN_CONTAINER = Rights(root=True, sys_admin=False, container="Docker", forbidden=None)


@pytest.fixture
def first_lines(stand_in, wastenot, monkeypatch, tmp_path):
    """What doctor says first, as text and as a document: the verdict, and the next command."""
    monkeypatch.setattr(machine, "_PCI", tmp_path / "pci")
    monkeypatch.setattr(machine, "rights_here", lambda: USER)

    def run():
        text = wastenot("doctor", "--seconds", "0.01s").stdout
        assert all(len(line) <= 80 or "pip install" in line or line.startswith("Next: ") for line in text.splitlines())
        head, _, rest = text.partition("Next: ")
        found = json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)
        verdict, command = " ".join(head.split()), rest.partition("\n")[0]
        assert (found["verdict"], found["next"]) == (verdict, command)
        return verdict, command

    return run


@pytest.fixture
def seen_by_torch(stand_in, monkeypatch):
    """PyTorch sees the stand-in's GPUs."""
    uuids = [stand_in.control.state(index).uuid.removeprefix("GPU-") for index in range(2)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: types.SimpleNamespace(uuid=uuids[index]))
    monkeypatch.setattr(torch.version, "cuda", "12.8")

    def cannot_count(name, read_mhz):
        raise DeviceError("nothing is counted here")

    monkeypatch.setattr("wastenot.devices.torch.cycle_probe.probe_cycles", cannot_count)
    return uuids


def put_card(tmp_path):
    """An NVIDIA GPU on the PCI bus."""
    slot = tmp_path / "pci" / "0000:01:00.0"
    slot.mkdir(parents=True)
    (slot / "vendor").write_text("0x10de\n")
    (slot / "class").write_text("0x030200\n")


def test_no_gpu(first_lines, stand_in):
    stand_in.control.fault("nvmlInit", "DRIVER_NOT_LOADED")
    assert first_lines() == ("No NVIDIA or AMD GPU here: everything works on simulated GPUs.", "wastenot demo")


def test_no_binding_and_no_gpu(first_lines, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert first_lines() == ("No NVIDIA or AMD GPU here: everything works on simulated GPUs.", "wastenot demo")


def test_a_gpu_without_the_binding(first_lines, monkeypatch, tmp_path):
    put_card(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    verdict, command = first_lines()
    assert "nvidia-ml-py" in verdict and "pip install" in command and "[nvidia,torch]" in command


@pytest.mark.parametrize("rights", [USER, IN_CONTAINER])
def test_a_gpu_whose_driver_does_not_answer(first_lines, stand_in, monkeypatch, tmp_path, rights):
    put_card(tmp_path)
    monkeypatch.setattr(machine, "rights_here", lambda: rights)
    stand_in.control.fault("nvmlInit", "DRIVER_NOT_LOADED")
    verdict, command = first_lines()
    assert "its driver does not answer" in verdict and command == "nvidia-smi"
    assert ("docker run --gpus all" in verdict) is (rights is IN_CONTAINER)


def test_a_gpu_that_is_lost(first_lines, stand_in):
    stand_in.control.gpu_lost(0)
    verdict, command = first_lines()
    assert "the GPU is lost" in verdict and command == "nvidia-smi"


def test_pytorch_is_missing(first_lines, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    verdict, command = first_lines()
    assert verdict.startswith("2 × NVIDIA H200, but PyTorch is not installed") and "[torch]" in command


def test_pytorch_without_cuda(first_lines, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    verdict, command = first_lines()
    assert "built without CUDA" in verdict and command.endswith("pip install --force-reinstall torch")


def test_pytorch_is_kept_from_the_gpu(first_lines, seen_by_torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    verdict, command = first_lines()
    assert "CUDA_VISIBLE_DEVICES= leaves it out" in verdict and command == "env -u CUDA_VISIBLE_DEVICES wastenot doctor"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    verdict, command = first_lines()
    assert "(CUDA 12.8) does not see it" in verdict and "torch.cuda.init()" in command


@pytest.mark.parametrize("rights", [USER, IN_CONTAINER, READ_ONLY])
def test_clocks_may_only_be_read(first_lines, seen_by_torch, monkeypatch, rights):
    monkeypatch.setattr(machine, "rights_here", lambda: rights)
    verdict, command = first_lines()
    assert "can be read but not set" in verdict and "without setting any" in verdict
    assert ("WASTENOT_READ_ONLY=1" in verdict) is (rights is READ_ONLY)
    assert command == "wastenot kernel natural gpt3-xl --device nvidia:0"


def test_clocks_may_be_set(first_lines, seen_by_torch, monkeypatch):
    monkeypatch.setattr(machine, "rights_here", lambda: ROOT)
    verdict, command = first_lines()
    assert "can be set" in verdict and "not tried" in verdict
    assert command == "wastenot kernel sweep gpt3-xl --device nvidia:0 --study gpt3-xl.db --allow-clock-control --dry-run"


def test_slices_are_left_out(first_lines, seen_by_torch, stand_in):
    stand_in.control.mig(True, 0)
    try:
        assert first_lines()[1].endswith("--device nvidia:1")
        stand_in.control.mig(True, 1)
        verdict, command = first_lines()
        assert "ask for a whole GPU" in verdict and command == "wastenot demo"
    finally:
        stand_in.control.mig(False, 0)
        stand_in.control.mig(False, 1)


def test_a_gpu_that_somebody_holds_is_left_to_them(first_lines, seen_by_torch):
    held = [journal.begin(f"GPU-{uuid}", journal.Restore()) for uuid in seen_by_torch]
    verdict, command = first_lines()
    assert f"process {os.getpid()} (user " in verdict and "are controlled by" in verdict and command.startswith("ps ")
    journal.end(held[1])
    assert first_lines()[1].endswith("--device nvidia:1")


def test_a_gpu_that_somebody_holds_through_the_daemon_is_left_to_them_too(first_lines, seen_by_torch, wastenot, monkeypatch):
    """Journals of the daemon are root's: who may not read them is told by the daemon."""
    gpus = [f"GPU-{uuid}" for uuid in seen_by_torch]
    held = {gpus[0]: Holder(4711, 1, through_daemon=True)}
    monkeypatch.setattr(machine, "control_that_works", lambda rights: Control("daemon", None, tuple(gpus), held))
    assert "--device nvidia:1 " in first_lines()[1]
    assert f"process 4711 (user daemon, through wastenotd) controls the clocks of {gpus[0]}" in " ".join(
        wastenot("doctor", "--seconds", "0.01s").stdout.split()
    )


def test_clocks_that_a_killed_run_left_come_first(first_lines, seen_by_torch, stand_in, monkeypatch):
    kill = PROGRAM.format(end="os.kill(os.getpid(), 9)")
    subprocess.run([sys.executable, "-c", kill], check=False, env=stand_in.environment(), stdout=subprocess.DEVNULL)
    verdict, command = first_lines()
    assert "was killed and left the clocks of a GPU changed" in verdict and command == "wastenot device reset"
    monkeypatch.setattr(machine, "rights_here", lambda: READ_ONLY)
    assert first_lines()[1] == "env -u WASTENOT_READ_ONLY wastenot device reset"


def test_an_idle_gpu_that_a_process_keeps_awake_is_told_with_the_process(seen_by_torch, stand_in, wastenot, monkeypatch):
    def idle_waste():
        found = " ".join(wastenot("doctor", "--seconds", "0.01s").stdout.split())
        return found.partition("idle waste ")[2].partition(" nvidia:1")[0]

    agent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr("wastenot.devices.nvidia.driver.holders_of", lambda file: frozenset({agent.pid, os.getpid()}))
    assert idle_waste() == ""  # held open, and at rest
    stand_in.control.keep_awake(41.0)
    assert f"W at 1980 MHz while nothing computes: it is held open by process {agent.pid} (python" in idle_waste()
    assert idle_waste().endswith("and would rest at 345 MHz or below") and str(os.getpid()) not in idle_waste()
    assert 115 <= float(idle_waste().partition(" W")[0]) <= 130  # an H200 that rests draws 79
    document = json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)
    assert document["gpus"][0]["busy"] is False and str(agent.pid) in document["gpus"][0]["held_by"]
    monkeypatch.setattr("wastenot.devices.nvidia.driver.holders_of", lambda file: frozenset())
    assert idle_waste() == ""  # awake, and nobody to name
    stand_in.control.foreign_process(agent.pid, 1 << 20)  # by NVML's own list
    assert f"process {agent.pid} (" in idle_waste()
    stand_in.control.foreign_process(2**22 + 1, 1 << 20)  # in another container
    assert f"process {2**22 + 1} (not visible from here)" in idle_waste()
    agent.communicate(b"\n")


def test_a_file_that_a_process_has_open_is_found(tmp_path):
    file = tmp_path / "nvidia0"
    file.touch()
    holder = subprocess.Popen([sys.executable, "-c", f"f = open({str(file)!r}); print(flush=True); input()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    holder.stdout.readline()
    assert holders_of(file) == {holder.pid} and name_of(holder.pid).startswith("python")
    holder.communicate(b"\n")
    assert holders_of(file) == frozenset() and name_of(holder.pid) is None


def test_workload_power_profiles_are_told(wastenot, monkeypatch):
    with start_stand_in("b200") as with_profiles:
        with_profiles.use(monkeypatch)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        setter_of(with_profiles.control.state().uuid).request_profiles(["llm-training", "max-q"])
        found = " ".join(wastenot("doctor", "--seconds", "0.01s").stdout.split())
        assert "profiles max-q, llm-inference, llm-training requested: max-q, llm-training; enforced: max-q " in found
        document = json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)["gpus"][0]
        assert document["profiles"]["enforced"] == ["max-q"]


def test_a_gpu_without_profiles_offers_no_choice_of_them(wastenot, stand_in):
    found = " ".join(wastenot("doctor", "--seconds", "0.01s").stdout.split())
    assert "set profile no: the GPU offers no choice" in found and " requested: " not in found

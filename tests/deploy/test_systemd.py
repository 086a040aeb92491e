"""systemd runs the unit, with all that it forbids, in a container that has this machine's files and the stand-in."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from testbed.daemon_process import Client, until
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.library import SOCKET_VARIABLE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = f"""#!/bin/sh
export PYTHONPATH=/opt/wastenot/lib/testbed/stand_in/shim:/opt/wastenot/lib {SOCKET_VARIABLE}=/opt/wastenot/stand-in/driver
exec /opt/wastenot/python/bin/python3 -m wastenot.devices.clockd.main "$@"
"""


def mount(*arguments):
    if subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode:
        pytest.skip("this user or this machine cannot mount an overlay of its own files")


@contextmanager
def overlay(folder):
    """This machine's files, and what is written over them until the context is left."""
    mount("-t", "tmpfs", "overlay", str(folder))
    try:
        above, work, root = (folder / name for name in ("above", "work", "root"))
        for each in (above, work, root):
            each.mkdir()
        mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={above},workdir={work}", str(root))
        try:
            yield root
        finally:
            subprocess.run(["umount", root], check=True)
    finally:
        subprocess.run(["umount", folder], check=True)


def install(root):
    """What the page of the daemon installs, from this source tree, for a Python and a driver that stand beside it."""
    for source, target in (
        ("wastenotd.toml", "wastenot/wastenotd.toml"), ("systemd/wastenotd.service", "systemd/system/wastenotd.service"),
        ("systemd/sysusers.conf", "sysusers.d/wastenot.conf"), ("systemd/tmpfiles.conf", "tmpfiles.d/wastenot.conf"),
    ):  # fmt: skip
        path = root / "etc" / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DEPLOY / source, path)
    with (root / "etc" / "wastenot" / "wastenotd.toml").open("a") as policy:
        policy.write('\n[[allow]]\nusers = ["root"]\n')
    home = root / "opt" / "wastenot"
    for name in ("bin", "lib", "python", "stand-in"):
        (home / name).mkdir(parents=True)
    for package in (ROOT / "src" / "wastenot", ROOT / "testbed", Path(find_spec("lazy_loader").origin).parent):
        shutil.copytree(package, home / "lib" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(find_spec("pynvml").origin, home / "lib")
    (home / "bin" / "wastenotd").write_text(PROGRAM)
    (home / "bin" / "wastenotd").chmod(0o755)


@pytest.mark.system
def test_systemd_runs_the_daemon_and_restores_what_a_killed_one_left(tmp_path):
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("systemd-nspawn is not installed")
    folder, run, log = tmp_path / "overlay", tmp_path / "run", tmp_path / "log"
    folder.mkdir()
    run.mkdir()
    with overlay(folder) as root, start_stand_in("h200", gpus=1, memory_lock=True) as stand_in, log.open("wb") as output:
        install(root)
        binds = {Path(stand_in.socket).parent: "stand-in", Path(sys.base_prefix): "python"}
        booted = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot",
             f"--machine=wastenot-{os.getpid()}", f"--directory={root}", f"--bind={run}:/run/wastenot",
             *(f"--bind-ro={here}:/opt/wastenot/{there}" for here, there in binds.items()),
             "--", "--unit=wastenotd.service"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            path = run / "wastenotd.sock"
            assert until(lambda: path.exists() or booted.poll() is not None)
            daemon, client = set_clocks(path, stand_in)
            os.kill(daemon, signal.SIGKILL)
            assert client.reply() is None and until(lambda: stand_in.control.state().untouched)
            assert until(lambda: answers(path))
            again, client = set_clocks(path, stand_in)
            assert again != daemon
        finally:
            booted.terminate()  # which turns the machine off
            assert booted.wait(60.0) == 0, log.read_text("latin-1")
        assert stand_in.control.state().untouched


def set_clocks(path, stand_in):
    """Set clocks as a client; the daemon's process, which has two capabilities and no way to others."""
    client, gpu = Client(str(path)), stand_in.control.state().uuid
    for ask, fields in (("hello", {}), ("acquire", {"gpu": gpu}), ("set", {"gpu": gpu, "core_mhz": 1200.0})):
        assert "ok" in client.ask(ask, **fields)
    assert stand_in.control.state().locked_core_mhz[1] == 1200
    daemon, _, _ = struct.unpack("3i", client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    status = dict(line.split(":\t") for line in Path(f"/proc/{daemon}/status").read_text().splitlines())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 1 << 21 | 1  # CAP_SYS_ADMIN and CAP_CHOWN
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    return daemon, client  # whose lease lasts until the daemon ends


def answers(path):
    try:
        return "ok" in Client(str(path)).ask("hello")
    except OSError:
        return False

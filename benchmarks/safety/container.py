"""What root in a container can do to the daemon on the host, where the container has the mounts that the page documents.

The container is made by ``unshare``: mounts and process IDs of its own, a file system in memory as its root, in which only
``/run/wastenot`` is the host's. All of that is read-only, so that what succeeds has reached the host. Its root has the
capabilities that Docker gives by default, so no ``CAP_SYS_ADMIN``. It tries to write journals and rules, to plant links at
the names of new journals, to replace the socket, to make the mount writable, and to get at the daemon's process. It may only
connect: the policy allows it nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.safety.trial import Trial
from testbed.daemon_process import Client, Daemon, until
from testbed.stand_in.fixtures import start_stand_in

INSIDE = "/run/wastenot"
_USER = 20_000  # whom the policy allows something
_PLACES = (INSIDE, f"{INSIDE}/..", f"{INSIDE}/../wastenotd", "/run/wastenotd", "/proc/1/root/run/wastenotd", "/proc/1/cwd")
# The numbers of capabilities(7): those of Docker's default, less CAP_MKNOD, which there is bounded by the devices' cgroup.
_KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31)
_LAST_CAPABILITY = 40
_BOUNDING_SET_DROP, _NEW_USERS, _NEW_MOUNTS, _BIND, _REMOUNT, _READ_ONLY, _DETACH = 24, 0x10000000, 0x20000, 4096, 32, 1, 2
_CAPABILITIES_3 = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> Trial:
    """Try everything; needs root, which may mount."""
    with start_stand_in("h200", gpus=1, memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as name:
        daemon = Daemon(stand_in, Path(name))
        daemon.start(f"[[allow]]\nusers = [{_USER}]\n")
        uuid = stand_in.control.state().uuid
        before = _host(daemon)
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", sys.executable, "-m", __name__, str(daemon.socket.parent), uuid,
             str(daemon.process.pid)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the container did not come up: {done.stderr}")
        tried = json.loads(done.stdout.splitlines()[-1])
        served = tried.pop("connect once more", None)
        failed = [f"{what}: {outcome}" for what, outcome in tried.items() if outcome != "refused"]
        if served != "it is served":
            failed.append("it could not connect any more after its attacks")
        if _host(daemon) != before:
            failed.append(f"the host's files are others: {before} became {_host(daemon)}")
        daemon.signal(signal.SIGHUP)  # rules are read again, journals are looked for
        until(lambda: "policy read again" in daemon.said())
        time.sleep(6.0)
        if daemon.process.poll() is not None:
            failed.append(f"the daemon has ended: {daemon.said()}")
        elif daemon.connect(hello=False).ask("hello")["ok"]["gpus"]:
            failed.append("root is allowed what the policy does not allow")
        if "restored gpu=" in daemon.said() or not stand_in.control.state().untouched:
            failed.append("a GPU's clocks were touched")
        daemon.stop()
    return Trial(len(tried), failed, {"of_them_connections_and_requests": sum("asks" in what for what in tried)})


def _host(daemon: Daemon) -> dict[str, tuple[int, ...]]:
    """What stands in the folders of the socket, of journals and of the policy."""
    return {
        str(path.relative_to(daemon.folder)): (about.st_ino, about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns)
        for path in sorted(daemon.folder.rglob("*"))
        if path != daemon.log and (about := path.lstat())
    }


# ---- in the container ------------------------------------------------------------------------------------------------


def attacks(uuid: str, daemon: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything that must be refused, by what it does: each raises :class:`OSError`, or leaves the host as it was."""
    journal = json.dumps({"schema": "wastenot.clocks/2", "uuid": uuid, "restore": {"core_mhz": [210, 210]}, "process": 1})
    rule = '[[allow]]\nusers = ["root"]\n'
    for place in _PLACES:
        yield f"journal in {place}", lambda place=place: Path(place, f"{uuid}.json").write_text(journal)
        yield f"rule in {place}", lambda place=place: _rule(Path(place, "policy.d"), rule)
        yield f"link in {place}", lambda place=place: os.symlink("/etc/passwd", f"{place}/.{uuid}.json.new")
        yield f"lock in {place}", lambda place=place: os.mkfifo(f"{place}/.wastenotd.lock")
    path = f"{INSIDE}/wastenotd.sock"
    yield "remove the socket", lambda: os.unlink(path)
    yield "rename the socket", lambda: os.rename(path, f"{path}.old")
    yield "listen beside the socket", lambda: _listen(f"{INSIDE}/other.sock")
    yield "open the socket to all", lambda: os.chmod(path, 0o777)
    yield "give the socket away", lambda: os.chown(path, 1, 1)
    yield "open the folder to all", lambda: os.chmod(INSIDE, 0o777)
    yield "remount", lambda: _mount(INSIDE, _BIND | _REMOUNT)
    yield "unmount", lambda: _called(_LIBC.umount2(INSIDE.encode(), _DETACH))
    yield "bind over it", lambda: _mount(INSIDE, _BIND, b"/tmp")
    yield "remount in a user namespace", lambda: _in_user_namespace(lambda: _mount(INSIDE, _BIND | _REMOUNT))
    yield "unmount in a user namespace", lambda: _in_user_namespace(lambda: _called(_LIBC.umount2(INSIDE.encode(), _DETACH)))
    yield "kill the daemon by its ID on the host", lambda: os.kill(daemon, signal.SIGKILL)
    yield "its root by its ID on the host", lambda: os.listdir(f"/proc/{daemon}/root")
    yield "take CAP_SYS_ADMIN back", lambda: _set_capabilities((*_KEPT, 21))
    yield "the devices of the host's file systems", lambda: os.listdir("/dev/disk")


def requests(uuid: str) -> Iterator[tuple[str, dict[str, object]]]:
    """What it asks for, and the policy allows it nothing of."""
    yield "acquire", {"gpu": uuid}
    yield "acquire", {"gpu": uuid, "user": _USER, "uid": _USER, "peer": {"user": _USER}}
    yield "set", {"gpu": uuid, "core_mhz": 1200}
    yield "set", {"gpu": uuid, "core_mhz": 1200, "restore": {"core_mhz": [210, 210]}, "path": "/run/wastenotd"}


def _inside(folder: str, uuid: str, daemon: int) -> dict[str, str]:
    _enter(folder)
    found = {}
    for number, (what, fields) in enumerate(requests(uuid)):
        client = Client(f"{INSIDE}/wastenotd.sock")
        reply = client.ask("hello")
        if reply is None or reply["ok"]["gpus"]:
            found[f"asks {number}: hello"] = f"answered by {reply}"
        reply = client.ask(what, **fields)
        refused = reply is not None and reply.get("error") in ("policy", "lost", "message")
        found[f"asks {number}: {what}"] = "refused" if refused else f"answered by {reply}"
        client.close()
    found |= {what: _outcome(attack) for what, attack in attacks(uuid, daemon)}
    with suppress(OSError):
        found["connect once more"] = (
            "refused" if Client(f"{INSIDE}/wastenotd.sock").ask("status") is None else "it is served"
        )
    return found


def _outcome(attack: Callable[[], object]) -> str:
    try:
        attack()
    except OSError:
        return "refused"
    return "it succeeded"


def _rule(folder: Path, text: str) -> None:
    with suppress(FileExistsError):
        folder.mkdir()
    (folder / "0-all.toml").write_text(text)


def _listen(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)


def _in_user_namespace(do: Callable[[], object]) -> None:
    """Do something as root of a new user namespace, in a child; raises what it raises."""
    child = os.fork()
    if child:
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise PermissionError
        return
    try:
        _called(_LIBC.unshare(_NEW_USERS | _NEW_MOUNTS))
        do()
        Path(INSIDE, "rule").touch()  # what the mount would be good for
        os._exit(0)
    finally:
        os._exit(1)


def _enter(folder: str) -> None:
    """Be root of a container: a root file system of its own, the mount, and no capabilities but those of containers."""
    root = tempfile.mkdtemp()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "container", root], check=True)
    for each in ("run/wastenot", "proc", "tmp", "etc", "dev", "old"):
        os.makedirs(f"{root}/{each}")
    Path(root, "etc", "passwd").write_text("root:x:0:0::/:/bin/sh\n")
    subprocess.run(["mount", "-t", "proc", "proc", f"{root}/proc"], check=True)
    subprocess.run(["mount", "--bind", folder, f"{root}/run/wastenot"], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", f"{root}/run/wastenot"], check=True)
    _called(_LIBC.pivot_root(root.encode(), f"{root}/old".encode()))
    os.chdir("/")
    _called(_LIBC.umount2(b"/old", _DETACH))
    _called(_LIBC.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None))
    _mount("/", _BIND | _REMOUNT | _READ_ONLY)
    for capability in set(range(_LAST_CAPABILITY + 1)) - {*_KEPT}:
        _called(_LIBC.prctl(_BOUNDING_SET_DROP, capability, 0, 0, 0))
    _set_capabilities(_KEPT)


def _set_capabilities(kept: tuple[int, ...]) -> None:
    bits = sum(1 << capability for capability in kept)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    _called(_LIBC.capset(header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)))


def _mount(place: str, flags: int, source: bytes | None = None) -> None:
    _called(_LIBC.mount(source, place.encode(), None, flags, None))


def _called(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    print(json.dumps(_inside(sys.argv[1], sys.argv[2], int(sys.argv[3]))))

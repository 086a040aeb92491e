"""``wastenotd``: starts, restores what was left changed, serves until it is told to stop, and gives everything back."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import UnsupportedOperation
from pathlib import Path

from wastenot.core.errors import BadInputError, DeviceError, WastenotError
from wastenot.core.version import own_version
from wastenot.devices.clockd.audit import JOURNALD, Audit, check_audit
from wastenot.devices.clockd.health import health, metrics_text
from wastenot.devices.clockd.leases import Leases
from wastenot.devices.clockd.log_lines import Lines, Log, Shares, text_of
from wastenot.devices.clockd.metrics import Metrics
from wastenot.devices.clockd.policy import PolicyFiles, policy_of, read_files
from wastenot.devices.clockd.recoveries import log_recovered
from wastenot.devices.clockd.server import Server
from wastenot.devices.common import process_lock
from wastenot.devices.common.daemon_protocol import socket_path
from wastenot.devices.common.gpu_driver import setters_here
from wastenot.devices.common.journal import state_folder
from wastenot.devices.common.recovery import recover
from wastenot.devices.common.rights import forbidden
from wastenot.devices.common.state_files import make_private

POLICY = Path("/etc/wastenot/wastenotd.toml")
JOBS = "policy.d"
"""Folder beside the journals for rules that come and go, such as those of a scheduler for its jobs."""

_EARLIER = Path("/run/wastenot")
"""Where journals and the rules of jobs were before containers mounted that folder: what it holds now is not trusted."""
_LOUD = {
    "left by an earlier version": 4,
    "refused": 4,
    "cannot restore": 3,
    "cannot control": 3,
    "cannot limit": 3,
    "disobeys its limit": 3,
    "budget cannot be kept": 3,
    "does not answer": 3,
    "audit": 3,
    "policy": 3,
}  # syslog's priorities, which journald reads; 6 otherwise
_RECORDED = frozenset({
    "end of lease", "restored", "cannot restore", "bounded", "does not answer", "answers again", "policy",
    "policy read again", "ready", "stopped", "cannot limit", "disobeys its limit", "budget cannot be kept", "budget is kept",
})  # fmt: skip
"""Events that are not requests, and are in the audit log too."""
_LAST_S = 10.0  # to restore all GPUs when it ends; the unit's TimeoutStopSec is above it
_HEALTH_S = 5.0  # for an answer to a probe
_LAST_WORDS_S = 1.0  # for writing what is still to be logged when it ends
_HUNG = -1  # instead of an exit code: a GPU's driver has not returned from a call
_TURN_S = 1.0  # to wait at most, so that a watchdog hears of it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="wastenotd",
        description="Set GPU clocks for users without root, within a policy, and always reset them.",
        epilog="SIGTERM stops it and restores all clocks; SIGHUP reads the policy again. Journals are in /run/wastenotd, "
        "the socket in /run/wastenot (change with WASTENOT_STATE and WASTENOTD_SOCKET).",
    )
    parser.add_argument("--policy", type=Path, default=POLICY, metavar="FILE", help=f"the policy (default: {POLICY})")
    parser.add_argument(
        "--recover", action="store_true", help="only restore what dead processes left changed, whatever the policy"
    )
    parser.add_argument(
        "--audit", metavar="FILE", help=f"record who asked for what in this file, or in the system's journal ({JOURNALD})"
    )
    parser.add_argument(
        "--check", action="store_true", help="only read the policy and check that it and the file of --audit are valid"
    )
    parser.add_argument(
        "--health", action="store_true", help="only ask the daemon that runs whether it is well (0) or not (1)"
    )
    parser.add_argument(
        "--metrics", action="store_true", help="only print the metrics of the daemon that runs, for Prometheus"
    )
    parser.add_argument("--version", action="version", version=f"wastenotd {own_version()}")
    options = parser.parse_args(arguments)
    if options.health or options.metrics:
        well, said = (health if options.health else metrics_text)(_HEALTH_S)
        print(said)
        return 0 if well else 1
    lines = Lines[str](_write, lambda count: _line("log", {"lines": count, "dropped": "nobody read them"}))
    try:
        code = _main(options, lines)
    finally:
        lines.close(_LAST_WORDS_S)
    if code == _HUNG:
        os._exit(1)  # what would restore that GPU at exit would wait for its driver for ever
    return code


def _main(options: argparse.Namespace, lines: Lines[str]) -> int:
    log = Shares(lambda event, **fields: lines.put(_line(event, fields)), time.monotonic)
    if not options.check:
        _warn_of_earlier(log)
        if options.recover:
            return 0 if _recover(log) else 1
    try:
        files, mistakes = read_files(options.policy, state_folder() / JOBS)
        for mistake in mistakes:
            raise mistake
        if options.audit is not None:
            check_audit(options.audit)
        if options.check:
            print(f"{options.policy}: {len(policy_of(options.policy, files).rules)} rules, valid")
            return 0
        metrics = Metrics()
        metrics.read("log_lines_dropped_total", lambda: lines.dropped + log.dropped)
        return _run(options.policy, files, log, options.audit, metrics)
    except WastenotError as error:
        if not options.check:
            _recover(log)  # whatever keeps the daemon from running
        lines.put(f"<3>error: {error}" if _journald() else f"error: {error}")
        return 2 if isinstance(error, BadInputError) else 1


def _warn_of_earlier(log: Log) -> None:
    """Say that journals or rules are where an earlier version kept them, and what to do, without reading them."""
    if state_folder() == _EARLIER:
        return
    with suppress(OSError):
        if any(name == JOBS or (".json" in name and not name.startswith(".")) for name in os.listdir(_EARLIER)):
            log(
                "left by an earlier version", folder=_EARLIER,
                text=f"its journals and rules are not read: run WASTENOT_STATE={_EARLIER} wastenotd --recover, then "
                f"remove them; the rules of jobs belong in {state_folder() / JOBS}",
            )  # fmt: skip


def _recover(log: Log) -> bool:
    """Restore what dead processes left changed; whether all was restored. It needs no policy, and never raises."""
    if forbidden() is not None:
        return True
    done = recover()
    log_recovered(done, log)
    for uuid, error in done.failed.items():
        log("cannot restore", gpu=uuid, error=error)
    return not done.failed


def _run(file: Path, files: PolicyFiles, log: Log, audited: str | None, metrics: Metrics) -> int:
    reason = forbidden()
    if reason is not None:
        raise BadInputError(f"clocks cannot be set: {reason}")
    try:
        make_private(state_folder())
    except OSError as error:
        raise DeviceError(f"{state_folder()}: cannot keep journals there: {error.strerror}") from error
    if not process_lock.take(state_folder() / ".wastenotd.lock"):
        raise DeviceError(f"another wastenotd is using the journals in {state_folder()}")
    told, tells, caught = _signals()
    audit = None if audited is None else Audit(audited, time.monotonic, log)

    def note(event: str, **fields: object) -> None:
        log(event, **fields)
        if audit is not None and event in _RECORDED:
            audit(event, **fields)

    setters = setters_here(lambda name, error: log("cannot control", gpu=name, error=error))
    policy = policy_of(file, files)
    path = socket_path()
    listening = _listen(path, policy.group)  # before there are threads that write files, since it changes the umask
    leases = Leases(setters, policy, time.monotonic, note, lambda: _wake(tells))
    leases.recover()
    leases.shares.take_policy(policy)
    server = Server(listening, leases, time.monotonic, log, audit or _nothing, metrics)
    server.watch(told, lambda: _drain(told))
    metrics.read("audit_records_dropped_total", lambda: 0 if audit is None else audit.dropped())
    _notify("READY=1")
    note("ready", socket=path, gpus=len(leases.gpus), rules=len(policy.rules), version=own_version())
    reloading_s: float | None = None
    while signal.SIGTERM not in caught and signal.SIGINT not in caught:
        server.turn(_TURN_S)
        _notify("WATCHDOG=1")
        if signal.SIGHUP in caught:
            while signal.SIGHUP in caught:
                caught.remove(signal.SIGHUP)
            _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            reloading_s = time.monotonic()
            files = _read_again(file, files, leases, note, metrics)
        if reloading_s is not None and leases.has_taken_policy():
            took_s, reloading_s = time.monotonic() - reloading_s, None
            metrics.read("policy_reload_seconds", partial(float, took_s))
            _notify("READY=1")
    _notify("STOPPING=1")
    path.unlink(missing_ok=True)
    server.close()
    restored, hung = leases.end_all(_LAST_S)
    note("stopped", restored=restored, **({"hung": ", ".join(hung)} if hung else {}))
    if audit is not None:
        audit.close(_LAST_WORDS_S)
    process_lock.give_back(state_folder() / ".wastenotd.lock")  # the kernel may not let the process end before its driver
    return _HUNG if hung else 0 if restored else 1


def _signals() -> tuple[socket.socket, socket.socket, list[int]]:
    """A socket that can be read when a signal has come, or when something is sent to the second; and the signals."""
    told, tells = socket.socketpair()
    tells.setblocking(False)
    told.setblocking(False)
    signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    caught: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: caught.append(number))
    return told, tells, caught


def _read_again(file: Path, files: PolicyFiles, leases: Leases, log: Log, metrics: Metrics) -> PolicyFiles:
    """Read all files of the policy again. What a file with a mistake said before holds on, what the others say holds."""
    files, mistakes = read_files(file, state_folder() / JOBS, files)
    for mistake in mistakes:
        log("policy", error=mistake, kept="the previous one")
    policy = policy_of(file, files)
    if policy.group != leases.policy.group:
        try:
            os.chown(socket_path(), -1, os.getegid() if policy.group is None else policy.group)
        except OSError as error:
            log("policy", error=f"{socket_path()}: cannot be given to group {policy.group}: {error.strerror}")
    try:
        leases.shares.take_policy(policy)
    except BadInputError as error:
        mistakes.append(error)
        log("policy", error=error, kept="the previous budgets")
    leases.take_policy(policy)
    metrics.count("policy_reloads_total", result="failed" if mistakes else "ok")
    log("policy read again", rules=len(policy.rules), mistakes=len(mistakes))
    return files


def _listen(path: Path, group: int | None) -> socket.socket:
    """A socket that only root and a group may connect to, from the moment it exists."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()  # an earlier daemon's: this one holds the lock
        before = os.umask(0o777)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(0o660)
        listening.listen(1024)  # at most what the kernel allows (net.core.somaxconn)
    except OSError as error:
        raise DeviceError(f"{path}: cannot listen there: {error.strerror}") from error
    return listening


def _drain(told: socket.socket) -> None:
    told.recv(4096)


def _wake(tells: socket.socket) -> None:
    with suppress(OSError):  # it is to wake up already
        tells.send(b"\0")


def _nothing(event: str, **fields: object) -> None:
    """Records nothing."""


def _line(event: str, fields: Mapping[str, object]) -> str:
    """One line, for journald with a priority."""
    line = text_of(event, fields)
    return f"<{_LOUD.get(event, 6)}>{line}" if _journald() else line


def _write(line: str) -> None:
    """Write a line past all buffers, whose locks a write that blocks would hold when the interpreter ends."""
    with suppress(OSError):  # whoever read it may be gone
        try:
            descriptor = sys.stderr.fileno()
        except UnsupportedOperation:  # it is no file
            print(line, file=sys.stderr, flush=True)
            return
        data = line.encode(errors="backslashreplace") + b"\n"
        while data:
            data = data[os.write(descriptor, data) :]


def _journald() -> bool:
    return "JOURNAL_STREAM" in os.environ


def _notify(state: str) -> None:
    """Tell systemd, where it wants to know."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
            sender.setblocking(False)
            sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


if __name__ == "__main__":
    sys.exit(main())

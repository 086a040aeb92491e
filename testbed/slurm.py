"""A Slurm of one node on this machine, with the scripts of deploy/slurm: munged, slurmctld and slurmd, all in one folder."""

import os
import socket
import stat
import subprocess
import time
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "deploy" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/saved
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=2
GresTypes=gpu
MpiDefault=none
MailProg=/bin/true
Prolog={folder}/prolog
Epilog={folder}/epilog
TaskProlog={folder}/task-prolog
TaskEpilog={folder}/task-epilog
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:2 Feature=wastenot State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """A cluster that runs.

    Args:
        folder: for all of it, with a short name, as paths of sockets must be short.
        variables: of the scripts' environment, in which Slurm itself leaves next to nothing.
        binaries: folder of programs that the scripts find first.
    """

    def __init__(self, folder, variables, binaries):
        self.folder, self._running = folder, []
        host = socket.gethostname().partition(".")[0]
        for name in ("saved", "spool", "munge"):
            (folder / name).mkdir()
        (folder / "munge").chmod(0o711)
        folder.chmod(0o711)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for index in range(2):  # no driver answers behind them; slurmd asks that they are devices
            os.mknod(folder / f"gpu{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        for name in ("prolog", "epilog", "task-prolog", "task-epilog"):
            script = folder / name
            script.write_text(f"#!/bin/sh\n{exports}export PATH={binaries}:${{PATH:-}}\nexec {SCRIPTS}/{name}.sh\n")
            script.chmod(0o755)
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(host=host, folder=folder, controller=_port(), node=_port()))
        (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File={folder}/gpu[0-1]\n")
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        munge = [
            f"--{name}={folder}/munge/{name.partition('-')[0]}" for name in ("socket", "pid-file", "log-file", "seed-file")
        ]
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *munge)
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        self._wait_until_idle()

    def run(self, *command, **more):
        """A command of a user."""
        return subprocess.run(
            command, env=self.environment | more, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120
        )

    def start(self, *command, **more):
        """A command of a user, whose end is not waited for."""
        return subprocess.Popen(
            command,
            env=self.environment | more,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(self):
        """The logs of its daemons."""
        return "".join((self.folder / f"{name}.log").read_text() for name in ("slurmctld", "slurmd"))

    def close(self):
        self.run("scancel", "--user=root")
        for process in reversed(self._running):
            process.terminate()
            process.wait(30.0)

    def _start(self, *command):
        with (self.folder / f"{command[0]}.out").open("wb") as out:
            self._running.append(subprocess.Popen(command, env=self.environment, stdout=out, stderr=out))

    def _wait_until_idle(self):
        end_s = time.monotonic() + 60.0
        while self.run("sinfo", "--noheader", "--format=%t").stdout.strip() != "idle":
            assert time.monotonic() < end_s, self.said()
            time.sleep(0.1)


def _port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]

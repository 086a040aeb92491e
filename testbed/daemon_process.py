"""wastenotd as a process of its own, on the stand-in for NVML."""

import json
import socket
import subprocess
import sys
import time

ROOT = """
heartbeat_s = 1.0
[[allow]]
users = ["root"]
"""


class Daemon:
    """A daemon that can be killed and started again, by default of this Python and its packages."""

    def __init__(self, stand_in, folder, command=(sys.executable, "-m", "wastenot.devices.clockd.main"), **environment):
        self.stand_in, self.folder, self.command, self.environment = stand_in, folder, command, environment
        self.policy, self.socket = folder / "wastenotd.toml", folder / "run" / "wastenotd.sock"
        self.state, self.log = folder / "state", folder / "log"
        self.process = None

    def start(self, policy=ROOT, *, ready=True, arguments=()):
        self.policy.write_text(policy)
        self.policy.chmod(0o644)
        self.log.touch()
        before = self.said().count("ready ")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "--policy", str(self.policy), *arguments],
                env=self.stand_in.environment(WASTENOT_STATE=str(self.state), WASTENOTD_SOCKET=str(self.socket))
                | self.environment,
                stderr=log,
            )
        if ready:
            deadline = time.monotonic() + 60.0
            while self.said().count("ready ") <= before and time.monotonic() < deadline:
                assert self.process.poll() is None, self.said()
                time.sleep(0.005)
        return self

    def said(self):
        return self.log.read_text()

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.process.terminate()
        return self.process.wait(60.0)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.stand_in.control.wait_for(self.process.pid)

    def connect(self, hello=True):
        client = Client(str(self.socket))
        if hello:
            client.ask("hello")
        return client


class Client:
    """A client that says whatever a test wants."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(30.0)
        self.socket.connect(path)
        self._rest = b""

    def ask(self, what, **fields):
        self.send(json.dumps({"wastenot": 1, "ask": what} | fields).encode() + b"\n")
        return self.reply()

    def send(self, data):
        self.socket.sendall(data)

    def reply(self):
        """The next reply; ``None`` where the daemon has hung up."""
        while b"\n" not in self._rest:
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not more:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def close(self):
        self.socket.close()


def until(true, seconds=60.0):
    """Wait until something is true; whether it is."""
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)
    return true()

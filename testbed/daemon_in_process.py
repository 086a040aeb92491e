"""A server of wastenotd inside a test: real sockets, a clock and users that the test makes up, and NVML in memory."""

import json
import os
import socket
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import pynvml

from wastenot.devices.clockd import server as server_module
from wastenot.devices.clockd.leases import Leases
from wastenot.devices.clockd.metrics import Metrics
from wastenot.devices.clockd.policy import Peer, Policy
from wastenot.devices.clockd.server import Server
from wastenot.devices.common.gpu_driver import DriverError
from wastenot.devices.nvidia.clocks import NvidiaSetter, members, set_members

UUIDS = ("GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-1111")
CORES, MEMORIES, LIMITS_MW, DEFAULT_MW = (300, 600, 900, 1200, 1500), (1000, 2000), (200_000, 700_000), 700_000
PROFILES = (1, 7)  # max-q and llm-training


class MemoryNvml:
    """What wastenot uses of NVML to set clocks, of GPUs that are only numbers."""

    allow_changes = True
    library = pynvml

    def __init__(self):
        self.core = [None] * len(UUIDS)
        self.memory = [None] * len(UUIDS)
        self.limit_mw = [DEFAULT_MW] * len(UUIDS)
        self.profiles = [frozenset[int]() for _ in UUIDS]
        self.drawn_mw = [80_000] * len(UUIDS)  # None: it cannot be read
        self.clocks = dict.fromkeys(MEMORIES, CORES)
        self.failing = False
        self.on_change = lambda: None
        self.hangs: set[int] = set()  # GPUs whose clocks, when they are set, are not set until :meth:`answer`
        self.hanging: set[int] = set()
        self._answers = threading.Condition()

    def answer(self, index):
        with self._answers:
            self.hangs.discard(index)
            self.hanging.discard(index)
            self._answers.notify_all()

    def changed(self, index):
        default = (None, None, DEFAULT_MW, frozenset())
        return (self.core[index], self.memory[index], self.limit_mw[index], self.profiles[index]) != default

    def try_call(self, function, *arguments):
        return self.call(function, *arguments)

    def call(self, function, *arguments):
        name = function.removeprefix("nvmlDevice")
        if name.startswith(("Set", "Reset", "WorkloadPowerProfileUpdate")):
            if self.failing:
                raise DriverError(f"{function}: the driver fails")
            self.on_change()
            with self._answers:
                while arguments[0] in self.hangs:
                    self.hanging.add(arguments[0])
                    self._answers.wait()
        index = arguments[0] if arguments else None
        if name == "GetHandleByUUID":
            return UUIDS.index(index)
        answers = {
            "GetCount": lambda: len(UUIDS),
            "GetHandleByIndex": lambda: index,
            "GetUUID": lambda: UUIDS[index],
            "GetSupportedMemoryClocks": lambda: [*self.clocks],
            "GetSupportedGraphicsClocks": lambda: self.clocks[arguments[1]],
            "GetPowerManagementLimit": lambda: self.limit_mw[index],
            "GetPowerManagementDefaultLimit": lambda: DEFAULT_MW,
            "GetPowerManagementLimitConstraints": lambda: LIMITS_MW,
            "GetPowerUsage": lambda: self.drawn_mw[index],
            "GetArchitecture": lambda: 9,
            "WorkloadPowerProfileGetCurrentProfiles": lambda: self._tell_profiles(index, arguments[1]._obj),
            "WorkloadPowerProfileUpdateProfiles_v1": lambda: self._take_profiles(index, arguments[1]._obj),
            "SetGpuLockedClocks": lambda: self._put(self.core, index, arguments[1:]),
            "SetMemoryLockedClocks": lambda: self._put(self.memory, index, arguments[1:]),
            "SetPowerManagementLimit": lambda: self._put(self.limit_mw, index, arguments[1]),
            "ResetGpuLockedClocks": lambda: self._put(self.core, index, None),
            "ResetMemoryLockedClocks": lambda: self._put(self.memory, index, None),
        }
        return answers[name]()

    def _tell_profiles(self, index, current):
        for field, numbers in (
            ("perf", PROFILES), ("requested", self.profiles[index]), ("enforced", self.profiles[index])
        ):  # fmt: skip
            set_members(getattr(current, f"{field}ProfilesMask"), numbers)
        return 0

    def _take_profiles(self, index, change):
        given = frozenset(members(change.updateProfilesMask))
        cleared = change.operation == pynvml.NVML_POWER_PROFILE_OPERATION_CLEAR
        self.profiles[index] = self.profiles[index] - given if cleared else given

    def _put(self, values, index, value):
        values[index] = value


class Daemon:
    """A server that does something only in :meth:`go`."""

    def __init__(self, folder: Path, policy: Policy):
        self.nvml, self.now, self.events, self.records = MemoryNvml(), 1000.0, [], []
        self.state = folder / "state"
        self._path = str(folder / "sock")
        self._peers: list[Peer] = []
        self.leases = Leases(
            [NvidiaSetter(self.nvml, index, uuid) for index, uuid in enumerate(UUIDS)], policy, lambda: self.now,
            self._note, lambda: None,
        )  # fmt: skip
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self._path)
        listening.listen(64)
        self.metrics = Metrics()
        self.server = Server(listening, self.leases, lambda: self.now, self._note, self._record, self.metrics)

    def _note(self, event, **fields):
        self.events.append((event, fields))

    def _record(self, event, **fields):
        self.records.append({"event": event, **fields})

    def next_peer(self, connection):
        return self._peers.pop(0)

    def connect(self, user=1000, groups=(), process=4711):
        self._peers.append(Peer(user, frozenset(groups), process))
        client = Client(self._path, self)
        self.go()
        return client

    def go(self, turns=6):
        for _ in range(turns):
            self.server.turn(0.0)
            self.settle()

    def settle(self):
        """Let GPUs' threads finish what they do, but for those that hang."""
        until_s = time.monotonic() + 60.0
        while any(busy for index, (busy, *_) in self.busy() if index not in self.nvml.hanging):
            assert time.monotonic() < until_s
            time.sleep(1e-4)
            self.leases.finish()

    def busy(self):
        workers = [(UUIDS.index(uuid), numbers) for uuid, numbers in self.leases.numbers().items()]
        return [*workers, (None, (self.leases.searching(),))]

    def hang_in_a_set(self):
        """A client whose request to set clocks of the first GPU has been given up, since the driver hangs."""
        client = self.connect()
        client.ask("hello"), client.ask("acquire", gpu=UUIDS[0])
        self.nvml.hangs.add(0)
        client.ask("set", gpu=UUIDS[0], core_mhz=900)
        self.pass_time(5.1)
        return client

    def take_policy(self, policy):
        self.leases.take_policy(policy)
        self.go()

    def search(self):
        self.leases.search()
        self.go()

    def pass_time(self, seconds):
        self.now += seconds
        self.go()

    def journals(self):
        return sorted(path.name.removesuffix(".json") for path in self.state.glob("*.json"))

    def mistakes(self):
        return [fields for _, fields in self.events if "wastenotd failed" in str(fields.get("text"))]


class Client:
    """A client whose questions are answered at once."""

    def __init__(self, path, daemon):
        self.daemon = daemon
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.socket.setblocking(False)
        self._rest = b""

    def ask(self, what, **fields):
        self.send(json.dumps({"wastenot": 1, "ask": what} | fields).encode() + b"\n")
        return self.reply()

    def send(self, data):
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.send(data)
        self.daemon.go()

    def reply(self):
        """The next reply; ``None`` where there is none."""
        with suppress(BlockingIOError, ConnectionResetError):
            while b"\n" not in self._rest:
                more = self.socket.recv(65536)
                if not more:
                    break
                self._rest += more
        if b"\n" not in self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def hung_up(self):
        """Whether the daemon has hung up."""
        try:
            while self.socket.recv(65536):
                pass
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        return True

    def close(self):
        self.socket.close()
        self.daemon.go()


@contextmanager
def running(policy):
    """A daemon with its journals in a folder in memory."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as name:
        folder = Path(name)
        with mock.patch.dict(os.environ, {"WASTENOT_STATE": str(folder / "state")}):
            os.environ.pop("WASTENOT_READ_ONLY", None)
            daemon = Daemon(folder, policy)
            with mock.patch.object(server_module, "peer_of", daemon.next_peer):
                try:
                    yield daemon
                finally:
                    daemon.nvml.failing = False
                    for index in range(len(UUIDS)):
                        daemon.nvml.answer(index)
                    daemon.server.close()
                    daemon.leases.end_all(60.0)

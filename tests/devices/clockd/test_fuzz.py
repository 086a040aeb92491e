"""Whatever bytes clients send, in whatever order, the daemon lives, keeps its policy and gives clocks back."""

import json

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, precondition, rule

from testbed.daemon_in_process import DEFAULT_MW, UUIDS, running
from wastenot.core.lines import LineError
from wastenot.devices.clockd.policy import Bounds, Policy, Rule
from wastenot.devices.common.daemon_protocol import decode

HEARTBEAT_S, LONGEST_S, LATE_S = 10.0, 60.0, 1.5
BOUNDS = {
    1000: (Bounds((600.0, 1200.0), None, (300.0, 600.0), LONGEST_S), {0}),
    1001: (Bounds(longest_lease_s=LONGEST_S), {0, 1}),
    1002: (Bounds(None, (2000.0, 2000.0), None, LONGEST_S / 2), {1}),
}  # and 1003 may do nothing
POLICY = Policy(
    tuple(Rule(frozenset({user}), frozenset(), frozenset(gpus), bounds) for user, (bounds, gpus) in BOUNDS.items()),
    heartbeat_s=HEARTBEAT_S,
    requests_per_s=1e6,
    connections_per_user=8,
)

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
json_values = st.recursive(
    plain, lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=8), each, max_size=4), max_leaves=20
)
numbers = (
    st.sampled_from([None, 300, 600, 900, 1200, 1500, 1000, 2000, 250.0, 450.0, 700.0, -1, 1e300, True, "900"]) | st.floats()
)
requests = st.fixed_dictionaries(
    {"wastenot": st.sampled_from([1, 1, 1, 1, 2, "1"]) | json_values},
    optional={
        "ask": st.sampled_from(["hello", "status", "acquire", "set", "release", "beat"]) | json_values,
        "gpu": st.sampled_from(UUIDS) | json_values,
        "claim": st.booleans() | json_values,
        "core_mhz": numbers,
        "memory_mhz": numbers,
        "power_limit_w": numbers,
    },
).map(lambda message: json.dumps(message).encode() + b"\n")
chunks = st.binary(max_size=200) | requests | st.tuples(requests, st.integers(0, 300)).map(lambda pair: pair[0][: pair[1]])


@given(st.binary(max_size=300))
def test_any_line_is_a_message_or_an_error(line):
    try:
        assert isinstance(decode(line)["wastenot"], int)
    except LineError as error:
        assert str(error)


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 2), chunks), max_size=30))
def test_any_bytes_leave_the_daemon_well_and_gpus_as_they_were(sent):
    with running(POLICY) as daemon:
        clients = [daemon.connect(user) for user in (1000, 1001, 1003)]
        for which, data in sent:
            clients[which].send(data)
            assert "wastenotd failed" not in str(daemon.events)
        bystander = daemon.connect(1002)
        assert bystander.ask("hello")["ok"]["user"] == 1002
        for client in clients:
            client.close()
        assert not any(map(daemon.nvml.changed, range(2))) and daemon.journals() == []


class Clients(RuleBasedStateMachine):
    """Several clients, well-behaved and not, while time passes, drivers fail and policies change."""

    clients = Bundle("clients")

    @initialize(target=clients)
    def start(self):
        self.context = running(POLICY)
        self.daemon = self.context.__enter__()
        self.expected = {}  # by GPU: the client that has the lease
        self.heard_s, self.users, self.numbers = {}, {}, {}
        return multiple(*map(self._connect, (1000, 1001, 1002)))

    @rule(target=clients, user=st.sampled_from([1000, 1001, 1002, 1003]))
    def connect(self, user):
        return self._connect(user)

    def _connect(self, user):
        number = 1 + len(self.numbers)
        client = self.daemon.connect(user, process=number)
        self.users[client], self.numbers[client] = user, number
        reply = client.ask("hello")
        if reply is not None and "ok" in reply:
            self.heard_s[client] = self.daemon.now
        return client

    def _ask(self, client, what, **fields):
        reply = client.ask(what, **fields)
        if reply is not None:
            self.heard_s[client] = self.daemon.now
        return reply

    @rule(client=clients, gpu=st.sampled_from([0, 1]), claim=st.booleans())
    def acquire(self, client, gpu, claim):
        before = self._holder(gpu)
        reply = self._ask(client, "acquire", gpu=UUIDS[gpu], claim=claim)
        if reply is not None and "ok" in reply:
            assert gpu in BOUNDS[self.users[client]][1] and before in (None, self.numbers[client])
            self.expected[gpu] = client

    @rule(
        client=clients, gpu=st.sampled_from([0, 1]),
        core=st.sampled_from([None, 300, 600, 900, 1200, 1500, 901]), memory=st.sampled_from([None, 1000, 2000]),
        limit=st.sampled_from([None, 250, 450, 700, 800]),
    )  # fmt: skip
    def set(self, client, gpu, core, memory, limit):
        before = self._holder(gpu)
        reply = self._ask(client, "set", gpu=UUIDS[gpu], core_mhz=core, memory_mhz=memory, power_limit_w=limit)
        if reply is not None and "ok" in reply:
            assert before == self.numbers[client]
            if core is not None:
                assert self.daemon.nvml.core[gpu] == (300, core)

    @rule(client=clients, gpu=st.sampled_from([0, 1]))
    def release(self, client, gpu):
        reply = self._ask(client, "release", gpu=UUIDS[gpu])
        if reply is not None and "ok" in reply and self.expected.get(gpu) is client:
            assert not self.daemon.nvml.changed(gpu)
            del self.expected[gpu]

    @rule(client=clients, gpu=st.sampled_from([0, 1]), core=st.sampled_from([300, 900, 1500]), beats=st.integers(1, 8))
    def work(self, client, gpu, core, beats):
        """What a client is for: it sets a clock and keeps it for a while."""
        self.acquire(client, gpu, True)
        for _ in range(beats):
            self.set(client, gpu, core, None, None)
            self.what_is_changed_is_held_within_the_policy_and_journaled()
            self.daemon.pass_time(0.9 * HEARTBEAT_S)
            self._ask(client, "beat")

    @rule(client=clients)
    def beat(self, client):
        self._ask(client, "beat")

    @rule(client=clients, data=chunks)
    def send_anything(self, client, data):
        client.send(data)
        self.heard_s[client] = self.daemon.now  # perhaps
        client.reply()
        for gpu in (0, 1):
            if self._holder(gpu) == self.numbers[client]:
                self.expected[gpu] = client  # what was sent made sense

    @rule(client=consumes(clients))
    def hang_up(self, client):
        client.close()
        self.expected = {gpu: held for gpu, held in self.expected.items() if held is not client}
        for gpu in (0, 1):
            if self._holder(gpu) is None and not self.daemon.nvml.failing:
                assert not self.daemon.nvml.changed(gpu)

    @rule(seconds=st.floats(0.0, 15.0))
    def pass_time(self, seconds):
        self.daemon.pass_time(seconds)

    @precondition(lambda self: not self.daemon.nvml.failing)
    @rule()
    def driver_fails(self):
        self.daemon.nvml.failing = True

    @precondition(lambda self: self.daemon.nvml.failing)
    @rule()
    def driver_recovers(self):
        self.daemon.nvml.failing = False
        self.daemon.pass_time(LATE_S)

    @rule(rules=st.lists(st.sampled_from(POLICY.rules), max_size=3, unique=True))
    def other_policy(self, rules):
        self.daemon.take_policy(Policy(tuple(rules), heartbeat_s=HEARTBEAT_S, requests_per_s=1e6, connections_per_user=8))
        self.daemon.take_policy(POLICY)

    def _holder(self, gpu):
        """The number of the process that has a GPU's lease."""
        return self.daemon.leases.status().get(UUIDS[gpu], {}).get("process")

    @invariant()
    def what_is_changed_is_held_within_the_policy_and_journaled(self):
        if not hasattr(self, "daemon"):
            return
        daemon, status = self.daemon, self.daemon.leases.status()
        assert daemon.mistakes() == []
        for gpu, uuid in enumerate(UUIDS):
            if self._holder(gpu) is not None:
                assert self.numbers[self.expected[gpu]] == self._holder(gpu)
            if not daemon.nvml.changed(gpu):
                continue
            assert uuid in daemon.journals()
            if status.get(uuid, {}).get("unrestored"):
                continue
            held = status[uuid]
            bounds, gpus = BOUNDS[held["user"]]
            assert gpu in gpus and held["held_s"] <= bounds.longest_lease_s + LATE_S
            core, memory, limit_w = daemon.nvml.core[gpu], daemon.nvml.memory[gpu], daemon.nvml.limit_mw[gpu] / 1000
            assert core is None or (bounds.core_mhz and bounds.core_mhz[0] <= core[1] <= bounds.core_mhz[1])
            assert memory is None or (bounds.memory_mhz and bounds.memory_mhz[0] <= memory[1] <= bounds.memory_mhz[1])
            allowed = bounds.power_limit_w
            assert limit_w == DEFAULT_MW / 1000 or (allowed and allowed[0] <= limit_w <= allowed[1])

    @invariant()
    def nobody_holds_in_silence(self):
        if not hasattr(self, "daemon"):
            return
        for gpu, client in self.expected.items():
            if self._holder(gpu) == self.numbers[client]:
                assert self.daemon.now - self.heard_s[client] <= HEARTBEAT_S + LATE_S

    def teardown(self):
        if hasattr(self, "daemon"):
            self.daemon.nvml.failing = False
            self.daemon.pass_time(HEARTBEAT_S + LONGEST_S)
            assert not any(map(self.daemon.nvml.changed, range(2))) and self.daemon.journals() == []
            self.context.__exit__(None, None, None)


Clients.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestClients = Clients.TestCase

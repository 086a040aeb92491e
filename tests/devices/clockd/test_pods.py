"""wastenot-pods as a process of its own: real processes in a kubelet's control groups, wastenotd, the stand-in for NVML."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from testbed.daemon_process import until
from testbed.pods_api import PodsApi, pod

GROUPS = Path("/sys/fs/cgroup/pids" if Path("/sys/fs/cgroup/pids").is_dir() else "/sys/fs/cgroup")
RULES = """
[[allow]]
users = ["root"]
core_mhz = [600, 1800]
power_limit_w = [300, 700]
"""


class Node:
    """A node: pods whose processes use GPUs, and the agent."""

    def __init__(self, stand_in, daemon, api, folder):
        self.stand_in, self.daemon, self.api, self.folder = stand_in, daemon, api, folder
        self.running, self.groups, self.agent, self.log = [], [], None, folder / "agent.log"

    def run(self, which, *gpus):
        """A process of a pod, or of none, that computes on GPUs; its ID."""
        process = subprocess.Popen(["sleep", "600"])
        self.running.append((process, gpus))
        if which is not None:
            uid = which["metadata"]["uid"].replace("-", "_")
            group = GROUPS / f"kubepods-burstable-pod{uid}.slice" / "cri-containerd-0123.scope"
            group.mkdir(parents=True, exist_ok=True)
            self.groups.append(group)
            (group / "cgroup.procs").write_text(str(process.pid))
        for gpu in gpus:
            self.stand_in.control.foreign_process(process.pid, 1 << 30, gpu)
        return process

    def end(self, process):
        process.kill()
        process.wait()
        gpus = next(gpus for each, gpus in self.running if each is process)
        for gpu in gpus:
            self.stand_in.control.foreign_process(process.pid, 0, gpu)

    def start(self, *arguments):
        environment = self.stand_in.environment(NODE_NAME="n1", WASTENOTD_SOCKET=str(self.daemon.socket))
        command = [
            "--account",
            str(self.api.account),
            "--plans",
            str(self.folder),
            "--period",
            "0.1",
            "--port",
            "0",
            *arguments,
        ]
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                [sys.executable, "-m", "wastenot.devices.pods.main", *command],
                env=environment | self.api.environment, stderr=log,
            )  # fmt: skip
        assert until(lambda: "ready " in self.said() or self.agent.poll() is not None) and self.agent.poll() is None, (
            self.said()
        )

    def said(self):
        return self.log.read_text() if self.log.exists() else ""

    def core(self, gpu=0):
        locked = self.stand_in.control.state(gpu).locked_core_mhz
        return None if locked is None else locked[1]

    def close(self):
        if self.agent is not None and self.agent.poll() is None:
            self.agent.kill()
            self.agent.wait()
        for process, _ in self.running:
            if process.poll() is None:
                self.end(process)
        for group in dict.fromkeys(self.groups):
            until(lambda group=group: not (group / "cgroup.procs").read_text())
            group.rmdir()
            group.parent.rmdir()


@pytest.fixture
def node(stand_in, daemon, tmp_path):
    if not os.access(GROUPS, os.W_OK):
        pytest.skip("control groups cannot be made here; run it as root")
    api = PodsApi(tmp_path)
    node = Node(stand_in, daemon.start(RULES), api, tmp_path)
    yield node
    node.close()
    api.close()


def test_an_annotated_pod_has_its_ceiling_for_as_long_as_it_computes(node):
    wanted = pod("train", core_mhz="1415")
    node.api.pods = [wanted, pod("other")]
    node.start()
    process = node.run(wanted, 0)
    assert until(lambda: node.core() == 1410) and node.stand_in.control.state(1).untouched  # rounded down
    assert until(lambda: "pods=ml/train" in node.said()) and "user=0" in node.daemon.said()
    node.end(process)
    assert until(lambda: node.stand_in.control.state().untouched)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_clocks_are_back_however_the_agent_ends(node, number):
    wanted = pod("train", core_mhz="1410", budget_w="400")
    node.api.pods = [wanted]
    node.run(wanted, 0)
    node.start()
    assert until(lambda: node.core() == 1410 and node.stand_in.control.state().power_limit_w == 400.0)
    node.agent.send_signal(number)
    code = node.agent.wait(60.0)
    assert code == (0 if number == signal.SIGTERM else -number)
    assert until(lambda: node.stand_in.control.state().untouched)
    node.start()  # the next one sets it again
    assert until(lambda: node.core() == 1410)


def test_a_lease_that_the_daemon_has_ended_is_acquired_again(node):
    wanted = pod("train", core_mhz="1410")
    node.api.pods = [wanted]
    node.run(wanted, 0)
    node.start()
    assert until(lambda: node.core() == 1410)
    assert node.daemon.stop() == 0 and node.stand_in.control.state().untouched
    node.daemon.start(RULES.replace("[[allow]]", "heartbeat_s = 1\n[[allow]]"))
    assert until(lambda: node.core() == 1410)


def test_only_annotated_pods_are_touched(node):
    wanted, other, elsewhere = pod("train", core_mhz="1410"), pod("other"), pod("train", core_mhz="900", node="n2")
    node.api.pods = [wanted, other, elsewhere]
    node.start()
    node.run(other, 0)
    node.run(elsewhere, 0)  # as a pod that the API does not show
    node.run(None, 0)  # a process of the host
    second = node.run(wanted, 1)
    assert until(lambda: node.core(1) == 1410) and node.stand_in.control.state(0).untouched
    guest = node.run(other, 1)
    assert until(lambda: node.stand_in.control.state(1).untouched and "do not ask for the same" in node.said())
    node.end(guest)
    assert until(lambda: node.core(1) == 1410)
    node.end(second)
    node.run(wanted, 0)
    assert until(lambda: node.stand_in.control.state(1).untouched)
    assert node.stand_in.control.state(0).untouched and not node.stand_in.control.state(0).setters


def test_a_budget_is_shared_by_the_gpus_of_a_pod(node):
    wanted = pod("train", gpus=2, budget_w="1000")
    node.api.pods = [wanted]
    node.start()
    node.run(wanted, 0)
    assert until(lambda: node.stand_in.control.state(0).power_limit_w == 500.0)
    node.run(wanted, 1)
    assert until(lambda: node.stand_in.control.state(1).power_limit_w == 500.0)
    wanted["metadata"]["annotations"]["wastenot.dev/budget-w"] = "800"  # kubectl annotate --overwrite
    assert until(lambda: {node.stand_in.control.state(gpu).power_limit_w for gpu in (0, 1)} == {400.0})


def test_what_cannot_be_set_is_told_and_nothing_else_is_set(node):
    low, wrong = pod("low", gpus=2, budget_w="200"), pod("wrong", core_mhz="fast")
    node.api.pods = [low, wrong]
    node.run(low, 0)
    node.run(wrong, 1)
    node.start("--port", "9401")
    assert until(lambda: node.said().count("not set ") == 2)
    assert "100 W each; the lowest here is 300 W" in node.said()
    assert "core-mhz 'fast': not a positive number" in node.said()
    assert node.stand_in.control.state(0).untouched and node.stand_in.control.state(1).untouched
    page = urllib.request.urlopen("http://127.0.0.1:9401/metrics").read().decode()
    assert len(re.findall(r'wastenot_pods_refused\{gpu="GPU-\S+"\} 1', page)) == 2
    assert "wastenot_pods_core_mhz{" not in page and "wastenotd_connections" in page
    assert urllib.request.urlopen("http://127.0.0.1:9401/healthz").read() == b"well\n"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen("http://127.0.0.1:9401/other")


def test_what_was_known_holds_while_the_api_is_away_and_tokens_are_renewed(node):
    wanted = pod("train", core_mhz="1410")
    node.api.pods = [wanted]
    node.start()
    first = node.run(wanted, 0)
    assert until(lambda: node.core() == 1410)
    node.api.broken = True
    node.end(first)
    assert until(lambda: node.stand_in.control.state().untouched)  # needs no API
    node.run(wanted, 1)
    late = pod("late", core_mhz="900")
    node.api.pods.append(late)
    node.run(late, 0)
    assert until(lambda: node.core(1) == 1410) and until(lambda: "API error" in node.said())
    time.sleep(0.3)
    assert node.stand_in.control.state(0).untouched
    node.api.broken, node.api.token = False, "second"
    assert until(lambda: node.core(0) == 900)

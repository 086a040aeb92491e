"""A second terminal as the documentation tells it: a job in one process, its status and a real Prometheus beside it."""

import json
import re
import subprocess
import sys

import pytest

from testbed.prometheus import prometheus_scraping

SWEEP = (
    "kernel sweep gpt3-small --device sim:rtx-3080-ti --granularity pass --core 1470,1680,1890 --memory 9251 --study s.db"
)
APPLY = "apply plan.json --device sim:rtx-3080-ti --real-time --iterations 100000 --metrics-port 0 --out run.json"


def wastenot(folder, words):
    command = [sys.executable, "-m", "wastenot", *words.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def job(tmp_path, runtime):
    """A simulated job in real time under a plan, and the port of its metrics."""
    pytest.importorskip("prometheus_client")
    wastenot(tmp_path, SWEEP)
    wastenot(tmp_path, "kernel plan --study s.db --granularity pass --max-slowdown 2% --out plan.json")
    command = [sys.executable, "-m", "wastenot", *APPLY.split()]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        try:
            said = running.stderr.readline()
            yield running, int(re.search(r"metrics: http://127\.0\.0\.1:(\d+)/metrics", said)[1])
        finally:
            running.kill()


@pytest.mark.slow
@pytest.mark.system
def test_status_prometheus_and_stop(job, tmp_path):
    running, port = job
    with prometheus_scraping(port, tmp_path) as prometheus:
        ((labels, count),) = prometheus.wait_for("wastenot_iterations_total > 2")
        assert labels["origin"] == "simulated" and labels["job"] == "wastenot"
        sessions = json.loads(wastenot(tmp_path, "apply --status --json"))["sessions"]
        (own,) = [each for each in sessions if each["process"] == running.pid]
        assert own["iteration"] + 1 >= count
        ((_, power),) = prometheus.values("wastenot_gpu_power_watts")
        assert 100.0 < power < 500.0
        prometheus.wait_for("increase(wastenot_gpu_energy_joules_total[30s]) > 0")
        ((info, _),) = prometheus.values("wastenot_plan_info")
        assert info["digest"] == own["plan_digest"] and info["plan"] == "plan.json"
        shown = wastenot(tmp_path, "apply --status")
        assert f"process {running.pid}: " in shown and "simulated" in shown
        wastenot(tmp_path, "apply --stop")
        assert running.wait(20) == 0
    assert json.loads((tmp_path / "run.json").read_text())["ended"] == "stopped"

"""What Prometheus reads: the values of a status, in base units, and no more than is known."""

import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from shutil import which

import pytest

from testbed.applied import GPU, NO_PROOF, status
from wastenot.control.metrics import LEASE_STATES, METRICS, metrics_registry, serve_metrics
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.devices.common import journal, lease_states
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE

prometheus_client = pytest.importorskip("prometheus_client")
parser = pytest.importorskip("prometheus_client.parser")


def scraped(present):
    return prometheus_client.generate_latest(metrics_registry(lambda: present)).decode()


def _get(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def values(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text, name, **labels):
    found = [
        number for (each, *have), number in values(text).items() if each == name and labels.items() <= dict(have).items()
    ]
    return found[0] if len(found) == 1 else found or None


def test_values_are_those_of_the_status():
    text = scraped(status())
    assert value(text, "wastenot_gpu_energy_joules_total") == 52_000.0
    assert value(text, "wastenot_gpu_power_watts") == 289.5
    assert value(text, "wastenot_gpu_clock_target_hertz", clock="core") == 1.47e9
    assert value(text, "wastenot_gpu_clock_hertz", clock="memory") == 9.501e9
    assert value(text, "wastenot_saved_energy_joules_total") == 4_200.0
    assert value(text, "wastenot_saved_energy_low_joules") == 3_900.0
    assert value(text, "wastenot_saved_energy_high_joules") == 4_500.0
    assert value(text, "wastenot_slowdown_ratio") == 0.001
    assert value(text, "wastenot_slowdown_low_ratio") == -0.001
    assert value(text, "wastenot_slowdown_high_ratio") == 0.003
    assert value(text, "wastenot_max_slowdown_ratio") == 0.02
    assert value(text, "wastenot_energy_change_ratio") == -0.081
    assert value(text, "wastenot_plan_info", plan="plan.json", digest="5f1c2ab0", workload="gpt3-xl", dry_run="false") == 1.0
    assert value(text, "wastenot_iterations_total") == 600.0
    assert value(text, "wastenot_compared_iterations", clocks="default") == 60.0
    assert value(text, "wastenot_rung") == 0.0
    assert value(text, "wastenot_rungs") == 4.0


def test_what_is_not_known_has_no_series():
    bare = GPU.model_copy(update={"target_core_mhz": None, "power_w": None, "energy_j": None})
    text = scraped(status(proof=NO_PROOF, gpus=(bare,), iteration=None))
    for name in ("gpu_clock_target_hertz", "gpu_power_watts", "gpu_energy_joules_total", "saved_energy_joules_total",
                 "saved_energy_low_joules", "slowdown_ratio", "iterations_total"):  # fmt: skip
        assert value(text, f"wastenot_{name}") is None, name
    assert value(text, "wastenot_gpu_clock_hertz", clock="core") == 1.47e9


def test_every_series_says_where_its_numbers_come_from():
    for origin in ("simulated", "measured"):
        assert all(dict(labels)["origin"] == origin for _, *labels in values(scraped(status(origin=origin))))


def test_every_request_reads_the_status_anew():
    power = iter((100.0, 200.0))
    with serve_metrics(0, lambda: status(gpus=(GPU.model_copy(update={"power_w": next(power)}),))) as port:
        assert [value(_get(port), "wastenot_gpu_power_watts") for _ in range(2)] == [100.0, 200.0]


def test_several_gpus_have_series_of_their_own():
    other = GPU.model_copy(update={"unique_id": "SIM-rtx-3080-ti-1", "power_w": 301.0})
    text = scraped(status(gpus=(GPU, other)))
    assert value(text, "wastenot_gpu_power_watts", gpu="SIM-rtx-3080-ti-1") == 301.0
    assert len(value(text, "wastenot_gpu_power_watts")) == 2


def test_names_that_need_escaping_survive():
    text = scraped(status(plan='a "plan"\\of\nmine.json'))
    assert value(text, "wastenot_plan_info", plan='a "plan"\\of\nmine.json') == 1.0


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def leases(text, gpu):
    return {each for each in LEASE_STATES if value(text, "wastenot_gpu_lease_state", gpu=gpu, state=each) == 1.0}


def test_lease_and_journal_of_a_measured_gpu():
    real = status(origin="measured", gpus=(GPU.model_copy(update={"unique_id": "GPU-1"}),))
    assert leases(scraped(real), "GPU-1") == {"free"}
    path = journal.begin("GPU-1", journal.Restore())
    assert leases(scraped(real), "GPU-1") == {"held"}
    journal.note(path, failed="the driver refuses")
    assert leases(scraped(real), "GPU-1") == {"unrestored"}
    journal.end(path)
    assert leases(scraped(real), "GPU-1") == {"free"}
    dies = "import os; from wastenot.devices.common import journal as j; j.begin('GPU-1', j.Restore()); os._exit(1)"
    subprocess.run([sys.executable, "-c", dies], check=False)
    assert leases(scraped(real), "GPU-1") == {"stale"}
    path.write_text("{")
    assert leases(scraped(real), "GPU-1") == {"unreadable"}


def test_a_gpu_that_another_set_shows_up():
    path = journal.begin("GPU-2", journal.Restore())
    text = scraped(status())
    journal.end(path)
    assert leases(text, "GPU-2") == {"held"}
    assert leases(text, GPU.unique_id) == set()  # a simulated one has no journal


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """The socket of a daemon that does not answer, for a user other than root."""
    path = tmp_path / "wastenotd.sock"
    monkeypatch.setenv(SOCKET_VARIABLE, str(path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(1)
        yield listening


def test_a_scrape_does_not_wait_long_for_a_daemon_that_hangs(daemon, monkeypatch):
    assert lease_states._PATIENCE_S <= 2.0
    monkeypatch.setattr(lease_states, "_PATIENCE_S", 0.05)
    real = status(origin="measured", gpus=(GPU.model_copy(update={"unique_id": "GPU-1"}),))
    assert leases(scraped(real), "GPU-1") == {"unreadable"}


def test_who_may_not_ask_the_daemon_has_no_series_of_leases(daemon, monkeypatch):
    def refuse(patience_s):
        raise ClocksRefusedError("wastenotd is for members of the group 'wastenot'")

    monkeypatch.setattr(lease_states, "Connection", refuse)
    real = status(origin="measured", gpus=(GPU.model_copy(update={"unique_id": "GPU-1"}),))
    text = scraped(real)
    assert leases(text, "GPU-1") == set() and value(text, "wastenot_plan_info") == 1.0


def test_only_this_machine_is_served_unless_asked(monkeypatch):
    seen = []
    real = prometheus_client.start_http_server
    monkeypatch.setattr(
        prometheus_client, "start_http_server", lambda *given, **more: (seen.append(more["addr"]), real(*given, **more))[1]
    )
    with serve_metrics(0, status):
        pass
    with serve_metrics(0, status, host="0.0.0.0"):
        pass
    assert seen == ["127.0.0.1", "0.0.0.0"]


def test_a_port_in_use_is_one_clear_line():
    with serve_metrics(0, status) as port:
        refused = pytest.raises(BadInputError, match=f"metrics_port {port}: .*take another")
        with refused, serve_metrics(port, status):
            pass


def test_the_port_is_free_again_afterwards():
    with serve_metrics(0, status) as port:
        pass
    with serve_metrics(port, status) as again:
        assert again == port


@pytest.mark.system
def test_names_and_meanings_are_those_of_prometheus():
    """Debian's promtool knows the rules; the one name that breaks one is explained where it is made."""
    if which("promtool") is None:
        pytest.skip("no promtool: apt-get install prometheus")
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=scraped(status(origin="measured")),
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = (checked.stdout + checked.stderr).splitlines()
    assert [line.split()[0] for line in complaints] == ["wastenot_saved_energy_joules_total"], complaints
    assert "_total" in complaints[0]


def test_each_metric_has_a_name_of_its_own():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(metric.name.startswith("wastenot_") for metric in METRICS)


def test_the_documentation_lists_them_all():
    page = (Path(__file__).parents[2] / "docs" / "apply.md").read_text()
    rows = re.findall(r"^\| `(wastenot_\w+)` \| (\w+) \| (.+) \|$", page, re.M)
    assert rows == [(metric.name, metric.kind, metric.meaning) for metric in METRICS]

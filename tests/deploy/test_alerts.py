"""The alerts: valid to Prometheus' own tool, which also says when each is raised and when not."""

import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from wastenot.control.metrics import METRICS
from wastenot.devices.clockd.metrics import METRICS as DAEMON
from wastenot.devices.pods.agent import METRICS as PODS

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "wastenot.rules.yml"

CASES = f"""
rule_files: ["{RULES}"]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'wastenot_gpu_lease_state{{gpu="GPU-1",state="stale"}}', values: '0 0 1x20'}}
      - {{series: 'wastenot_gpu_lease_state{{gpu="GPU-2",state="held"}}', values: '1x40'}}
      - {{series: 'wastenot_gpu_lease_state{{gpu="GPU-3",state="unrestored"}}', values: '0 0 1x20'}}
      - {{series: 'wastenotd_gpu_hung{{gpu="GPU-4"}}', values: '0 0 1x20'}}
      - {{series: 'wastenotd_budget_short_watts{{instance="a"}}', values: '0 0 50x20'}}
      - {{series: 'wastenotd_budget_short_watts{{instance="b"}}', values: '0x40'}}
      - {{series: 'wastenotd_gpu_disobeys{{instance="c"}}', values: '0 0 1x20'}}
      - {{series: 'wastenot_gpu_clock_hertz{{gpu="GPU-5"}}', values: '1.755e9x40'}}
      - {{series: 'wastenot_gpu_clock_target_hertz{{gpu="GPU-5"}}', values: '1.47e9x40'}}
      - {{series: 'wastenot_gpu_clock_hertz{{gpu="GPU-6"}}', values: '1.98e9 1.47e9 1.47e9x40'}}
      - {{series: 'wastenot_gpu_clock_target_hertz{{gpu="GPU-6"}}', values: '_ 1.47e9 1.47e9x40'}}
      - {{series: 'wastenot_pods_refused{{gpu="GPU-7"}}', values: '0 0 1x20'}}
      - {{series: 'wastenot_pods_refused{{gpu="GPU-8"}}', values: '0 1 1 0x20'}}
      - {{series: 'wastenot_slowdown_low_ratio{{instance="a"}}', values: '0.03x40'}}
      - {{series: 'wastenot_max_slowdown_ratio{{instance="a"}}', values: '0.02x40'}}
      - {{series: 'wastenot_slowdown_low_ratio{{instance="b"}}', values: '0.03x5 0.01x35'}}
      - {{series: 'wastenot_max_slowdown_ratio{{instance="b"}}', values: '0.02x40'}}
      - {{series: 'wastenot_rung{{instance="a"}}', values: '3x40'}}
      - {{series: 'wastenot_rungs{{instance="a"}}', values: '4x40'}}
      - {{series: 'wastenot_rung{{instance="b"}}', values: '2x40'}}
      - {{series: 'wastenot_rungs{{instance="b"}}', values: '4x40'}}
    alert_rule_test:
      - {{eval_time: 3m, alertname: WastenotClocksLeftChanged}}
      - eval_time: 5m
        alertname: WastenotClocksLeftChanged
        exp_alerts:
          - exp_labels: {{gpu: GPU-1, state: stale}}
            exp_annotations:
              summary: "GPU-1: a process died before it reset the clocks; 'wastenot device reset' does"
      - eval_time: 5m
        alertname: WastenotClocksNotRestored
        exp_alerts:
          - exp_labels: {{gpu: GPU-3, state: unrestored}}
            exp_annotations:
              summary: "GPU-3: the driver refuses to reset the clocks; 'journalctl -u wastenotd' says why"
      - eval_time: 5m
        alertname: WastenotGpuDoesNotAnswer
        exp_alerts:
          - exp_labels: {{gpu: GPU-4}}
            exp_annotations:
              summary: "GPU-4: its driver does not return from a call; 'dmesg' may say why"
      - eval_time: 5m
        alertname: WastenotBudgetNotKept
        exp_alerts:
          - exp_labels: {{instance: a}}
            exp_annotations:
              summary: "a: GPUs may draw more than their budget; 'journalctl -u wastenotd' says which"
          - exp_labels: {{instance: c}}
            exp_annotations:
              summary: "c: GPUs may draw more than their budget; 'journalctl -u wastenotd' says which"
      - eval_time: 10m
        alertname: WastenotClockNotKept
        exp_alerts:
          - exp_labels: {{gpu: GPU-5}}
            exp_annotations:
              summary: "GPU-5: runs above the clock that was asked for: its driver does not keep it, or something resets it"
      - eval_time: 10m
        alertname: WastenotPodsRefused
        exp_alerts:
          - exp_labels: {{gpu: GPU-7}}
            exp_annotations:
              summary: "GPU-7: what the annotations of its pods ask for is not set; the log of wastenot-pods says why"
      - eval_time: 15m
        alertname: WastenotSlowdownExceeded
        exp_alerts:
          - exp_labels: {{instance: a}}
            exp_annotations:
              summary: "a: slower than the plan allows, with 95 % confidence, and not back within its bound"
      - {{eval_time: 20m, alertname: WastenotSavesNothing}}
      - eval_time: 35m
        alertname: WastenotSavesNothing
        exp_alerts:
          - exp_labels: {{instance: a}}
            exp_annotations:
              summary: "a: runs at the default clocks to keep its slowdown; plan it anew"
"""


def promtool(*arguments):
    if which("promtool") is None:
        pytest.skip("no promtool: apt-get install prometheus")
    ran = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.system
def test_prometheus_takes_the_rules():
    code, said = promtool("check", "rules", RULES)
    assert code == 0 and "8 rules found" in said, said


@pytest.mark.system
def test_alerts_are_raised_when_they_should_and_no_earlier(tmp_path):
    (tmp_path / "cases.yml").write_text(CASES)
    code, said = promtool("test", "rules", tmp_path / "cases.yml")
    assert code == 0, said


def test_alerts_name_metrics_that_exist():
    named = set(re.findall(r"wastenotd?_\w+", " ".join(re.findall(r"expr: (.*)", RULES.read_text()))))
    assert len(named) > 4 and named <= {metric.name for metric in METRICS} | {
        *(f"wastenotd_{name}" for name in DAEMON), *(f"wastenot_pods_{name}" for name in PODS)
    }  # fmt: skip

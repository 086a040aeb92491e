"""A peer on the same stand-in: Zeus, as it comes from PyPI, measures and locks the simulated GPU."""

import json
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("zeus") is None, reason="no zeus")

MEASURE = """
import json, os, time
from testbed.stand_in.control import Control
from zeus.monitor import ZeusMonitor
control = Control(os.environ["STAND_IN_NVML"])
monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
begin = control.state()
monitor.begin_window("all", sync_execution=False)
time.sleep(3.0)
found = monitor.end_window("all", sync_execution=False)
end = control.state()
print(json.dumps([found.gpu_energy[0], found.time, end.energy_j - begin.energy_j, end.now_s - begin.now_s]))
"""

LOCK = """
from zeus.device import get_gpus
gpus = get_gpus()
gpus.set_gpu_locked_clocks(0, 345, 1005)
gpus.set_power_management_limit(0, 500_000)
assert gpus.get_name(0) == "NVIDIA H200" and gpus.get_supported_graphics_clocks(0, 3201)[0] == 1980
assert gpus.get_power_management_limit(0) == 500_000
input()
gpus.reset_gpu_locked_clocks(0)
gpus.reset_power_management_limit(0)
try:
    gpus.set_memory_locked_clocks(0, 3201, 3201)
except Exception as error:
    print(type(error).__name__)
"""


def environment(stand_in):
    found = stand_in.environment()
    for name in ("CUDA_VISIBLE_DEVICES", "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT"):
        found.pop(name, None)
    return found


@pytest.mark.slow  # it imports Zeus
def test_zeus_measures_the_energy_that_the_simulated_gpu_used(wall, cool_task):
    with wall.launcher().start(cool_task):
        wall.time().sleep(0.5)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE], env=environment(wall), capture_output=True, text=True, check=False
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured_j, measured_s, true_j, true_s = json.loads(done.stdout.splitlines()[-1])
    assert measured_s == pytest.approx(true_s, rel=0.05) and true_j > 100
    # The counter steps each 0.1 s, and Zeus does not wait for it: up to a step of 3 s at either end.
    assert measured_j / measured_s == pytest.approx(true_j / true_s, rel=0.05)


def test_zeus_locks_the_clocks_of_the_simulated_gpu_and_gives_them_back(stand_in):
    with subprocess.Popen(
        [sys.executable, "-c", LOCK],
        env=environment(stand_in),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as zeus:
        while not stand_in.control.state().setters[1:] and zeus.poll() is None:
            time.sleep(0.02)
        locked = stand_in.control.state()
        out, err = zeus.communicate("\n")
    assert zeus.returncode == 0, err
    assert locked.locked_core_mhz == (345, 1005) and locked.power_limit_w == 500.0
    assert out.strip() == "ZeusGPUNotSupportedError"
    assert stand_in.control.state().untouched

"""``wastenot monitor`` as a user runs it, on simulated GPUs and on the stand-in for NVML."""

import csv
import fcntl
import json
import os
import pty
import re
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from testbed.program import Ran
from testbed.stand_in.fixtures import start_stand_in
from wastenot.cli.main import run

SIM = "sim:h200"
ON = ("--device", SIM, "--")
CATCHES = """
import signal, sys, time
def caught(number, _):
    print("caught", number, flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, caught)
signal.signal(signal.SIGINT, caught)
print("ready", flush=True)
time.sleep(30)
"""

UNTIL_WRITTEN = """
import pathlib, sys, time
ends_s = time.monotonic() + 60.0
while time.monotonic() < ends_s and pathlib.Path(sys.argv[1]).read_text().count("\\n") < 9:
    time.sleep(0.05)
"""


def python(code):
    return (sys.executable, "-c", code)


def test_the_program_has_its_streams_and_its_exit_code(wastenot):
    program = "import sys; print(input()[::-1]); print('err', file=sys.stderr); sys.exit(3)"
    ran = wastenot.process("monitor", *ON, *python(program), stdin="abc\n")
    assert ran.code == 3
    assert ran.out == "cba\n"
    assert ran.err.startswith("err\n")
    for part in ("J ±", "Wh", "USD at 0.15 USD", "NVIDIA H200", "mean power", "(simulated)", "throttled"):
        assert part in ran.err, part


def monitored(capfd, *arguments):
    """Run it in this process; its exit code and what it and the program wrote, all streams being files."""
    code = run(["monitor", *arguments])
    written = capfd.readouterr()
    return Ran(code, written.out, written.err)


def test_energy_is_that_of_the_time(capfd):
    began = time.monotonic()
    ran = monitored(
        capfd, "--json", "--price-per-kwh", "0.3", "--currency", "EUR", *ON, *python("import time; time.sleep(2)")
    )
    took = time.monotonic() - began
    found = json.loads(ran.out)
    assert found["schema"] == "wastenot.monitor/1" and found["exit_code"] == 0 and found["origin"] == "simulated"
    assert found["command"][0] == sys.executable
    assert 2.0 <= found["time_s"] <= took
    assert abs(found["energy_j"] - 77.0 * found["time_s"]) < 5.0 * found["energy_se_j"] + 0.03 * found["energy_j"]
    assert 0.0 < found["energy_se_j"] < 0.1 * found["energy_j"]
    assert found["price"] == {"per_kwh": 0.3, "currency": "EUR", "cost": pytest.approx(found["energy_j"] / 3.6e6 * 0.3)}
    assert found["memory_energy_j"] is None
    [gpu] = found["gpus"]
    assert gpu["device"] == SIM and gpu["energy_j"] == found["energy_j"]


def test_json_has_stdout_to_itself(capfd):
    ran = monitored(capfd, "--json", *ON, *python("print('mine')"))
    assert json.loads(ran.out)["exit_code"] == 0
    assert ran.err == "mine\n"


def test_two_devices_and_a_csv(capfd, tmp_path):
    log = tmp_path / "log.csv"
    ran = monitored(capfd, "--device", f"{SIM},sim:v100", "--csv", str(log), "--interval", "0.4s",
                    "--", *python(UNTIL_WRITTEN), str(log))  # fmt: skip
    assert ran.code == 0, ran.err
    assert "sim:v100 (" in ran.err and f"{SIM} (" in ran.err
    with log.open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) >= 6 and {row["device"] for row in rows} == {SIM, "sim:v100"}
    for name, power in ((SIM, 77.0), ("sim:v100", 33.0)):
        own = [row for row in rows if row["device"] == name]
        assert [float(row["time_s"]) for row in own] == sorted(float(row["time_s"]) for row in own)
        assert [float(row["energy_j"]) for row in own] == sorted(float(row["energy_j"]) for row in own)
        assert statistics.median(float(row["power_w"]) for row in own[1:]) == pytest.approx(power, rel=0.2)
        assert own[0]["core_mhz"] == ""  # an idle simulated GPU tells no clocks


def wait_until_caught(process_id):
    """Wait until a process passes signals on: until it catches the last of them."""
    ends_s = time.monotonic() + 60.0
    while True:
        caught = int(re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process_id}/status").read_text(), re.M)[1], 16)
        if caught >> (signal.SIGHUP - 1) & 1:
            return
        assert time.monotonic() < ends_s
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_signals_are_passed_on_and_the_result_is_still_told(number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "wastenot", "monitor", "--json", *ON, *python(CATCHES)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stderr.readline() == "ready\n"
    wait_until_caught(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 7 and f"caught {number}" in err
    assert json.loads(out)["exit_code"] == 7 and json.loads(out)["energy_j"] > 0.0


def test_a_program_that_a_signal_ends_is_told_as_shells_do(capfd):
    assert monitored(capfd, *ON, *python("import os; os.kill(os.getpid(), 9)")).code == 128 + 9


def in_terminal(*arguments, rows=24, keys=None):
    """Run it in a terminal of its own; returns what was shown, and the exit code."""
    child, screen = pty.fork()
    if child == 0:
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.execv(sys.executable, [sys.executable, "-m", "wastenot", *arguments])
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
    shown = b""
    while True:
        try:
            part = os.read(screen, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
        if keys and b"ready" in shown:
            wait_until_caught(child)
            os.write(screen, keys)
            keys = None
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


SLOWLY = "import time\nfor i in range(5): print('step', i, flush=True); time.sleep(0.4)"


def test_in_a_terminal_lines_stay_at_the_bottom_and_go():
    shown, code = in_terminal("monitor", "--interval", "0.3s", *ON, *python(SLOWLY))
    assert code == 0
    assert "\x1b[1;23r" in shown  # one row is kept from the program
    live = [part for part in shown.split("\x1b[24;1H") if "J in" in part]
    assert len(live) >= 3 and all(SIM in part for part in live)
    assert shown.rindex("\x1b[r") > shown.rindex("J in")  # given back before the summary
    assert "J ±" in shown[shown.rindex("\x1b[r") :]


@pytest.mark.parametrize(
    ("arguments", "rows"), [pytest.param(["--quiet"], 24, marks=pytest.mark.slow), (["--interval", "0.3s"], 4)]
)
def test_nothing_live_where_it_is_not_wanted_or_has_no_room(arguments, rows):
    shown, code = in_terminal("monitor", *arguments, *ON, *python(SLOWLY), rows=rows)
    assert code == 0 and "J in" not in shown and "J ±" in shown


def test_ctrl_c_reaches_the_program_once():
    shown, code = in_terminal("monitor", *ON, *python(CATCHES), keys=b"\x03")
    assert code == 7
    assert shown.count("caught 2") == 1 and "J ±" in " ".join(shown.split())  # lines may break there


def test_bad_input_is_one_line_before_anything_runs(wastenot):
    touch = python("open('ran', 'w')")
    assert "cannot run this command" in wastenot.refuse("monitor", *ON, "no-such-program")
    assert "interval" in wastenot.refuse("monitor", "--interval", "0", *ON, *touch)
    assert "there is no kind" in wastenot.refuse("monitor", "--device", "tpu:0", "--", *touch)
    assert "--csv" in wastenot.refuse("monitor", "--csv", "no/such/folder.csv", *ON, *touch)
    assert "price" in wastenot.refuse("monitor", "--price-per-kwh", "-1", *ON, *touch)
    assert "COMMAND" in wastenot.refuse("monitor", "--device", SIM)
    assert not (wastenot.folder / "ran").exists()


def test_without_a_gpu_that_may_be_used_it_says_so_and_starts_nothing(wastenot):
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    ran = wastenot.process("monitor", "--", *python("open('ran', 'w')"), **hidden)
    assert (ran.code, ran.out) == (2, "") and ran.err.count("\n") == 1 and ran.err.startswith("error: ")
    assert not (wastenot.folder / "ran").exists()


@pytest.mark.parametrize(
    ("preset", "vendor", "visible", "idle_w"),
    [("h200", "nvidia", "CUDA_VISIBLE_DEVICES", 78.0), ("mi300x", "amd", "HIP_VISIBLE_DEVICES", 140.0)],
)
def test_on_the_stand_in_for_a_driver_all_gpus_are_measured(wastenot, preset, vendor, visible, idle_w):
    with start_stand_in(preset, gpus=2, wall=True) as stand_in:
        environment = {key: value for key, value in stand_in.environment().items() if os.environ.get(key) != value}
        environment[visible] = "1,0"
        done = subprocess.run(
            [sys.executable, "-m", "wastenot", "monitor", "--json", "--", *python("import time; time.sleep(2)")],
            env=os.environ | environment, capture_output=True, text=True, check=False, cwd=wastenot.folder,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [gpu["device"] for gpu in found["gpus"]] == [f"{vendor}:1", f"{vendor}:0"]
    assert found["origin"] == "measured"  # as far as the program can know
    for gpu in found["gpus"]:
        assert gpu["energy_j"] == pytest.approx(idle_w * gpu["time_s"], rel=0.1)
        assert (gpu["memory_energy_j"] is not None) is (vendor == "nvidia") and gpu["core_mhz"] is not None

"""Work shared over processes: all of it is done, and a Ctrl-C at any moment is not a word of theirs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wastenot.core.processes import shared_out

PROGRAM = """
import sys, time
from wastenot.core.processes import shared_out
if __name__ == "__main__":
    try:
        list(shared_out(2, time.sleep, ((number, (60.0,)) for number in range(4))))
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


def test_every_task_is_done_and_told_by_its_key():
    assert dict(shared_out(2, pow, ((number, (number, 2)) for number in range(5)))) == {n: n * n for n in range(5)}


def workers(group):
    """The processes that share the work, as far as they have been started."""
    children = Path(f"/proc/{group}/task/{group}/children").read_text().split()
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.1, 0.3, 1.0])
def test_a_ctrl_c_while_processes_start_or_work_is_one_line(tmp_path, after_s):
    (tmp_path / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while not workers(program.pid):
            assert program.poll() is None
            time.sleep(0.002)
        time.sleep(after_s)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        _, said = program.communicate(timeout=50)  # less than a task takes
    finally:
        program.kill()
    assert (program.returncode, said) == (1, "interrupted\n")

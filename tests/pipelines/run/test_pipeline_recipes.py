"""The programs of docs/pipelines-recipes.md, run as they stand."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed import ROOT
from testbed.pipeline_ranks import environment, free_port
from testbed.pipeline_runs import made_profile, planned

PAGE = Path(__file__).parents[3] / "docs" / "pipelines-recipes.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def block(word):
    [found] = [each for each in BLOCKS if word in each]
    return found


class Applied:
    """Notes what is marked."""

    def __init__(self):
        self.marked = []

    def instruction(self, name, micro_batch):
        self.marked.append((name, micro_batch))


@pytest.mark.slow  # what it calls is tested with two ranks of its own
def test_the_program_for_torch_runs_as_it_stands(tmp_path):
    pytest.importorskip("torch.distributed.pipelining")
    planned(made_profile(2, forward_s=0.02), 4, slower=0.1).write(tmp_path / "pipeline.json")
    assert _both_ranks(tmp_path, "-c", block("init_process_group")) == [f"{rank} True job ended\n" for rank in (0, 1)]


@pytest.mark.slow  # importing Megatron takes half a minute
def test_megatrons_own_schedule_runs_a_plan(tmp_path):
    if not find_spec("megatron"):  # importing it here, beside other tests' modules, is not what is tested
        pytest.skip("no Megatron-LM")
    planned(made_profile(2, forward_s=0.02), 4, slower=0.1).write(tmp_path / "pipeline.json")
    out = _both_ranks(tmp_path, str(ROOT / "testbed" / "megatron_stage.py"), block("def watch_megatron"), "10")
    assert [line.split()[:3] for line in out] == [["0", "True", "0"], ["1", "True", "0"]]


@pytest.mark.slow  # so does importing torchtitan
def test_a_schedule_that_torchtitan_builds_runs_a_plan(tmp_path):
    if not find_spec("torchtitan"):
        pytest.skip("no torchtitan")
    planned(made_profile(2, forward_s=0.02), 4, slower=0.1).write(tmp_path / "pipeline.json")
    out = _both_ranks(tmp_path, str(ROOT / "testbed" / "torchtitan_stage.py"), "10")
    assert [line.split()[:3] for line in out] == [["0", "True", "0"], ["1", "True", "0"]]


def _both_ranks(folder, *arguments):
    """What two ranks of a pipeline print."""
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=environment(rank, 2, port, folder) | {"DEVICE": "sim:h200"},
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    said = [process.communicate(timeout=240) for process in ranks]
    assert not any(process.returncode for process in ranks), said
    return [out for out, _ in said]


def test_the_wrappers_for_megatron_mark_both_passes_and_no_evaluation():
    torch = pytest.importorskip("torch")
    schedules = SimpleNamespace(
        forward_step=lambda data, *, current_microbatch: ("forward", data, current_microbatch),
        backward_step=lambda gradient: ("backward", gradient),
    )
    made, applied = {}, Applied()
    exec(block("def watch_megatron"), made)
    made["watch_megatron"](applied, schedules, 2)
    with torch.no_grad():
        schedules.forward_step(1, current_microbatch=0)
    for _ in range(2):
        for each in range(2):
            assert schedules.forward_step(each, current_microbatch=each) == ("forward", each, each)
        for each in range(2):
            assert schedules.backward_step(each) == ("backward", each)
    assert applied.marked == 2 * [("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1)]


def test_the_wrappers_for_deepspeed_mark_what_its_table_runs():
    pytest.importorskip("torch")
    schedule = SimpleNamespace(ForwardPass=type("F", (), {}), BackwardPass=type("B", (), {}), SendGrad=type("S", (), {}))

    class Engine:
        micro_batches = 3
        _INSTRUCTION_MAP = {  # noqa: RUF012 - as DeepSpeed has it
            schedule.ForwardPass: lambda self, buffer_id: ("forward", buffer_id),
            schedule.BackwardPass: lambda self, buffer_id: ("backward", buffer_id),
            schedule.SendGrad: lambda self, buffer_id: ("send", buffer_id),
        }

    made, applied, engine = {}, Applied(), Engine()
    exec("import torch\n" + block("def watch_deepspeed"), made)
    made["watch_deepspeed"](applied, engine, schedule)
    commands = 3 * [schedule.ForwardPass] + 3 * [schedule.BackwardPass] + [schedule.SendGrad]
    ran = [engine._INSTRUCTION_MAP[command](engine, buffer_id=0)[0] for command in 2 * commands]
    assert ran == 2 * [*3 * ["forward"], *3 * ["backward"], "send"]
    once = [*(("forward", each) for each in range(3)), *(("backward", each) for each in range(3))]
    assert applied.marked == 2 * once
    assert Engine._INSTRUCTION_MAP[schedule.ForwardPass](engine, 0) == ("forward", 0) and len(applied.marked) == 12


def test_the_page_says_what_was_tested():
    assert os.path.exists(PAGE) and "Not run here" in PAGE.read_text()

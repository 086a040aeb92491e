"""A real vLLM without a GPU: the page that begins with it, block by block as a reader would type it, and what it left."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from benchmarks.kept import ROOT
from docs.make.blocks import BLOCK
from testbed.logged_control import decided_again, read_log
from wastenot.serving.bench.server_metrics import samples
from wastenot.serving.control.instance import Rules
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.step_records import read_step_records
from wastenot.serving.tables.store import ServingStore
from wastenot.study.store import open_study

PAGE, VLLM = ROOT / "docs" / "tutorials" / "vllm.md", ROOT / ".venv-vllm"
LONG = " ".join(f"place{number}" for number in range(150))
# What the server tells before it ends; then one prompt twice, the second time from its cache.
LOOK = f"""curl -sf http://localhost:8000/metrics > metrics.txt
for each in 1 2; do
  curl -sf http://localhost:8000/v1/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "tiny", "prompt": "{LONG}", "max_tokens": 2, "ignore_eos": true}}' > twice.json
done
sleep 1
"""


def typed(folder, port):
    """The page's blocks as one script, which looks at the server before it ends it; its files are written."""
    script = ["set -e", "trap 'kill $(jobs -p) 2> /dev/null || :' EXIT"]
    for kind, option, language, body in BLOCK.findall(PAGE.read_text()):
        if kind == "file":
            (folder / option).write_text(body)
        elif language == "sh" and option != "installs":
            script += [f"echo '## {body.splitlines()[0]}'", body.replace("kill %1\n", f"{LOOK}kill %1\n")]
    return "\n".join(script).replace("8000", str(port))


@pytest.fixture
def folder(tmp_path):
    """One in which ``wastenot`` is this one, and vLLM where the page has it installed."""
    if not (VLLM / ".ready").exists():
        pytest.skip("no vLLM: make .venv-vllm/.ready")
    (tmp_path / ".venv-vllm").symlink_to(VLLM)
    program = tmp_path / "bin" / "wastenot"
    program.parent.mkdir()
    logged = (
        f'PYTHONPATH="{ROOT}:$PYTHONPATH" CONTROL_LOG=control.log exec "{sys.executable}" -m testbed.logged_control "$@"'
    )
    program.write_text(f"#!/bin/sh\n{logged}\n")
    program.chmod(0o755)
    return tmp_path


def run(script, folder):
    """What a script prints; ends all that it began."""
    own = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "COLUMNS": "120", "WASTENOT_STATE": str(folder / "state")}
    # other tests run on the same cores
    own |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1"}
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=os.environ | own, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=1100)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    log = Path(folder, "vllm.log")
    assert process.returncode == 0, printed[-4000:] + (log.read_text()[-4000:] if log.exists() else "")
    return printed


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(1200)  # it takes minutes to start on a busy machine; one test, as it is started once
def test_the_page_runs_on_a_real_vllm_and_what_is_measured_is_what_it_counted(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    printed = run(typed(folder, port), folder)

    # bench: every answer has the tokens asked for, and none of the prompts came from the cache
    points = ServingStore(open_study(str(folder / "server.db"))).points()
    assert sorted(point.max_running for point in points) == [2, 4]
    for point in points:
        assert point.output_tokens == 200.0 and point.tokens_per_s > 0.0
        assert dict(point.server)["prefix_cache_hit_rate"] < 0.01
        assert 0.0 < point.itl.p50_s < point.ttft.p50_s < point.end_to_end.p50_s
    assert "latency only, no energy: --device none" in printed

    # records: the tokens that the server itself has counted as computed, and none that its cache had
    records = read_step_records(folder / "steps.jsonl")
    told = {(each.name, each.labels.get("source")): each.value for each in samples((folder / "metrics.txt").read_text())}
    twice = int(re.search(r'"prompt_tokens": ?(\d+)', (folder / "twice.json").read_text())[1])
    last = records.prefill_tokens[records.prefill_tokens > 0][-2:]
    assert last[0] == twice and 0 < last[1] <= 128  # all blocks but the last were cached
    computed = told["vllm:prompt_tokens_by_source_total", "local_compute"]
    assert records.prefill_tokens.sum() - last.sum() == pytest.approx(computed, rel=0.02)  # but for requests that were ended
    first = told["vllm:time_to_first_token_seconds_count", None]  # the first token of an answer is of its prompt's step
    made = told["vllm:generation_tokens_total", None] - first
    assert records.decode_tokens.sum() == pytest.approx(made, rel=0.02)
    assert records.engine == "vllm 0.32.0" and np.isnan(records.core_mhz).all()
    assert records.left_out < 0.01 * len(records)

    # the profile was judged by them, and control chose clocks from the metrics
    assert re.search(r"corrected by [\d,]+ steps of vllm 0\.32\.0: decode times were \d+ % off on average", printed)
    clocks = [each.core_mhz for each in read_engine(folder / "corrected.json").engine().tables.settings]
    control = printed[printed.index("## wastenot serve bench http://localhost:8000 --rate".replace("8000", str(port))) :]
    assert "its metrics are valid; its clocks are chosen from them" in control
    chosen = [float(each) for each in re.findall(r": would be (\d+) MHz; ", control)]
    assert chosen and set(chosen) <= set(clocks)
    assert "default clocks: " not in control

    # and it decided as the simulator's policy does on the same readings
    rules = Rules(Deadlines((20.0,), (), tbt_s=2.0))  # those of the page, which a busy machine keeps, too
    again = decided_again(
        read_log(folder / "control.log"), read_engine(folder / "corrected.json").within_known_clocks().engine(), rules
    )
    assert again.alike == again.calls and again.simulated_alike == again.decisions > 20 and not again.defaults

"""``wastenot study import`` of a table of the ML.ENERGY leaderboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wastenot.serving.tables.store import ServingStore
from wastenot.study.store import open_study

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "serving" / "ml-energy-h100.csv"

TABLE = """\
task,model_id,weight_precision,gpu_model,num_gpus,tensor_parallel,expert_parallel,data_parallel,max_num_seqs,\
avg_batch_size,avg_output_len,energy_per_token_joules,avg_power_watts,output_throughput_tokens_per_sec,median_itl_ms,\
p90_itl_ms,p95_itl_ms,p99_itl_ms
chat,org/small,bfloat16,H100,1,1,1,1,8,8.0,700,0.9,480,533,14.4,15.3,15.6,18.6
chat,org/small,bfloat16,H100,1,1,1,1,16,15.9,700,0.5,490,980,17.3,18.9,19.4,21.6
chat,org/large,fp8,B200,2,2,1,1,64,60,900,1.5,1900,1266,30,33,36,50
"""


def test_a_table_becomes_points_of_a_study(wastenot):
    (wastenot.folder / "table.csv").write_text(TABLE)
    ran = wastenot("study", "import", "table.csv", "--study", "s.db")
    assert ran.code == 0 and "s.db: 3 operating points of servers of 2 models on B200, H100" in ran.err
    points = ServingStore(open_study(wastenot.folder / "s.db")).points()
    assert [(point.model, point.gpus, point.max_running, point.itl.p50_s) for point in points] == [
        ("org/small", 1, 8, 0.0144), ("org/small", 1, 16, 0.0173), ("org/large", 2, 64, 0.03),
    ]  # fmt: skip
    shown = wastenot("show", "s.db", "--json")
    servers = json.loads(shown.out)["servers"]
    assert [(each["model"], each["points"], each["energy_per_token_j"]) for each in servers] == [
        ("org/small", 2, 0.5), ("org/large", 1, 1.5),
    ]  # fmt: skip
    assert "org/large" in wastenot("show", "s.db").out


def test_what_cannot_be_imported_is_refused_and_nothing_is_made(wastenot):
    (wastenot.folder / "bad.csv").write_text(TABLE.replace("1.5,1900", "-1.5,1900"))
    assert "bad.csv:4: energy_per_token_joules" in wastenot.refuse("study", "import", "bad.csv", "--study", "s.db")
    (wastenot.folder / "table.csv").write_text(TABLE)
    (wastenot.folder / "narrow.csv").write_text("\n".join(line.rsplit(",", 4)[0] for line in TABLE.splitlines()))
    assert "narrow.csv:1: has no column median_itl_ms" in wastenot.refuse("study", "import", "narrow.csv", "--study", "s.db")
    refused = wastenot.refuse("study", "import", "table.csv", "--study", "s.db", "--workload", "mine")
    assert "--workload: has no effect on a table of servers" in refused
    assert not (wastenot.folder / "s.db").exists()
    assert wastenot("study", "import", "table.csv", "--study", "s.db", "--json").code == 0
    assert "already holds this content" in wastenot.refuse("study", "import", "table.csv", "--study", "s.db")


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published table is not here")
def test_the_published_table(wastenot):
    ran = wastenot("study", "import", str(PUBLISHED), "--study", "s.db")
    assert ran.code == 0 and "405 operating points" in ran.err
    # The next step is one that can be taken.
    (command,) = [line.removeprefix("next: wastenot ") for line in ran.err.splitlines() if line.startswith("next: ")]
    recommended = wastenot(*command.split())
    assert recommended.code == 0 and "H100" in recommended.out, recommended.err
    assert len(ServingStore(open_study(wastenot.folder / "s.db")).points(stable_only=True)) == 405

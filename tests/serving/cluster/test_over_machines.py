"""Runs shared over a Ray cluster are those of one process."""

import os
import sys
from pathlib import Path

import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.over_machines import over_machines
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.runs import run_scenario, runs_of
from wastenot.serving.cluster.scenario import parse_scenario

ENGINE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"
TEXT = f"""
[cluster]
engines = "{ENGINE}"
hosts = 1
gpus_per_host = 4
[[traffic]]
kind = "trace"
file = "trace.csv"
[run]
policies = ["single-pool", "scale-clocks"]
seeds = [0, 1]
"""


@pytest.fixture
def ray(monkeypatch, tmp_path):
    """Ray, here and in the processes that it starts.

    When imported it looks for AMD's GPUs, and fails where ``amdsmi`` is installed (for zeus) without AMD's library: hidden.
    """
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "amdsmi.py").write_text('raise ImportError("hidden")\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hiding), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.syspath_prepend(hiding)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    return pytest.importorskip("ray")


@pytest.fixture
def two_nodes(ray):
    """The address of a cluster of two nodes on this machine, each with one core."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


def _read(folder: Path, text: str = TEXT):
    lines = [f"{0.4 * each:.1f},{100 + each % 700},{20 + each % 60}" for each in range(150)]
    (folder / "trace.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    return parse_scenario(text.encode(), folder / "mine.toml", tuple(POLICIES))


@pytest.mark.slow
def test_two_nodes_find_what_one_process_finds_without_its_files(two_nodes, tmp_path):
    scenario = _read(tmp_path)
    alone = run_scenario(scenario)
    (tmp_path / "trace.csv").unlink()
    kept: list[str] = []
    shared = run_scenario(scenario, share=over_machines(two_nodes), keep=lambda run, text: kept.append(run.digest))
    assert shared == alone and sorted(kept) == sorted(run.digest for run in runs_of(scenario))


@pytest.mark.slow
def test_what_is_wrong_on_another_machine_is_said_as_here(two_nodes, tmp_path):
    scenario = _read(tmp_path, TEXT.replace('file = "trace.csv"', 'file = "trace.csv"\nhistory_s = 900.0'))
    with pytest.raises(BadInputError, match="no longer than its history"):
        run_scenario(scenario, share=over_machines(two_nodes))


def test_nothing_to_run_needs_no_cluster(ray, tmp_path):
    assert list(over_machines("nowhere:1")(_read(tmp_path), [])) == []

"""Policies of a cluster beside each other, as ``wastenot serve simulate`` runs them: energy and deadlines.

    hour         conversation of Azure's trace at 40 requests a second on 96 GPUs: 10 min are known, 50 min judge
    hour-1000    the same on 1,000 GPUs
    week         synthetic, by digitised figures of 2024; its peak is 40 requests a second; made-up weeks before it are known

The engines are those of a model of 70 billion parameters on simulated H200s. What policies are told is the history alone;
plans in hindsight know all that judges. A policy that misses the share in one class is marked failed. Budgets of a step were
chosen on the known ten minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.serving_loads import PROFILES, TRACES
from benchmarks.verdict import Verdict, run_alone
from testbed.cluster_loads import slot_estimate
from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import COUNT, NAMES, class_of
from wastenot.serving.cluster.oracle import step_bound
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.results import Work
from wastenot.serving.cluster.run_record import RunRecord, record_of
from wastenot.serving.cluster.runs import runs_of, simulated
from wastenot.serving.cluster.scenario import Scenario, parse_scenario
from wastenot.serving.cluster.scenario_load import LoadParts, load_parts_of
from wastenot.serving.model.requests import joined

KEPT = DATA / "serving" / "cluster-policies.json"
SHARE = 0.99
START_S = 420.0
"""Of an instance of 70 billion parameters: 6 to 8 minutes in the literature."""
LENGTHS = 50_000
"""Requests whose lengths the oracle's frontiers are made with."""
ALL = (
    "single-pool", "multi-pool", "scale-instances", "scale-degrees", "scale-clocks", "dynamollm", "throttllem",
    "best-static", "best-static-in-one-pool", "parking",
)  # fmt: skip
FEW = ("single-pool", "dynamollm", "best-static", "best-static-in-one-pool", "parking")
TRACE = 'kind = "trace"\nfile = "{data}/AzureLLMInferenceTrace_conv.csv"\n'
LOADS: dict[str, tuple[int, tuple[str, ...], str]] = {
    "hour": (12, ALL, TRACE + "rate_per_s = 40.0\nhistory_s = 600.0"),
    "hour-1000": (125, FEW, TRACE + "rate_per_s = 416.7\nhistory_s = 600.0"),
    "week": (
        12, FEW,
        'kind = "curve"\nrates = "{data}/azure2024_week_conv_rpm_digitised.csv"\n'
        'lengths = "{data}/azure2024_week_token_cdf_digitised.csv"\nservice = "conv"\nrank_correlation = 0.15\n'
        "rate_per_s = 23.08",
    ),
}  # fmt: skip
"""Hosts, policies and traffic of each load."""


def scenario(load: str, folder: Path) -> Scenario:
    """As a user would write it."""
    hosts, policies, traffic = LOADS[load]
    text = f"""
[cluster]
engines = "{PROFILES}/llama-70b-sim-h200.json"
hosts = {hosts}
degrees = [2, 4, 8]
step_tokens = [512, 1024, 1024]
[cluster.changes]
start_s = {START_S}
[[traffic]]
name = "{load}"
{traffic.format(data=TRACES)}
[run]
policies = {json.dumps(policies)}
head_room = 0.2
"""
    return parse_scenario(text.encode(), folder / f"{load}.toml")


def counts(load: LoadParts) -> FloatArray:
    """Requests by class; shape (9,)."""
    parts = [class_of(each.prompt_tokens, each.output_tokens) for each in load.requests()]
    return np.sum([np.bincount(each, minlength=COUNT) for each in parts], axis=0).astype(np.float64)


def estimate_j(there: Scenario) -> float:
    """What the oracle's fractional instances would take for this very load."""
    load = load_parts_of(there, there.parts.traffic[0], 0)
    some = joined([each for each in load.requests() if len(each)])
    some = some.only(np.arange(0, len(some), max(len(some) // LENGTHS, 1)))
    return slot_estimate(Profiles(there.cluster, some), counts(load)[None])


def all_on_bound_j(there: Scenario) -> float:
    """Below which nobody is who keeps all GPUs on while requests come."""
    load = load_parts_of(there, there.parts.traffic[0], 0)
    work = sum((Work.of(each) for each in load.requests() if len(each)), start=Work())
    return step_bound(work, there.cluster, on_s=load.duration_s)


def row_of(record: RunRecord, single_j: float, took_s: float) -> str:
    """One line of the table."""
    ttft = "/".join("–" if each is None else f"{1e3 * each:.0f}" for each in record.ttft_p99_s)
    worst = min((each, name) for each, name in zip(record.by_class, NAMES, strict=True) if each is not None)
    return (
        f"    {record.policy:24s} {record.energy_j / 1e6:8.1f} MJ {1 - record.energy_j / single_j:6.1%} saved, "
        f"{record.attainment:.2%} kept, {worst[1]} {worst[0]:.2%}{' FAILED' if record.failed else ''}, TTFT {ttft} ms, "
        f"TBT {1e3 * record.tbt_p99_s:.0f} ms, {record.power_p50_w / 1e3:.1f}/{record.power_p99_w / 1e3:.1f} kW, "
        f"{'+'.join(f'{each:.1f}' for each in record.instances)} instances, {record.gpu_hours:.0f} GPU h ({took_s:.0f} s)"
    )


def judge(verdict: Verdict, load: str) -> dict[str, Any]:
    """All policies on a load."""
    with tempfile.TemporaryDirectory() as folder:
        there = scenario(load, Path(folder))
        records: dict[str, RunRecord] = {}
        for run in runs_of(there):
            begun = time.perf_counter()
            records[run.policy] = record_of(simulated(there, run))
            if len(records) == 1:
                print(f"  {load}: {records[run.policy].requests:,} requests, {there.cluster.gpus} GPUs (simulated)")
            print(row_of(records[run.policy], records["single-pool"].energy_j, time.perf_counter() - begun), flush=True)
        oracle_j, all_on_j = estimate_j(there), all_on_bound_j(there)
    ours, dynamo = records["parking"], records["dynamollm"]
    print(f"    oracle: no policy under {ours.bound_j / 1e6:.1f} MJ; with free changes about {oracle_j / 1e6:.1f} MJ")
    print(f"    no policy that keeps all GPUs on under {all_on_j / 1e6:.1f} MJ")
    static_j = min(records[each].energy_j for each in FEW if each.startswith("best-static"))
    verdict.at_least(f"{load}: ours attains, in the class with the least", ours.worst_class, SHARE)
    verdict.at_least(f"{load}: ours saves of DynamoLLM's energy", 1 - ours.energy_j / dynamo.energy_j, 0.0)
    if load == "week":  # an hour's load hardly varies, and plans in hindsight know it
        verdict.at_least(f"{load}: ours saves of the better best static plan's energy", 1 - ours.energy_j / static_j, 0.10)
    else:
        print(f"    ours saves {1 - ours.energy_j / static_j:.1%} of the better best static plan's energy")
    verdict.at_most(f"{load}: energy of ours over the oracle's estimate", ours.energy_j / oracle_j, 1.10)
    return {
        "gpus": there.cluster.gpus,
        "oracle_j": plain(oracle_j),
        "all_on_j": plain(all_on_j),
        "policies": [plain(short(each)) for each in records.values()],
    }


def short(record: RunRecord) -> dict[str, Any]:
    """Without its timeline."""
    return {name: value for name, value in asdict(record).items() if name not in ("timeline", "cost", "carbon_g")}


def plain(value: Any) -> Any:
    """Floats to six digits."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main(verdict: Verdict, *loads: str) -> None:
    """Judge every policy on some loads, or on all."""
    kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    for load in loads or LOADS:
        kept[load] = judge(verdict, load)
        keep(KEPT, {name: kept[name] for name in LOADS if name in kept})


if __name__ == "__main__":
    run_alone(main, *sys.argv[1:])

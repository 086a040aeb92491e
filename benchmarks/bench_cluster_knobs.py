"""What start-up times and head-room cost: a synthetic Monday on 96 GPUs, a model of 70 billion parameters (simulated).

    starts       an instance takes 35 s, 2 min or 7 min to start
    head-room    of DynamoLLM above the template's greatest slot: none, a fifth, a half

The day is that of ``week`` in ``cluster-policies``; two made-up weeks before it are known.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bench_cluster_policies import plain, scenario
from benchmarks.verdict import Verdict
from wastenot.stack.serving.cluster.runs import record_of, runs_of, simulated

KEPT = Path(__file__).parents[1] / "data" / "serving" / "cluster-knobs.json"
MONDAY = "begin_s = 86400.0\nduration_s = 86400.0\n"
STARTS_S = (35.0, 120.0, 420.0)
HEAD_ROOMS = (0.0, 0.2, 0.5)


def main(verdict: Verdict) -> None:
    """Both sweeps."""
    rows: list[dict[str, Any]] = []
    cases = [("dynamollm", 420.0, each) for each in HEAD_ROOMS] + [("dynamollm", each, 0.2) for each in STARTS_S[:-1]]
    cases += [("wastenot", each, 0.2) for each in STARTS_S]
    for policy, start_s, head_room in cases:
        with tempfile.TemporaryDirectory() as folder:
            there = scenario("week", Path(folder), more=MONDAY, start_s=start_s, head_room=head_room)
            record = record_of(simulated(there, next(each for each in runs_of(there) if each.policy == policy)))
        rows.append(
            {
                "policy": policy,
                "start_s": start_s,
                "head_room": head_room if policy == "dynamollm" else None,
                "requests": record.requests,
                "energy_j": record.energy_j,
                "attainment": record.attainment,
                "worst_class": record.worst_class,
                "failed": record.failed,
            }
        )
        print(
            f"  {policy}, starts take {start_s:g} s, head-room {head_room:g}: {record.energy_j / 1e6:,.0f} MJ, "
            f"{record.attainment:.2%} in time, worst class {record.worst_class:.2%}{' FAILED' if record.failed else ''}",
            flush=True,
        )
        if policy == "wastenot":
            verdict.at_least(f"ours, starts of {start_s:g} s: attains in the class with the least", record.worst_class, 0.99)
    KEPT.write_text(json.dumps([plain(each) for each in rows], indent=1) + "\n")


if __name__ == "__main__":
    main(Verdict())

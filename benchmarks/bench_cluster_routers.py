"""Routers beside each other on the example of ``wastenot serve simulate``: what each takes, and its deadlines met."""

from __future__ import annotations

from pathlib import Path

from benchmarks.verdict import Verdict
from wastenot.serving.cluster.model import Router
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.runs import RunRecord, run_scenario
from wastenot.serving.cluster.scenario import example, parse_scenario

COMPARED = ("single-pool", "multi-pool", "scale-clocks", "best-static", "parking")


def runs_with(router: Router) -> tuple[RunRecord, ...]:
    """One run of each policy, the router apart the same."""
    name = router.name.lower().replace("_", "-")
    content = example().replace('router = "least-requests"', f'router = "{name}"')
    content = content.replace("sample:engine.json", "data/serving/llama-8b-sim-h200.json")
    scenario = parse_scenario(content.encode(), Path(__file__).parents[1] / "example.toml", tuple(POLICIES))
    assert scenario.router is router
    return run_scenario(scenario.with_run(policies=COMPARED, seeds=[0]))


def main(verdict: Verdict) -> None:
    """Judge the router of least energy by that of least requests."""
    found: dict[tuple[Router, str], RunRecord] = {}
    for router in Router:
        for record in runs_with(router):
            found[router, record.policy] = record
            waited = "/".join(f"{1e3 * each:.0f}" for each in record.ttft_p99_s if each is not None)
            print(
                f"    {router.name:15s} {record.policy:12s} {record.energy_j / 1e6:6.3f} MJ, worst class "
                f"{record.worst_class:.2%}{' FAILED' if record.failed else ''}, TTFT {waited} ms, "
                f"TBT {1e3 * record.tbt_p99_s:.0f} ms",
                flush=True,
            )
    packed, spread = found[Router.LEAST_ENERGY, "multi-pool"], found[Router.LEAST_REQUESTS, "multi-pool"]
    verdict.at_most(
        "of pools at the greatest clock: least energy router over least requests", packed.energy_j / spread.energy_j, 0.9
    )
    verdict.at_least("packed it attains, in the class with the least", packed.worst_class, 0.99)

"""What plans save whose settings last as long as a switch takes, beside plans that switch at will and the bounds of both.

Two pipelines of 8 stages x 48 micro-batches: GPT-3 175B by Perseus' published times on A100 SXM (Chung et al., SOSP 2024;
75 W while waiting), and Llama 8B on the simulated H200. All savings are by the numbers that plans were made from. Plans and
bounds of the former shaped the search, so that this shows what was reached, and is no judge of it.

    python -m benchmarks.bench_pipeline_lasting
"""

from __future__ import annotations

import time
from itertools import product

import wastenot as wn
from benchmarks.kept import BESIDE
from benchmarks.verdict import Verdict, run_alone
from wastenot.pipelines.model.stages import StageOptions
from wastenot.pipelines.plan.planner import PipelineGoal, PlannedPipeline, plan_pipeline
from wastenot.pipelines.plan.switched import with_switching
from wastenot.planning.switching import switch_time

_SLOWDOWNS = (0.0, 0.02, 0.05)
_SWITCHES_S = (0.03, 0.15, 0.35, 10.0)
_GAP = 0.005
_LESS = 0.0005  # by which a plan that may do more is taken to save as much
_QUICK = PipelineGoal(time_limit_s=0.1)  # the profile alone is wanted


def pipelines() -> dict[str, PlannedPipeline]:
    """Both, planned in a hurry."""
    profile = BESIDE / "perseus" / "gpt3-175b-a100-sxm.csv"
    waiting = StageOptions(waiting_w=75.0)
    return {
        "gpt3-175b, A100": wn.pipeline(profile, _QUICK, micro_batches=48, cut=waiting, switch_time_s=0.0),
        "llama-8b, sim:h200": wn.pipeline(
            "llama-8b", _QUICK, stages=8, micro_batches=48, device="sim:h200", switch_time_s=0.0
        ),
    }


def main(verdict: Verdict) -> None:
    gaps = []
    saved: dict[tuple[str, float, float], float] = {}
    for name, made in pipelines().items():
        for slowdown in _SLOWDOWNS:
            free = plan_pipeline(made.profile, made.schedule, PipelineGoal(max_slowdown=slowdown))
            for seconds in _SWITCHES_S:
                began = time.process_time()
                plan = with_switching(free, switch_time("", seconds)).plan
                took_s = time.process_time() - began
                assert plan.lasting_lower_bound_j is not None and plan.lasting_gap is not None
                most, gap = 1.0 - plan.lasting_lower_bound_j / plan.baseline.energy_j, plan.lasting_gap
                gaps.append(gap)
                saved[name, slowdown, seconds] = -plan.energy_change
                print(
                    f"  {name}, {slowdown:.0%}, {seconds:g} s a switch: saves {-plan.energy_change:.2%}, at most {most:.2%} "
                    f"if they last (gap {gap:.2%}), {-free.plan.energy_change:.2%} if switches were free; {took_s:.1f} s",
                    flush=True,
                )
    verdict.at_most("largest gap", max(gaps), _GAP)
    less = [
        saved[name, tighter, longer] - own
        for (name, slowdown, seconds), own in saved.items()
        for tighter, longer in product(_SLOWDOWNS, _SWITCHES_S)
        if (tighter, longer) != (slowdown, seconds) and tighter <= slowdown and longer >= seconds
    ]
    worse = [each for each in less if each > _LESS]
    print(
        f"  {len(worse)} of {len(less)} pairs save less within a looser limit or with a shorter switch, by {max(less):.2%}"
    )


if __name__ == "__main__":
    run_alone(main)

"""Policies that steer one engine's clock, beside each other on the conversation trace: energy, with attainment beside it.

    trace      0 … 10 min      10 … 60 min
               chooses         judges: at half, at 85 % of the rate that the greatest clock takes

The first part chooses the budget of a step, the fixed clock and the rivals' floors: the lowest clock that they may ask for,
so that they attain what is asked there. Rows go to
``data/serving/policies.json``, which the table in the documentation is made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.serving_loads import SHAPED_S, conversation, engines
from benchmarks.verdict import Verdict
from wastenot.serving.model.capacity import Capacity, best_step_tokens, capacity
from wastenot.serving.model.deadlines import LITERATURE
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import at_rate
from wastenot.serving.model.requests import Requests, log_normal_lengths
from wastenot.serving.model.steering import PolicyResult, best_fixed, fixed_clocks, result_of
from wastenot.serving.policies.oracle import run_oracle
from wastenot.serving.policies.price import Price
from wastenot.serving.policies.throttle import Throttle
from wastenot.serving.policies.two_loops import TwoLoops
from wastenot.serving.simulation.policy import Fixed, Policy
from wastenot.serving.simulation.simulate import simulate

KEPT = DATA / "serving" / "policies.json"
TRACE_S = 3600.0
ORACLE_S = {"sim:h200": 300.0, "pdblend": 1200.0}
"""Of the load that judges: the oracle looks for its plan on so much of it."""
LOADS = (0.5, 0.85)
SHARE = 0.99
JUDGE = 12_000
"""Seed of what is drawn for judging; it shaped nothing."""
DRAWS = {"pdblend": 3}
"""How often a load is drawn from the trace, where few requests of it are enough for an engine."""
LENGTH_ERROR = 0.3
"""Standard deviation of the logarithm of predicted over true lengths."""


@dataclass(frozen=True, slots=True)
class Case:
    """An engine under a load that judges.

    Attributes:
        name: of the engine's tables.
        engine: with its budget of a step.
        capacity: of the greatest clock on the part that judges.
        load: share of the capacity.
        shaping: the load on the first part of the trace.
        judging: the load on the rest.
    """

    name: str
    engine: Engine
    capacity: Capacity
    load: float
    shaping: Requests
    judging: Requests


def cases() -> Iterator[Case]:
    """Each engine at each load."""
    for name, bare in engines().items():
        times = DRAWS.get(name, 1)
        first = loads(conversation(0.0, SHAPED_S), SHAPED_S, range(times))
        rest = loads(conversation(SHAPED_S, TRACE_S), TRACE_S - SHAPED_S, range(JUDGE, JUDGE + times))
        engine = best_step_tokens(first, bare, LITERATURE, share=SHARE).engine
        reached = capacity(rest, engine, LITERATURE, share=SHARE)
        for load in LOADS:
            rate = load * reached.rate_per_s
            yield Case(name, engine, reached, load, first(rate), rest(rate))


def loads(trace: Requests, duration_s: float, seeds: range) -> Callable[[float], Requests]:
    """A part of the trace at a rate, drawn with each seed, one draw after the other."""

    def at(rate_per_s: float) -> Requests:
        drawn = [at_rate(trace, rate_per_s, duration_s, seed=seed) for seed in seeds]
        return Requests(
            np.concatenate([each.arrival_s + place * duration_s for place, each in enumerate(drawn)]),
            np.concatenate([each.prompt_tokens for each in drawn]),
            np.concatenate([each.output_tokens for each in drawn]),
        )

    return at


def floored(case: Case, make: Callable[[int], Policy]) -> Policy:
    """A policy that would go too low, with the lowest clock that it may ask for chosen on the first part of the trace."""
    low, high = 0, len(case.engine.tables.settings) - 1
    while low < high:
        floor = (low + high) // 2
        served = simulate(case.shaping, case.engine, make(floor), deadlines=LITERATURE)
        low, high = (low, floor) if served.attainment(LITERATURE) >= SHARE else (floor + 1, high)
    return make(low)


def policies(case: Case) -> dict[str, Policy]:
    """By name, each fresh; the greatest clock first."""
    chosen = best_fixed(fixed_clocks(case.shaping, case.engine, LITERATURE), SHARE).setting
    hindsight = best_fixed(fixed_clocks(case.judging, case.engine, LITERATURE), SHARE).setting
    return {
        "greatest clock": Fixed(),
        "fixed clock, chosen before": Fixed(chosen),
        "fixed clock, in hindsight": Fixed(hindsight),
        "throttLL'eM": Throttle(inflate=1 + LENGTH_ERROR),
        "throttLL'eM, floor chosen before": floored(case, lambda floor: Throttle(inflate=1 + LENGTH_ERROR, floor=floor)),
        "GreenLLM": TwoLoops(),
        "GreenLLM, floor chosen before": floored(case, lambda floor: TwoLoops(floor=floor)),
        "price": Price(),
    }


def judge(case: Case) -> Iterator[PolicyResult]:
    """Each policy on the part that judges."""
    predicted = log_normal_lengths(case.judging.output_tokens, sigma=LENGTH_ERROR, seed=JUDGE)
    for name, policy in policies(case).items():
        served = simulate(case.judging, case.engine, policy, deadlines=LITERATURE, predicted_tokens=predicted)
        yield result_of(name, served, case.engine, LITERATURE)


def beside_oracle(case: Case) -> dict[str, PolicyResult]:
    """The greatest clock, ours and an oracle on a part of the load that judges."""
    part = case.judging.part(0.0, ORACLE_S[case.name])
    predicted = log_normal_lengths(part.output_tokens, sigma=LENGTH_ERROR, seed=JUDGE)
    runs = {
        "greatest clock": simulate(part, case.engine, Fixed(), deadlines=LITERATURE),
        "price": simulate(part, case.engine, Price(), deadlines=LITERATURE, predicted_tokens=predicted),
        "oracle": run_oracle(part, case.engine, LITERATURE, share=SHARE)[1],
    }
    return {name: result_of(name, served, case.engine, LITERATURE) for name, served in runs.items()}


def check(verdict: Verdict, name: str, by: dict[str, PolicyResult], part: dict[str, PolicyResult]) -> None:
    """What is asked of ours."""
    greatest, ours, fixed = by["greatest clock"], by["price"], by["fixed clock, in hindsight"]
    verdict.at_least(f"{name}: attainment of the greatest clock", greatest.attainment, SHARE)
    verdict.at_least(f"{name}: ours attains", ours.attainment, SHARE)
    more = (fixed.energy_j - ours.energy_j) / greatest.energy_j
    verdict.at_least(f"{name}: ours saves more than the best fixed clock by", more, 0.05)
    for rival in ("throttLL'eM, floor chosen before", "GreenLLM, floor chosen before"):
        if by[rival].attainment >= SHARE:
            verdict.at_least(f"{name}: ours saves more than {rival} by", 1 - ours.energy_j / by[rival].energy_j, 0.0)
    verdict.at_most(f"{name}: energy of ours over the oracle's", part["price"].energy_j / part["oracle"].energy_j, 1.05)


def main(verdict: Verdict) -> None:
    """Judge every policy on every engine and load."""
    kept = []
    for case in cases():
        print(
            f"  {case.name}, {case.engine.most_step_tokens} tokens a step, {case.load:.0%} of "
            f"{case.capacity.rate_per_s:.3g} requests/s: {len(case.judging):,} requests",
            flush=True,
        )
        rows: list[PolicyResult] = []
        for row in judge(case):
            rows.append(row)
            saved = 1 - row.energy_j / rows[0].energy_j
            clock = "" if row.mean_core_mhz is None else f", {row.mean_core_mhz:.0f} MHz"
            waits = "/".join(f"{1e3 * each:.0f}" for each in row.ttft_p99_s)
            print(
                f"    {row.policy:33s} {saved:6.1%} saved, {row.attainment:.2%} kept, {row.energy_per_token_j:.4f} J/token, "
                f"TTFT {waits} ms, TBT {1e3 * row.tbt_p99_s:.0f} ms{clock}, {row.switches:,} switches",
                flush=True,
            )
        part = beside_oracle(case)
        print(f"    on {ORACLE_S[case.name]:g} s of it:")
        for row in part.values():
            print(f"    {row.policy:33s} {row.energy_j:,.0f} J, {row.attainment:.2%} kept", flush=True)
        check(verdict, f"{case.name} at {case.load:.0%}", {row.policy: row for row in rows}, part)
        kept.append(
            {
                "engine": case.name,
                "model": case.engine.model,
                "most_step_tokens": case.engine.most_step_tokens,
                "switch_s": case.engine.switch_s,
                "capacity_per_s": case.capacity.rate_per_s,
                "load": case.load,
                "requests": len(case.judging),
                "policies": [
                    asdict(row) | {"ttft_p99_s": [None if math.isnan(each) else each for each in row.ttft_p99_s]}
                    for row in rows
                ],
                "beside_oracle": {"energy_j": {name: row.energy_j for name, row in part.items()}},
            }
        )
        keep(KEPT, kept)

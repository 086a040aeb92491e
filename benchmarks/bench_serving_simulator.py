"""How fast the simulator of one engine is: requests of the conversation trace a second, at the load that an engine can take.

With one clock throughout, and with policies that are asked whenever something comes, begins to decode or goes. The first
run of all compiles the simulator, which is kept for later processes; it is not counted, but told.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from time import perf_counter, process_time

from benchmarks.serving_loads import conversation, engines
from benchmarks.verdict import Verdict
from wastenot.stack.serving.capacity import best_step_tokens
from wastenot.stack.serving.deadlines import LITERATURE, Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.loads import at_rate
from wastenot.stack.serving.requests import Requests
from wastenot.stack.serving.simulation.policy import Choice, Fixed, Policy, View
from wastenot.stack.serving.simulation.simulate import simulate

REQUESTS_PER_S = 300_000
TRACE_S = 3600.0
_REPEATS = 5


@dataclass
class Asked:
    """Keeps its clock, but has itself asked: what asking alone costs."""

    name: str = "asked"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """The greatest clock."""
        return len(engine.tables.settings) - 1

    def choose(self, view: View) -> Choice:
        """The same."""
        return Choice(view.asked)


def rate(requests: Requests, engine: Engine, policy: Policy, *, timeline_s: float | None = None) -> tuple[float, float]:
    """Requests a second of processor time, the best of several runs (others use this machine), and steps a second."""
    best_s, steps = float("inf"), 0
    for _ in range(_REPEATS):
        began = process_time()
        run = simulate(requests, engine, policy, timeline_s=timeline_s)
        best_s, steps = min(best_s, process_time() - began), sum(run.steps.values())
    return len(requests) / best_s, steps / best_s


def main(verdict: Verdict) -> None:
    began = perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from benchmarks.bench_serving_simulator import first; first()"], check=True, timeout=300
    )
    print(f"  a process that runs ten requests, compiled before or not: {perf_counter() - began:.1f} s", flush=True)
    trace = conversation()
    first()
    for name, bare in engines().items():
        found = best_step_tokens(lambda each: at_rate(trace, each, TRACE_S), bare, LITERATURE)
        for load in (1.0, 0.85, 0.5):
            requests = at_rate(trace, load * found.rate_per_s, TRACE_S)
            for policy in (Fixed(), Asked()):
                reached, steps = rate(requests, found.engine, policy)
                print(
                    f"  {name} at {load:.0%} of {found.rate_per_s:.2f} requests/s, {policy.name}: "
                    f"{reached:,.0f} requests, {steps:,.0f} steps a second",
                    flush=True,
                )
        drawn, _ = rate(at_rate(trace, found.rate_per_s, TRACE_S), found.engine, Fixed(), timeline_s=1.0)
        print(f"  {name}, with a timeline by seconds: {drawn:,.0f} requests a second", flush=True)
        full = replace(bare, most_running=int(min(256, bare.tables.batches[-1])))
        crowd = at_rate(trace, 5 * found.rate_per_s, TRACE_S)
        reached, steps = rate(crowd, full, Fixed())
        print(
            f"  {name} with more requests than it can take: {reached:,.0f} requests, {steps:,.0f} steps a second", flush=True
        )
        at_capacity, _ = rate(at_rate(trace, found.rate_per_s, TRACE_S), found.engine, Fixed())
        verdict.at_least(f"{name}: requests a second at all that it can take, one clock", at_capacity, REQUESTS_PER_S)


def first() -> None:
    """A run of ten requests."""
    trace, engine = conversation(), next(iter(engines().values()))
    simulate(trace.part(0.0, 30.0), engine, Fixed())


if __name__ == "__main__":
    main(Verdict())

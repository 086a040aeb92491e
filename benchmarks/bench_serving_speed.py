"""How fast the simulator of one engine is: requests a second on one core, with a fixed clock and with a policy in Python.

Lengths are like those of conversations (medians of 1,000 and 130 tokens), arrivals Poisson. Counted is processor time, the
best of several runs, since others may use this machine. ``bench_commands --against`` compares versions of the package.
"""

from __future__ import annotations

from time import process_time

from benchmarks.kept import DATA
from benchmarks.verdict import Verdict
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.simulation.policy import Choice, Fixed, View
from wastenot.serving.simulation.simulate import simulate

PROMPT, OUTPUT = LogNormal(1000, 0.8, 7000), LogNormal(130, 0.8, 1000)
RUNS = 4


class Turns:
    """Another clock at every step, asked five times a second."""

    name = "turns"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """At the lowest."""
        return 0

    def choose(self, view: View) -> Choice:
        """The next."""
        return Choice(int(view.steps) % 8 + 8, view.now_s + 0.2)


CASES = (
    ("an engine at 1 request/s", Fixed(), 1.0, 40_000.0, 30_000.0),
    ("an engine at 15 requests/s", Fixed(), 15.0, 8_000.0, 200_000.0),
    ("a policy that is asked at 10 requests/s", Turns(), 10.0, 400.0, 10_000.0),
)
"""Policy, requests a second and seconds of the load; the least requests simulated a second."""


def main(verdict: Verdict) -> None:
    engine = read_engine(DATA / "serving" / "llama-8b-sim-h200.json").engine()
    simulate(poisson(2.0, 20.0, PROMPT, OUTPUT), engine, Fixed())  # compiles
    for name, policy, rate_per_s, lasts_s, least in CASES:
        requests, best_s = poisson(rate_per_s, lasts_s, PROMPT, OUTPUT, seed=1), float("inf")
        for _ in range(RUNS):
            began_s = process_time()
            simulate(requests, engine, policy)
            best_s = min(best_s, process_time() - began_s)
        verdict.at_least(f"{name}: requests a second", len(requests) / best_s, least)

"""Whole iterations under the power limit: predicted from their kernels, and simulated with the power regulator step by step.

    python -m benchmarks.bench_iteration [CARDS]

Real: on two H200s the iteration of GPT-3 XL, measured as one task, against that predicted from its kernels, which were
measured at natural clocks before; nothing of the iteration goes into the prediction but how warm the GPU was.

Cards like an H200 are drawn anew (benchmarks/drawn_cards.py), with seeds that nothing was developed on. The prediction knows
the time and power of each kernel by clock and what mean power the regulator holds products to, and takes one clock for the
whole iteration, or for each stretch of a long one. The simulation runs iteration after iteration, every kernel in its order,
while the regulator acts once in a millisecond on the power that it sees. Gains of plans are compared in the same way, with a
ceiling for each kernel's clock.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.drawn_cards import JUDGES, natural_card
from benchmarks.h200 import natural_judge
from benchmarks.regulated_iterations import RegulatedIterations, run_regulated
from benchmarks.verdict import Verdict, run_alone
from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.regulator import RegulatedClock
from wastenot.kernels.natural.curves import KernelCurve
from wastenot.kernels.natural.held import HELD_SD
from wastenot.kernels.natural.iteration import predict_iteration
from wastenot.kernels.natural.whole import whole_iteration
from wastenot.meters.tasks import tasks_of
from wastenot.planning.power_limit import (
    ClockCosts,
    Iteration,
    fastest_plan,
    least_energy_plan,
    run_iteration,
    stretches,
)
from wastenot.workloads.build import build_workload
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.order import order_of_steps

WORKLOADS = ("gpt3-xl", "llama-8b")
CARDS = 20
FIRST_SEED = JUDGES + 700
WARM_C = 62.0
LOWEST_MHZ = 900.0
SETTLE_S, WATCHED_S = 10.0, 40.0
MEASURED = ("time_s", "energy_j", "temperature_c")
TIME_GOAL, ENERGY_GOAL = 0.5, 1.0  # %, as on a real card
GAIN_GOAL = 0.3  # points: a gain of 1 % is to be known to a third


@dataclass(frozen=True, slots=True)
class Compared:
    """One workload on one card; in per cent, changes against the iteration without ceilings."""

    time_error: float
    energy_error: float
    predicted_gain: float
    simulated_gain: float
    predicted_saving: float
    simulated_saving: float
    saving_slower: float


class Card:
    """A simulated card with its regulator.

    Args:
        name: of the device.
        kernels: of the workload, in order of execution.
        seed: of the moments at which the regulator acts.
        warm_c: how warm it is.
    """

    def __init__(self, name: str, kernels: tuple[KernelSpec, ...], seed: int, warm_c: float = WARM_C) -> None:
        physics = open_device(name).engine.physics
        assert isinstance(physics, ModelPhysics) and physics.preset.regulator is not None
        self._regulator, self._seed, self._idle_w = physics.preset.regulator, seed, physics.preset.idle_w
        self.limit_w = physics.limit_w(AUTO, warm_c)
        self.costs = true_costs(physics, kernels, warm_c)
        self.kernels, self._order = kernels, order_of_steps(kernels)

    def run(self, ceiling: np.ndarray | None = None) -> RegulatedIterations:
        """Iterations as they would run, with the ceilings of a plan."""
        each_s = float(self.costs.iteration_s[:, -1].sum())
        return self._simulated(self.costs, self._order, each_s, ceiling)

    def held_w(self) -> float:
        """Mean power of the products that the regulator holds down when they run by themselves, as a sweep would see it."""
        costs, found, weights = self.costs, [], []
        for kernel in np.flatnonzero(costs.power_w[:, -1] > self.limit_w):
            call_s = float(costs.time_s[kernel, -1])
            if call_s < 1e-4:
                continue
            one = slice(kernel, kernel + 1)
            alone = ClockCosts(
                costs.kernels[one], np.ones(1, dtype=np.int64), costs.core_mhz, costs.time_s[one], costs.power_w[one],
                costs.seen[one],
            )  # fmt: skip
            calls = [0] * round(0.2 / call_s)
            run = self._simulated(alone, calls, 0.2, None, watched_s=10.0)
            found.append(run.mean_j / run.mean_s)
            weights.append(float(costs.iteration_s[kernel, -1]))
        order = np.argsort(found)
        half = np.searchsorted(np.cumsum(np.array(weights)[order]), 0.5 * sum(weights))
        return float(np.array(found)[order][half])

    def _simulated(
        self, costs: ClockCosts, order, each_s: float, ceiling: np.ndarray | None, watched_s: float = WATCHED_S
    ) -> RegulatedIterations:
        low, high = float(costs.core_mhz[0]), float(costs.core_mhz[-1])
        clock = RegulatedClock(self._regulator, low, high, self._idle_w, (self._seed, 11))
        iterations, settle = (max(round(seconds / each_s), 3) for seconds in (watched_s, SETTLE_S))
        return run_regulated(
            costs, order, clock, self._regulator.step_s, self.limit_w, ceiling, iterations=iterations, settle=settle
        )


def true_costs(physics: ModelPhysics, kernels: tuple[KernelSpec, ...], warm_c: float) -> ClockCosts:
    """Time and power of kernels on a warm simulated card, whatever its limit."""
    clocks = physics.core_mhz[physics.core_mhz >= LOWEST_MHZ]
    responses = [physics.response(kernel, clocks, AUTO) for kernel in kernels]
    warmer_w = physics.leakage_w_per_c(clocks) * (warm_c - physics.preset.thermal.reference_c)
    time_s = np.array([response.time_s for response in responses])
    power_w = np.array([response.power_w.sum(axis=0) + warmer_w for response in responses])
    names = tuple(kernel.name for kernel in kernels)
    count = np.array([kernel.count for kernel in kernels], dtype=np.int64)
    return ClockCosts(names, count, clocks, time_s, power_w, np.ones(time_s.shape, dtype=bool))


def compare(card: Card) -> Compared | None:
    """Prediction and simulation; ``None`` where the limit does not hold the iteration down."""
    free = run_iteration(card.costs, card.limit_w)
    if not free.limited:
        return None
    limit_w = card.held_w()
    costs = replace(card.costs, stretch=stretches(card.kernels, (card.costs.count * free.kernel_s).tolist()))
    default = run_iteration(costs, limit_w)
    fastest = fastest_plan(costs, limit_w)
    saving = least_energy_plan(costs, limit_w, default.time_s)
    simulated, faster, thrifty = (card.run(ceiling) for ceiling in (None, fastest.ceiling, saving.ceiling))
    return Compared(
        100.0 * (default.time_s / simulated.mean_s - 1.0),
        100.0 * (default.energy_j / simulated.mean_j - 1.0),
        _change(fastest.iteration, default)[0],
        100.0 * (faster.mean_s / simulated.mean_s - 1.0),
        _change(saving.iteration, default)[1],
        100.0 * (thrifty.mean_j / simulated.mean_j - 1.0),
        100.0 * (thrifty.mean_s / simulated.mean_s - 1.0),
    )


def _change(after: Iteration, before: Iteration) -> tuple[float, float]:
    return 100.0 * (after.time_s / before.time_s - 1.0), 100.0 * (after.energy_j / before.energy_j - 1.0)


def on_h200s(verdict: Verdict) -> None:
    """The iteration measured as one task on real cards."""
    kernels = tasks_of(build_workload("gpt3-xl")).kernels
    for card in natural_judge.CARDS:
        found, whole = natural_judge.estimated(card), natural_judge.context(card)["iteration"]
        time_s, energy_j, warm_c = (float(np.mean([each[what] for each in whole])) for what in MEASURED)
        predicted = predict_iteration(whole_iteration(
            kernels, found.curves, limit_w=natural_judge.limit_w(card), limit_sd=HELD_SD,
            warmer_c=warm_c - found.temperature_c,
        ))  # fmt: skip
        time_off, energy_off = predicted.time_s.value / time_s - 1.0, predicted.energy_j.value / energy_j - 1.0
        print(
            f"  H200 {card}: {time_s:.4f} s, {energy_j:.1f} J, {energy_j / time_s:.1f} W at {warm_c:.0f} °C; predicted at "
            f"{predicted.core_mhz.value:.0f} MHz and {predicted.whole.limit_w:.1f} W: time {time_off:+.2%} ± "
            f"{predicted.time_s.error / time_s:.2%}, energy {energy_off:+.2%} ± {predicted.energy_j.error / energy_j:.2%}; "
            f"kernels by themselves {predicted.alone_s / time_s - 1:+.2%} and {predicted.alone_j / energy_j - 1:+.2%}"
        )
        print(f"    in the iteration against back to back at the same clock: {_in_context(card, found.curves)}")
        for what, plan in (("fastest", predicted.fastest), ("least energy", predicted.saving)):
            print(
                f"    {what} plan: time {plan.time_change.value:+.2%} ({plan.time_change.low:+.2%} to "
                f"{plan.time_change.high:+.2%}), energy {plan.energy_change.value:+.2%} ({plan.energy_change.low:+.2%} to "
                f"{plan.energy_change.high:+.2%})"
            )
        verdict.at_most(f"H200 {card}: time of an iteration, error, %", 100.0 * abs(time_off), TIME_GOAL)
        verdict.at_most(f"H200 {card}: energy of an iteration, error, %", 100.0 * abs(energy_off), ENERGY_GOAL)


def _in_context(card: int, curves: Sequence[KernelCurve]) -> str:
    """How much longer kernels take in the iteration, with a stamp after each, than back to back at the same clock."""
    by_name = {curve.kernel: curve for curve in curves}
    saved = natural_judge.stamped(card)
    took, expected = defaultdict(float), defaultdict(float)
    for run in ("0", "1"):
        subject, seconds = saved[f"{run} subject"], 1e-9 * saved[f"{run} duration_ns"].astype(float)
        clocks = 0.1 * saved[f"{run} core_mhz"].astype(float)
        late = np.arange(len(subject)) >= len(subject) // 4  # once the clock has come down
        for index, name in enumerate(saved["kernels"].tolist()):
            of, curve = late & (subject == index), by_name[name]
            kind = "products" if "gemm" in name else "light kernels"
            took[kind] += float(seconds[of].sum())
            expected[kind] += float(curve.time_at(np.clip(clocks[of], curve.core_mhz[0], curve.core_mhz[-1])).sum())
    return ", ".join(f"{kind} {took[kind] / expected[kind] - 1:+.2%}" for kind in sorted(took))


def main(verdict: Verdict, cards: int = CARDS) -> None:
    on_h200s(verdict)
    with tempfile.TemporaryDirectory() as folder:
        for name in WORKLOADS:
            kernels = build_workload(name).kernels
            seeds = range(FIRST_SEED, FIRST_SEED + cards)
            compared = [compare(Card(natural_card(seed, kernels, Path(folder)), kernels, seed)) for seed in seeds]
            _report(verdict, name, [each for each in compared if each is not None], cards)


def _report(verdict: Verdict, name: str, compared: list[Compared], cards: int) -> None:
    print(f"  {name}: {len(compared)} of {cards} cards held down by the limit in an iteration")
    for what, unit in (
        ("time_error", "%"), ("energy_error", "%"), ("predicted_gain", "%"), ("simulated_gain", "%"),
        ("predicted_saving", "%"), ("simulated_saving", "%"), ("saving_slower", "%"),
    ):  # fmt: skip
        values = np.array([getattr(each, what) for each in compared])
        print(
            f"    {what.replace('_', ' '):18s} median {np.median(values):+.2f} {unit}, {values.min():+.2f} to "
            f"{values.max():+.2f}, rms {np.sqrt((values**2).mean()):.2f}"
        )
    gain = [each.predicted_gain - each.simulated_gain for each in compared]
    saving = [each.predicted_saving - each.simulated_saving for each in compared]
    verdict.at_most(f"{name}: time of an iteration, largest error, %", max(abs(c.time_error) for c in compared), TIME_GOAL)
    verdict.at_most(
        f"{name}: energy of an iteration, largest error, %", max(abs(c.energy_error) for c in compared), ENERGY_GOAL
    )
    verdict.at_most(f"{name}: gain of the fastest plan, largest difference, points", max(map(abs, gain)), GAIN_GOAL)
    verdict.at_most(f"{name}: saving at no more time, largest difference, points", max(map(abs, saving)), GAIN_GOAL)


if __name__ == "__main__":
    run_alone(main, *map(int, sys.argv[1:]))

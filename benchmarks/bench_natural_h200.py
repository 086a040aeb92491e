"""Curves from natural clocks on real H200s against mixtures, a whole iteration and another card, from the data kept."""

from __future__ import annotations

import numpy as np

from benchmarks.h200 import natural_judge
from benchmarks.verdict import Verdict


def main(verdict: Verdict) -> None:
    apart = natural_judge.cards_apart()
    light = [value for name, value in apart.items() if not name.endswith("_gemm")]
    verdict.at_most(
        "two cards, time by clock: RMS over kernels", float(np.sqrt(np.mean(np.square([*apart.values()])))), 0.01
    )
    verdict.at_most("two cards, light kernels: largest of a kernel's RMS", max(light), 0.01)
    mixtures = natural_judge.mixtures()
    for one in mixtures:
        print(f"    card {one.card}: {one.what}: time {one.time:+.2%}, energy {one.energy:+.2%}")
    energy = np.abs([one.energy for one in mixtures])
    verdict.at_most("mixtures, energy: largest", float(energy.max()), 0.02)
    verdict.at_most("mixtures, energy: mean", float(energy.mean()), 0.01)
    for whole in natural_judge.iterations():
        print(f"    card {whole.card}: {whole.what}: time {whole.time:+.2%}, energy {whole.energy:+.2%}")
        if whole.what == "iteration":
            verdict.at_most(f"iteration on card {whole.card}, time", abs(whole.time), 0.005)
            verdict.at_most(f"iteration on card {whole.card}, energy", abs(whole.energy), 0.01)
    for card, mhz, products, others in natural_judge.at_their_clocks():
        ratios = f"products {products:+.2%}, others {others:+.2%}"
        print(f"    card {card}: time of calls in an iteration, at {mhz:.0f} MHz: {ratios}")

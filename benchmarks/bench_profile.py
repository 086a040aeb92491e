"""Power profiles on simulated GPUs compared with their exact truth, over seeds.

Reports errors inside the SSE and SSP executions, which executions are found as such, and differences from the energy
counter. For comparison there is a naive profile: no clock synchronisation, no bins, readings taken as instantaneous power,
and a polynomial of degree four through them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.verdict import Verdict
from testbed.profiled_gpu import Truth, averaging_h200, gpu, kernel
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.profile import profile as profile_of
from wastenot.profiles.result import Profile, UnitPower

SEEDS = range(20, 25)
LOGGED = ("gemm:2048", "gemv:8192", "gemm:4096", "gemm:8192", "gemm:12288", "all-gather:512MB", "all-reduce:512MB")
AVERAGED = ("gemm:7000", "gemm:8192", "gemm:12288")
SENSORS = (
    ("mi300x", partial(gpu, "mi300x"), LOGGED, 0.03),
    ("h200", partial(gpu, "h200"), AVERAGED, 0.06),
    ("h200 as published", averaging_h200, AVERAGED, 0.06),
)


def main(verdict: Verdict) -> None:
    for preset, made, names, goal in SENSORS:
        worst, naive, late, early, counter, inside = [], [], [], [], [], []
        for name in names:
            errors, plain = [], []
            for seed in SEEDS:
                device, spec = made(seed), kernel(name)
                truth = Truth.of(device, spec)  # at its initial temperature
                profile = profile_of(spec, device, options=ProfileOptions(seed=seed))
                for state in ("SSE", "SSP"):
                    errors.append(truth.error(profile, state))
                    plain.append(truth.error_of(_naive(profile, state), profile.state(state).unit - 1, profile.group))
                early.append(abs(profile.state("SSE").unit - truth.sse))
                off = abs(profile.state("SSP").unit - truth.ssp)
                late.append(off <= (1 if truth.ssp <= 8 else 0.25 * truth.ssp))
                assert profile.counter is not None
                counter.append(abs(profile.counter.difference))
                halfway = truth.until(Truth.of(device, spec))
                inside += [halfway.held(profile, state) for state in ("SSE", "SSP")]
            worst += errors
            naive += plain
            print(f"    {preset} {name}: error {np.mean(errors):.2%}, at most {max(errors):.2%}; naive {np.mean(plain):.1%}")
        verdict.at_most(f"{preset}: RMS error over the range from idle to peak, the largest", max(worst), goal)
        verdict.at_least(f"{preset}: the naive profile's error, mean, over ours", np.mean(naive) / np.mean(worst), 2.0)
        verdict.at_most(f"{preset}: SSE off by, executions, the most", max(early), 1)
        verdict.at_least(f"{preset}: SSP within one up to 8, within 25 % beyond, fraction", float(np.mean(late)), 1.0)
        verdict.at_most(f"{preset}: profile against energy counter, the largest", max(counter), 0.02)
        verdict.at_least(f"{preset}: 95 % bands contain the power, at the temperature halfway", np.mean(inside), 0.85)


def _naive(profile: Profile, state: str) -> UnitPower:
    """A polynomial of degree four through the readings that seem to lie in the state's unit."""
    found, logged = profile.state(state), profile.logged
    begin = profile.unit_begin_s[found.unit - 1]
    share = (logged.unsynchronised_s - begin) / found.time_s
    chosen = (logged.channel == 0) & (share >= 0.0) & (share < 1.0)
    total = found.channels["total"]
    if len(np.unique(np.round(share[chosen], 2))) < 10:
        nothing = np.full_like(total.power_w, logged.power_w[logged.channel == 0].mean())
        return replace(total, power_w=nothing)
    seen = logged.power_w[chosen]
    line = np.polynomial.Polynomial.fit(share[chosen], seen, 4)
    return replace(total, power_w=np.clip(line(total.share), seen.min(), seen.max()))

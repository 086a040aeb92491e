"""Our policy for an engine's clock on loads, engines and errors that shaped nothing: where does it fail?

Each case is one engine under one load, drawn anew: arrivals (Poisson, bursts, on and off, a slow wave, a ramp, a spike),
lengths (chat, code, long prompts only, short ones only, answers of a token or two, each up to 1.6 times as long or short),
engines (measured, of kernels, prompts prefilled whole, other curves of power over the clock), times of a switch, lengths
predicted wrong by a factor of two, shares of the capacity from 10 % to 100 %. Those of ``unseen`` only judge: they were
written down before the policy was last changed, and no run of theirs was looked at until then.
Beside ours run the greatest clock and the best fixed clock in hindsight.

Ours counts as failed where it keeps fewer than 99 % of the deadlines though the greatest clock keeps them, beyond doubt
where so many misses have a probability below 2.5 % at 99 %. Rows go to ``data/serving/attack.json``, each as it is there.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial

import numpy as np
from scipy.stats import binom

from benchmarks.kept import DATA, keep
from benchmarks.serving_loads import PROFILES, pdblend
from benchmarks.verdict import Verdict, run_alone
from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.model.capacity import capacity
from wastenot.serving.model.deadlines import LITERATURE
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests, log_normal_lengths
from wastenot.serving.model.steering import best_fixed, fixed_clocks
from wastenot.serving.policies.price import Price
from wastenot.serving.simulation.policy import Fixed, Policy
from wastenot.serving.simulation.simulate import simulate

KEPT = DATA / "serving" / "attack.json"
SHARE, MARGIN, DOUBT = 0.99, 0.005, 0.025
FRESH = 284017
"""Of the seeds that judge, run once, after the last change of the policy; 1 to 9, 481156, 615283 and 730249 shaped it."""
SPREAD = 1.6
"""Lengths of a drawn case are so many times longer or shorter than named, at most."""
REQUESTS = 1500
"""Of a case, in expectation."""
LENGTHS = {
    "chat": (LogNormal(500, 1.0, 6000), LogNormal(150, 0.8, 1000)),
    "code": (LogNormal(1500, 0.9, 7000), LogNormal(20, 0.9, 300)),
    "long prompts": (LogNormal(4000, 0.4, 12000), LogNormal(60, 0.6, 300)),
    "short prompts": (LogNormal(60, 0.6, 250), LogNormal(250, 0.7, 1000)),
    "answers of a token or two": (LogNormal(700, 0.8, 4000), LogNormal(1.5, 0.5, 4)),
    "summaries": (LogNormal(2500, 0.7, 9000), LogNormal(200, 0.5, 800)),
    "all lengths": (LogNormal(400, 1.6, 12000), LogNormal(120, 1.3, 2000)),
    "long answers": (LogNormal(200, 0.8, 2000), LogNormal(700, 0.5, 2500)),
}
"""Of prompts and of answers; the last three only judge."""
ARRIVALS = ("Poisson", "bursts", "on and off", "wave", "ramp", "spike", "uneven gaps", "two rates", "flash", "sawtooth")
"""The last four only judge."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One case.

    Attributes:
        engine: by name.
        arrivals: of ``ARRIVALS``.
        lengths: of ``LENGTHS``.
        load: share of the greatest clock's capacity.
        switch_s: time that a switch takes.
        predicted: factor by which predicted lengths are too long.
    """

    engine: str = "H200"
    arrivals: str = "Poisson"
    lengths: str = "chat"
    load: float = 0.5
    switch_s: float = 0.0225
    predicted: float = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a case. Energies are shares of the greatest clock's saved, attainments shares of the requests.

    ``fixed`` is of those that attain, ``None`` where none does.
    """

    requests: int
    rate_per_s: float
    greatest_kept: float
    kept: float
    doubt: float
    saved: float
    fixed: float | None


def arrivals(kind: str, rate_per_s: float, count: int, random: np.random.Generator) -> FloatArray:
    """Times at which requests come, at a mean rate."""
    duration_s = count / rate_per_s
    if kind == "Poisson":
        return np.sort(random.uniform(0, duration_s, random.poisson(count)))
    if kind == "bursts":  # of 4 on average, each within a fifth of a second
        starts = random.uniform(0, duration_s, max(random.poisson(count / 4), 1))
        size = random.geometric(1 / 4, len(starts))
        return np.sort(np.repeat(starts, size) + random.uniform(0, 0.2, size.sum()))
    at = np.sort(random.uniform(0, duration_s, random.poisson(count)))
    if kind == "ramp":  # from 0.4 to 1.6 of the rate
        return np.asarray(duration_s * (np.sqrt(0.16 + 2.4 * at / duration_s) - 0.4) / 1.2)
    if kind == "spike":  # half as much again, for a tenth of the time
        begin_s, extra = random.uniform(0.3, 0.8) * duration_s, random.poisson(0.05 * count)
        return np.sort(np.concatenate([at, begin_s + 0.1 * duration_s * random.uniform(size=extra)]))
    if kind == "uneven gaps":  # of a standard deviation of 1.6 times their mean
        return np.cumsum(random.gamma(1.6**-2, 1.6**2 / rate_per_s, random.poisson(count)))
    if kind == "flash":  # a fifth of all comes at once, and ever fewer
        begin_s, extra = random.uniform(0.2, 0.7) * duration_s, random.poisson(0.2 * count)
        return np.sort(np.concatenate([0.8 * at, begin_s + random.exponential(0.15 * duration_s, extra)]))
    if kind == "sawtooth":  # four times from 0.6 to 1.4 of the rate
        turn, place = np.divmod(4 * at / duration_s, 1.0)
        return np.asarray(duration_s / 4 * (turn + (np.sqrt(0.36 + 1.6 * place) - 0.6) / 0.8))
    if kind == "two rates":  # 0.6 and 1.4 of the rate, for times whose mean is an eighth of all
        lasts_s = random.exponential(duration_s / 8, 64)
        come = np.cumsum(lasts_s * rate_per_s * np.resize([0.6, 1.4], 64))
        return np.interp(at * rate_per_s, np.append(0.0, come), np.append(0.0, np.cumsum(lasts_s)))
    period_s = max(20.0, 60.0 / rate_per_s) if kind == "on and off" else max(120.0, duration_s / 4)
    turn, place = np.divmod(at, period_s)
    if kind == "on and off":  # twice the rate, half of the time
        return turn * period_s + place / 2
    return np.sort(at + 0.8 * period_s / (2 * math.pi) * np.sin(2 * math.pi * place / period_s)).clip(0)


def load_of(case: Attack, seed: int, lengths: int) -> Callable[[float], Requests]:
    """The case's requests at a rate, by the seeds of what comes and of how long it is on average."""
    factors = SPREAD ** np.random.default_rng(lengths).uniform(-1, 1, 2)
    prompt, output = (
        replace(each, median=each.median * factor) for each, factor in zip(LENGTHS[case.lengths], factors, strict=True)
    )

    def at(rate_per_s: float) -> Requests:
        random = np.random.default_rng(seed)
        times = arrivals(case.arrivals, rate_per_s, REQUESTS, random)
        return Requests(times, prompt.draw(len(times), random), output.draw(len(times), random))

    return at


def power_bent(engine: Engine, exponent: float) -> Engine:
    """Another curve of power over the clock: energy of steps times (clock / greatest) to a power."""
    tables = engine.tables
    clock = np.array([each.core_mhz or math.nan for each in tables.settings])
    ratio = np.where(np.isnan(clock), 1.0, clock / np.nanmax(clock))[:, None, None] ** exponent
    return replace(
        engine,
        tables=replace(
            tables, prefill_energy_j=tables.prefill_energy_j * ratio, decode_energy_j=tables.decode_energy_j * ratio
        ),
    )


@cache
def engines() -> dict[str, Engine]:
    """By name."""
    h200 = read_engine(PROFILES / "llama-8b-sim-h200.json").engine().within_known_clocks()
    return {
        "H200": h200,
        "H200, prompts whole": replace(h200, chunked=False),
        "H200, steeper power": power_bent(h200, 0.7),
        "H200, flat power": power_bent(h200, -0.6),
        "pdblend": replace(pdblend(), most_step_tokens=512),
        "70B": read_engine(PROFILES / "llama-70b-sim-h200.json").engine().within_known_clocks(),
        "H200, batch of 96": replace(h200, most_running=96),
        "H200, short steps": replace(h200, most_step_tokens=512),
    }


def unseen() -> Iterator[Attack]:
    """Those that only judge."""
    for share in (0.5, 0.85):
        for name in list(engines())[5:]:
            yield Attack(name, load=share)
        for kind in ARRIVALS[6:]:
            yield Attack(arrivals=kind, load=share)
        for kind in list(LENGTHS)[5:]:
            yield Attack(lengths=kind, load=share)


def cases() -> Iterator[Attack]:
    """One thing changed at a time."""
    for name in list(engines())[:5]:
        for share in (0.5, 0.85):
            yield Attack(name, load=share)
    for share in (0.1, 0.25, 0.7, 1.0):
        yield Attack(load=share)
    for share in (0.7, 0.85, 0.95):
        yield Attack(lengths="code", load=share)
    for kind in ARRIVALS[1:6]:
        for share in (0.5, 0.85):
            yield Attack(arrivals=kind, load=share)
    for kind in list(LENGTHS)[2:5]:
        for share in (0.5, 0.85):
            yield Attack(lengths=kind, load=share)
    for switch_s in (0.001, 0.1, 0.2):
        for share in (0.5, 0.85):
            yield Attack(switch_s=switch_s, load=share)
    for factor in (0.5, 2.0):
        for share in (0.5, 0.85):
            yield Attack(predicted=factor, load=share)


def judged(case: Attack, engine: Engine, fresh: int = 0) -> Row:
    """Run a case."""
    engine = replace(engine, switch_s=case.switch_s)
    seed = zlib.crc32(repr(case).encode()) + 7919 * fresh
    reached = capacity(load_of(case, seed, seed), engine, LITERATURE, share=SHARE, within=0.02)
    rate = case.load * reached.rate_per_s
    requests = load_of(case, seed + 1, seed)(rate)
    predicted = log_normal_lengths(requests.output_tokens, sigma=0.3, factor=case.predicted, seed=seed + 2)

    def run(policy: Policy) -> tuple[float, float, int]:
        served = simulate(requests, engine, policy, deadlines=LITERATURE, predicted_tokens=predicted)
        kept = LITERATURE.kept(served.requests, served)
        return float(served.total_energy_j), float(kept.mean()), int((~kept).sum())

    greatest_j, greatest_kept, _ = run(Fixed())
    ours_j, kept, missed = run(Price())
    best = best_fixed(fixed_clocks(requests, engine, LITERATURE), SHARE)

    return Row(
        len(requests),
        rate,
        greatest_kept,
        kept,
        float(binom.sf(missed - 1, len(requests), 1 - SHARE)),
        1 - ours_j / greatest_j,
        1 - best.energy_j / greatest_j if best.attainment >= SHARE else None,
    )


def main(verdict: Verdict, fresh: int = FRESH, most: int | None = None) -> None:
    """Run all cases, or the first so many in an order drawn by the seed; count those where ours fails."""
    every = (*cases(), *unseen())
    every = tuple(every[each] for each in np.random.default_rng(fresh).permutation(len(every))[:most])
    with ProcessPoolExecutor(2) as pool:
        rows: list[Row] = []
        kept: list[dict[str, object]] = []
        for case, row in zip(every, pool.map(partial(of_case, fresh=fresh), every), strict=True):
            if row is None:
                continue
            print(line(case, row), flush=True)
            rows.append(row)
            kept.append({"case": asdict(case), "row": asdict(row)})
            keep(KEPT, kept)
    asked = [row for row in rows if row.greatest_kept >= SHARE]
    verdict.at_most("cases where ours attains too little, beyond doubt", sum(row.doubt < DOUBT for row in asked), 0)
    short = sum(row.kept < SHARE for row in asked)
    verdict.at_most(f"of {len(asked)} cases that the greatest clock attains, those that ours does not", short, 0)
    less = sum(row.saved < (row.fixed or 0.0) - MARGIN for row in asked)
    verdict.at_most("of these, cases where ours saves over half a point less than the best fixed clock", less, 0)


def of_case(case: Attack, fresh: int) -> Row | None:
    """A case, in a process of its own; ``None`` where the greatest clock attains at no rate."""
    try:
        return judged(case, engines()[case.engine], fresh)
    except BadInputError:
        return None


def line(case: Attack, row: Row) -> str:
    """For a terminal."""
    fixed = "-" if row.fixed is None else f"{row.fixed:.1%}"
    return (
        f"  {case.engine:20s} {case.arrivals:10s} {case.lengths:14.14s} {case.load:4.0%} {1e3 * case.switch_s:5.1f} ms "
        f"x{case.predicted:<3g}: greatest {row.greatest_kept:.2%} ours {row.kept:.2%} (p {row.doubt:.2g}) "
        f"saved {row.saved:5.1%}; fixed {fixed}"
    )


if __name__ == "__main__":
    run_alone(main, *map(int, sys.argv[1:]))

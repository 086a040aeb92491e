"""Trials of clocks: instances of one layout under requests like those expected, step by step in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wastenot.serving.cluster.mixes import Mix
from wastenot.serving.cluster.model import Alike, ChangeTimes, ClockRule, Cluster
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests

REQUESTS = 3000
"""Of a trial."""
LEAST_S = 160.0
"""Of a trial of rules that climb: batches that are too large for a low clock take their time to grow."""
_SEED = 20_240_510
_FEWEST = 100
"""Requests of a class that say enough of it."""


@lru_cache(maxsize=8)
def _drawn(mix: Mix, rate_per_s: float, lasts_s: float) -> Requests:
    """Of a trial: many rules are tried at one rate."""
    return mix.draw(rate_per_s, lasts_s, _SEED)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Instances under a mix.

    Attributes:
        engine: of each.
        mix: of the requests, which come independently of one another.
        deadlines: to be kept.
        share: of the requests of each class of deadlines that are to keep them.
        together: instances behind one router.
        by_tokens: whether requests go where there are fewest tokens.
        requests: of a run.
    """

    engine: Engine
    mix: Mix
    deadlines: Deadlines
    share: float
    together: int
    by_tokens: bool = False
    requests: int = REQUESTS

    @property
    def most_per_s(self) -> float:
        """A rate that is too much: prompts or answers alone would take all of the time."""
        tables = self.engine.tables
        most = min(self.engine.most_step_tokens, tables.prefill_tokens[-1])
        full = int(np.searchsorted(tables.prefill_tokens, most))
        prompts_s = float(np.nanmin(tables.prefill_time_s[:, full, 0])) * self.mix.prompt / float(most)
        answers_s = float(np.nanmin(tables.decode_time_s[:, -1, 0])) * self.mix.output / float(tables.batches[-1])
        return 1.2 / max(prompts_s, answers_s)

    def run(self, rule: ClockRule, rate_per_s: float) -> tuple[bool, float]:
        """Whether the deadlines are kept at a rate of each instance, and the power of each."""
        rate = rate_per_s * self.together
        requests = _drawn(self.mix, rate, max(self.requests / rate, LEAST_S if self.by_tokens else 0.0))
        if not len(requests):
            return True, 0.0
        cluster = Cluster((self.engine,), self.together, ChangeTimes((0.0,)), self.engine.gpus, deadlines=self.deadlines)
        lasts_s = float(requests.arrival_s[-1])
        alike = Alike(self.together, rule, self.by_tokens)
        served = simulate_cluster(requests, cluster, alike, bin_s=max(lasts_s / 8, 1e-3))
        good = self.deadlines.kept(requests, served)
        kind = np.searchsorted(self.deadlines.prompt_below, requests.prompt_tokens, side="right")
        kinds = [good[kind == each] for each in np.unique(kind)]
        keeps = bool(good.mean() >= self.share and all(each.mean() >= self.share for each in kinds if len(each) >= _FEWEST))
        steady_j = served.timeline.energy_j[2:7].sum()  # neither filling nor emptying
        return keeps, float(steady_j / (5 * served.timeline.bin_s) / self.together)

    def capacity(self, rule: ClockRule, guess_per_s: float) -> float:
        """The greatest rate of each instance that keeps the deadlines, by bisection from a guess on; 0 where none does."""
        most = self.most_per_s
        low = high = max(guess_per_s, most / 100)
        while low > most / 1000 and not self.run(rule, low)[0]:
            high, low = low, low / 1.4
        if low <= most / 1000:
            return 0.0
        while high <= low and high < most:
            high = low * 1.2
            if self.run(rule, high)[0]:
                low = high
        for _ in range(4):
            middle = (low + high) / 2
            low, high = (middle, high) if self.run(rule, middle)[0] else (low, middle)
        return low

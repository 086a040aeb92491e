"""Small serving cases drawn at random: engines whose tables follow no pattern, tight caches, policies with whims."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.setting import Setting
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Choice, View


@dataclass
class Whims:
    """Asks for any setting, and wants to be asked again at any time; keeps what it saw."""

    settings: int
    seed: int
    name: str = "whims"
    seen: list[View] = field(default_factory=list)

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        self.random = np.random.default_rng(self.seed)
        return int(self.random.integers(self.settings))

    def choose(self, view: View) -> Choice:
        self.seen.append(view)
        setting = view.asked if self.random.random() < 0.4 else int(self.random.integers(self.settings))
        again = (math.inf, view.now_s, view.now_s - 1.0, view.now_s + self.random.exponential(0.05))
        return Choice(setting, again[self.random.integers(4)])


@dataclass(frozen=True)
class Case:
    """A load on an engine."""

    requests: Requests
    engine: Engine
    deadlines: Deadlines
    predicted_tokens: np.ndarray


def drawn(seed: int) -> Case:
    """A case; half of them have requests with cached tokens."""
    random = np.random.default_rng(seed)
    settings = int(random.integers(1, 5))
    block = int(random.choice([1, 2, 5, 16]))
    count = int(random.integers(1, 30))
    longest = int(random.choice([3, 20, 60]))
    prompt = random.integers(1, longest + 1, count)
    output = random.integers(1, longest + 2, count)
    needed = int((-(-(prompt + output) // block)).max())
    arrival = np.cumsum(random.exponential(float(random.choice([0.001, 0.02, 0.3])), count))
    if random.random() < 0.3:
        arrival[: count // 2] = arrival[0]
    engine = Engine(
        _tables(settings, random),
        cache_blocks=needed + int(random.choice([0, 1, needed, 10 * needed])),
        block_tokens=block,
        most_running=int(random.choice([1, 3, 8, 40])),
        most_step_tokens=int(random.choice([1, 7, 30, 200])),
        chunked=bool(random.integers(2)),
        switch_s=float(random.choice([0.0, 0.001, 0.037, 0.5])),
        overhead_s=float(random.choice([0.0, 0.0013])),
        scheduler=(Scheduler.FCFS, Scheduler.PRIORITY)[seed // 2 % 2],
    )
    deadlines = Deadlines(tbt_s=float(random.uniform(0.01, 0.1)))
    predicted = random.uniform(0.5, 80.0, count)
    cached = random.integers(0, prompt) if seed % 2 else None
    return Case(Requests(arrival, prompt, output, cached), engine, deadlines, predicted)


def _tables(settings: int, random: np.random.Generator) -> EngineTables:
    tokens, past = np.array([1.0, 11.3, 40.0, 5000.0]), np.array([0.0, 20.5, 5000.0])
    batches, contexts = np.array([1.0, 2.0, 7.5, 64.0]), np.array([1.0, 30.1, 200.0])

    def costs(*shape: int) -> tuple[np.ndarray, np.ndarray]:
        time_s = random.uniform(0.005, 0.03, (settings, *shape))
        return time_s, time_s * random.uniform(50.0, 400.0, (settings, *shape))

    return EngineTables(
        tuple(Setting(core_mhz=1000.0 + 100 * each) for each in range(settings)),
        tokens, past, *costs(len(tokens), len(past)),
        batches, contexts, *costs(len(batches), len(contexts)),
        random.uniform(30.0, 80.0, settings), "fitted", "simulated",
    )  # fmt: skip

"""A load small enough for tests of policies that steer an engine's clock, and its deadlines."""

from __future__ import annotations

import numpy as np

from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.requests import Requests

DEADLINES = Deadlines(ttft_s=(0.3, 0.6), prompt_below=(256,), tbt_s=0.08)


def load(rate_per_s: float, duration_s: float, seed: int) -> Requests:
    """Requests that come at random times, with log-normal lengths."""
    random = np.random.default_rng(seed)
    number = random.poisson(rate_per_s * duration_s)
    prompts = np.exp(random.normal(5.5, 0.8, number)).clip(4, 2000).astype(np.intp)
    outputs = np.exp(random.normal(4.3, 0.7, number)).clip(1, 400).astype(np.intp)
    return Requests(np.sort(random.uniform(0, duration_s, number)), prompts, outputs)

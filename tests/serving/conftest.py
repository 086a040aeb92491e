from __future__ import annotations

import numpy as np
import pytest

from wastenot.core.setting import Setting
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables


@pytest.fixture(scope="session")
def three_clocks() -> Engine:
    """An engine at 1,000, 1,500 and 2,000 MHz: prompts take as long as the clock is low, decoding waits for memory."""
    clocks = np.array([1000.0, 1500.0, 2000.0])
    tokens, past = np.array([1.0, 512.0, 4096.0]), np.array([0.0, 4096.0])
    batches, contexts = np.array([1.0, 64.0]), np.array([1.0, 8192.0])
    slower, power = 2000.0 / clocks, 100.0 + 300.0 * (clocks / 2000.0) ** 3
    prefill = (0.010 + 5e-5 * tokens)[:, None] * (1 + past / 40_000.0)[None, :]
    decode = 0.012 + 1e-4 * batches[:, None] + 2e-8 * batches[:, None] * contexts[None, :]
    prefill_s = slower[:, None, None] * prefill[None]
    decode_s = (0.7 + 0.3 * slower)[:, None, None] * decode[None]
    return Engine(
        EngineTables(
            tuple(Setting(core_mhz=clock) for clock in clocks),
            tokens,
            past,
            prefill_s,
            prefill_s * power[:, None, None],
            batches,
            contexts,
            decode_s,
            decode_s * power[:, None, None],
            np.full(3, 60.0),
            "fitted",
            "simulated",
        ),
        cache_blocks=4000,
        most_running=64,
        most_step_tokens=512,
        switch_s=0.02,
    )

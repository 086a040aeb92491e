from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.model import ChangeTimes, Cluster
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests


@pytest.fixture(scope="session")
def past() -> Requests:
    """Requests of every class, for the lengths of prompts and answers."""
    return poisson(20.0, 200.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=9)


@pytest.fixture(scope="session")
def small_cluster(three_clocks: Engine) -> Cluster:
    """Four hosts of four GPUs, and engines of one, two and four GPUs that are faster by less than their GPUs are more."""
    layouts = []
    for gpus in (1, 2, 4):
        tables, faster = three_clocks.tables, gpus**0.85
        layouts.append(
            replace(
                three_clocks,
                gpus=gpus,
                cache_blocks=4000 * gpus,
                tables=replace(
                    tables,
                    prefill_time_s=tables.prefill_time_s / faster,
                    decode_time_s=tables.decode_time_s / faster,
                    prefill_energy_j=tables.prefill_energy_j * gpus / faster,
                    decode_energy_j=tables.decode_energy_j * gpus / faster,
                    idle_power_w=tables.idle_power_w * gpus,
                ),
            )
        )
    deadlines = Deadlines(ttft_s=(0.3, 0.5, 2.0), tbt_s=0.1)
    changes = ChangeTimes((60.0, 60.0, 60.0), parked_power_w=40.0)
    return Cluster(tuple(layouts), 4, changes, gpus_per_host=4, deadlines=deadlines)


@pytest.fixture(scope="session")
def profiles(small_cluster: Cluster, past: Requests) -> Profiles:
    """Frontiers of the small cluster's layouts: each is made once for all tests that ask for it."""
    return Profiles(small_cluster, past, points=4)


@pytest.fixture(scope="session")
def blend(small_cluster: Cluster, past: Requests) -> FloatArray:
    """Shares of the classes in the past: what forecasts here are scaled from, so that they ask for the same frontiers."""
    number = class_of(past.prompt_tokens, past.output_tokens)
    return np.bincount(number, minlength=COUNT) / len(past)

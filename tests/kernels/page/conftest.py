"""Sweeps for the report's tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from testbed.browser import browse, too_wide
from testbed.drawn_sweeps import NASTY, make_sweep
from testbed.known_truth import rows_of
from testbed.searches import with_kernels
from wastenot.kernels.plan.overview import PlanOverview, make_overview
from wastenot.planning.plan import Plan
from wastenot.planning.planner import plan
from wastenot.study.sweep import Kernel, Sweep
from wastenot.study.sweep_file import read_sweep

__all__ = ["browse", "too_wide"]

_DEMO = Path(__file__).parent / "synthetic-sweep.csv"


def _passes(count: int) -> list[Kernel]:
    return [Kernel(f"kernel {index}", 1 + index % 5, ("forward", "backward")[2 * index // count]) for index in range(count)]


@pytest.fixture(scope="session")
def demo_sweep() -> Sweep:
    return read_sweep(_DEMO, workload="gpt3-xl", device="textbook GPU", origin="synthetic")


@pytest.fixture(scope="session")
def coarse_sweep(demo_sweep: Sweep) -> Sweep:
    """A third of the kernels at a fifth of the core clocks, where the numbers themselves do not matter."""
    clocks = np.unique(demo_sweep.core_mhz[~np.isnan(demo_sweep.core_mhz)])[::-5]
    rows = rows_of(demo_sweep, np.isnan(demo_sweep.core_mhz) | np.isin(demo_sweep.core_mhz, clocks))
    return with_kernels(rows, range(1, len(rows.kernels), 3))


@pytest.fixture(scope="session")
def coarse(coarse_sweep: Sweep) -> PlanOverview:
    return make_overview(coarse_sweep, plan(coarse_sweep, as_measured=True))


@pytest.fixture(scope="session")
def demo_plan(demo_sweep: Sweep) -> Plan:
    return plan(demo_sweep, as_measured=True)


@pytest.fixture(scope="session")
def demo(demo_sweep: Sweep, demo_plan: Plan) -> PlanOverview:
    return make_overview(demo_sweep, demo_plan)


@pytest.fixture(scope="session")
def cases() -> dict[str, Callable[[], PlanOverview]]:
    """Data that reports must cope with, made when asked for."""
    nasty = [Kernel(NASTY, 3, NASTY), Kernel("k" * 900, 2, "<b>pass</b>"), Kernel("[0].a.b", 1, "<b>pass</b>")]
    small = make_sweep(_passes(4), 6)
    makers: dict[str, Callable[[], PlanOverview]] = {
        "only auto": lambda: make_overview(make_sweep([Kernel("alone", 1)], 0, origin="measured")),
        "one setting": lambda: make_overview(make_sweep([Kernel("alone", 1)], 1, origin="forecast")),
        "nasty names": lambda: make_overview(make_sweep(nasty, 9)),
        "extreme": lambda: make_overview(make_sweep(_passes(8), 12, extreme=True)),
        "pass plan": lambda: make_overview(small, plan(small, granularity="pass", scope="local")),
        "many": lambda: make_overview(make_sweep([Kernel(f"k{index}", 2) for index in range(60)], 9)),
    }
    return {name: cache(make) for name, make in makers.items()}

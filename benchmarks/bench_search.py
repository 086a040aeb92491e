"""How much of the best saving a search with few measurements finds, judged by the true numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.bench_solver import DATA
from benchmarks.verdict import Verdict
from tests.support.known_truth import saving_of_measured, true_sweep
from wastenot.devices.open import open_device
from wastenot.planning.planner import plan
from wastenot.study.store import open_study
from wastenot.study.sweep_file import import_sweep
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.point import PointOptions
from wastenot.tasks import find_tasks
from wastenot.tuning.search import search_sweep


def main(verdict: Verdict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if (DATA / "sweep-share.csv").exists():
            card = Path(folder) / "card.db"
            import_sweep(DATA / "sweep-share.csv", card)
            for share, goal in ((0.4, 0.98), (0.3, 0.95)):
                saved, measured = _recorded(card, Path(folder) / f"{share}.db", share)
                verdict.at_least(f"RTX 3080 Ti, {measured:.1%} measured: fraction of the best saving", saved, goal)
        saved, measured = _h200(Path(folder) / "h200.db", 0.1)
        verdict.at_least(f"sim:h200, full grid, {measured:.1%} measured: fraction of the best saving", saved, 0.99)


def _recorded(card: Path, few: Path, share: float) -> tuple[float, float]:
    whole, name = open_study(card).read(), f"recorded:{card}"
    device, units = open_device(name), find_tasks("sweep-share", name)
    study = open_study(few, create=True)
    settings = Grid().settings(device.clocks.supported_clocks())
    outcome = search_sweep(device, units, study, settings, share=share, options=PointOptions(0.0, 5.0))
    return saving_of_measured(whole, study.read()) / -plan(whole).predicted.energy_change, outcome.measured / len(whole)


def _h200(few: Path, share: float) -> tuple[float, float]:
    device, units = open_device("sim:h200", seed=1), find_tasks("gpt3-xl", "sim:h200")
    settings = Grid().settings(device.clocks.supported_clocks())
    whole = true_sweep(device, units, settings)
    study = open_study(few, create=True)
    outcome = search_sweep(device, units, study, settings, share=share)
    return saving_of_measured(whole, study.read()) / -plan(whole).predicted.energy_change, outcome.measured / len(whole)

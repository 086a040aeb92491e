"""What a run begins with: its numbers, empty arrays, and layouts as the core has them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.cluster import classes
from wastenot.serving.cluster.model import Cluster, Router
from wastenot.serving.cluster.simulation import records
from wastenot.serving.cluster.simulation.records import column_of
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.engine_tables import EngineTables, several_prompts
from wastenot.serving.model.interpolation import bilinear, fraction, interval_of
from wastenot.serving.simulation.metrics import FIRST_EDGES_S, PROMPT_EDGES
from wastenot.serving.simulation.served import GAP_EDGES_S


def first_state(cluster: Cluster, router: Router, *, seed: int, bin_s: float, predicts: bool) -> records.State:
    """The state before anything has begun.

    Args:
        cluster: that is to run.
        router: how it chooses an instance.
        seed: of what is drawn at random.
        bin_s: width of the timeline's bins.
        predicts: whether answers' lengths are predicted.
    """
    deadlines = cluster.deadlines
    layouts, tables, places = _layouts(cluster.layouts, deadlines)
    numbers = _first_numbers(cluster, router, seed, bin_s, predicts)
    calendar_room = int(numbers["calendar_room"][0])
    lines = np.zeros(3 * classes.COUNT * len(deadlines.ttft_s), dtype=records.LINE)
    lines["first"] = lines["last"] = -1
    empty: dict[str, Any] = {
        "instances": records.INSTANCE,
        "slots": records.SLOT,
        "pools": records.POOL,
        "answers": records.ANSWER,
    }
    empty |= {"due": np.int32, "rules": np.int16, "arrival_s": np.float64, "predicted": np.float64}
    filled = {
        "numbers": numbers,
        "layouts": layouts,
        "lines": lines,
        "kinds": np.zeros(classes.COUNT, dtype=records.KIND),
        "bins": np.zeros(16, dtype=records.BIN),
        "tables": tables,
        "places": places,
        "events": np.full(2, math.inf),
        "loads": np.full(2, math.inf),
        "gap_edges_s": GAP_EDGES_S.astype(np.float64),
        "gap_counts": np.zeros(len(GAP_EDGES_S) + 1, dtype=np.int64),
        "first_edges_s": FIRST_EDGES_S,
        "prompt_edges": PROMPT_EDGES,
        "scratch": np.zeros(calendar_room, dtype=np.int64),
        "setting_s": np.zeros(max(len(each.tables.settings) for each in cluster.layouts)),
        "told": np.zeros(8),
        "running": np.zeros(6 * calendar_room),
        "waiting": np.zeros(256),
        "answer": np.zeros(2),
    }
    return records.State(
        *(
            column_of(filled[name] if name in filled else np.zeros(0, dtype=empty.get(name, np.int64)))
            for name in records.State._fields
        )
    )


def _first_numbers(cluster: Cluster, router: Router, seed: int, bin_s: float, predicts: bool) -> np.ndarray:
    deadlines = cluster.deadlines
    one = np.zeros(1, dtype=records.NUMBERS)
    numbers = one[0]
    numbers["bin_s"] = numbers["bin_end_s"] = bin_s
    numbers["tbt_s"], numbers["late_share"] = deadlines.tbt_s, 1 - deadlines.share
    numbers["end_to_end_s"] = math.inf if deadlines.end_to_end_s is None else deadlines.end_to_end_s
    numbers["more"] = 1
    numbers["spare"] = numbers["unplaced"] = numbers["last_unplaced"] = -1
    numbers["predicts"], numbers["router"] = predicts, int(router)
    numbers["random"] = seed & 0xFFFFFFFF
    numbers["ttft_classes"], numbers["gap_bins"], numbers["leaves"] = len(deadlines.ttft_s), len(GAP_EDGES_S), 1
    numbers["first_bins"], numbers["prompt_bins"] = len(FIRST_EDGES_S) + 1, len(PROMPT_EDGES) + 1
    numbers["prompt_below_0"], numbers["prompt_below_1"] = classes.PROMPT_BELOW
    numbers["output_below_0"], numbers["output_below_1"] = classes.OUTPUT_BELOW
    numbers["calendar_room"] = max(each.most_running for each in cluster.layouts) + 1
    numbers["rule_room"] = int(numbers["calendar_room"]) + records.BACKLOGS
    numbers["due_room"] = max(each.block_tokens for each in cluster.layouts)
    return one


class _Tables:
    """Numbers one after the other, and where each lot begins."""

    def __init__(self) -> None:
        self.lots: list[np.ndarray] = []
        self.size = 0

    def add(self, values: np.ndarray) -> int:
        at, self.size = self.size, self.size + values.size
        self.lots.append(values.ravel())
        return at


@lru_cache(maxsize=16)  # policies try the same engine hundreds of times
def _rows(tables: EngineTables, most_running: int) -> FloatArray:
    """Time and energy of decode steps, and what both grow by with each token of context up to the next knot.

    For each batch from 0 on; shape (settings, most_running + 1, contexts, 4).
    """
    knots, width = tables.batches, len(tables.context_tokens)
    rows = np.full((len(tables.settings), most_running + 1, width, 2), math.nan)
    for quantity, values in enumerate((tables.decode_time_s, tables.decode_energy_j)):
        cells = values.reshape(len(values), -1).T  # each with all settings
        for batch in range(most_running + 1):
            interval = interval_of(knots, 0, len(knots), batch, 0)
            if interval >= 0:
                along = fraction(knots, 0, len(knots), batch, interval)
                for context in range(width):
                    rows[:, batch, context, quantity] = bilinear(cells, interval * width + context, width, 1, along, 0.0)
    more = np.full_like(rows, math.nan)
    more[:, :, :-1] = np.diff(rows, axis=2) / np.diff(tables.context_tokens)[:, None]
    return np.concatenate([rows, more], axis=-1)


def _places(knots: FloatArray) -> IndexArray:
    """The interval of each whole number from 0 to the last knot; -1 before the first."""
    numbers = np.arange(int(knots[-1]) + 1)
    places = np.minimum(np.searchsorted(knots, numbers, side="right") - 1, max(len(knots) - 2, 0))
    known = (knots[0] <= numbers) & (numbers <= knots[-1])
    return np.where(known, places, -1)


@lru_cache(maxsize=16)
def _layouts(engines: tuple[Engine, ...], deadlines: Deadlines) -> tuple[np.ndarray, FloatArray, IndexArray]:
    """The layouts' records, and the tables and intervals that they point to."""
    tables, places = _Tables(), _Tables()
    tables.add(np.asarray(deadlines.ttft_s, dtype=np.float64))
    places.add(np.asarray(deadlines.prompt_below, dtype=np.int64))
    layouts = np.zeros(len(engines), dtype=records.LAYOUT)
    for lay, engine in zip(layouts, engines, strict=True):
        of = several_prompts(engine.tables)
        for name in (
            "overhead_s", "launch_s", "graph_launch_s", "most_graph_tokens", "switch_s", "gpus", "cache_blocks",
            "block_tokens", "most_running", "most_step_tokens",
        ):  # fmt: skip
            lay[name] = getattr(engine, name)
        lay["limit_w"] = engine.limit_w or 1e12
        clocks = np.array([math.nan if each.core_mhz is None else each.core_mhz for each in of.settings])
        greatest = float(np.nanmax(clocks)) if not np.isnan(clocks).all() else 0.0
        lay["chunked"], lay["last_tokens"] = engine.chunked, int(of.prefill_tokens[-1])
        lay["scheduler"] = list(Scheduler).index(engine.scheduler)
        lay["contexts"], lay["tokens"], lay["pasts"] = len(of.context_tokens), len(of.prefill_tokens), len(of.past_tokens)
        lay["decode_at"] = tables.add(_rows(engine.tables, engine.most_running))
        lay["contexts_at"] = tables.add(of.context_tokens)
        lay["prefill_at"] = tables.add(np.stack([of.prefill_time_s, of.prefill_energy_j], axis=-1))
        lay["tokens_at"], lay["pasts_at"] = tables.add(of.prefill_tokens), tables.add(of.past_tokens)
        lay["idle_at"] = tables.add(of.idle_power_w)
        lay["clock_at"] = tables.add(np.where(np.isnan(clocks), greatest, clocks))
        lay["places_at"] = places.add(_places(of.prefill_tokens))
    return layouts, np.concatenate(tables.lots).astype(np.float64), np.concatenate(places.lots).astype(np.int64)

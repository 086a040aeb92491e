"""Records of the steps of a running server, as its plug-in (``serving/bench/vllm_steps.py``) or a listener writes them.

{"schema": "wastenot.steps/1", "engine": "vllm 0.32.0", "model": "llama-8b", "gpus": 1, ...}
{"at": 1795745180.6, "running": 4, "prefill_tokens": 0, "decode_tokens": 4, "cache_tokens": 2048, "step_s": 0.009}

The listener (``serving/bench/live_steps.py``) also gives the context of each request that decoded, ``context_tokens``.

With asynchronous scheduling (``asynchronous`` in the first line; vLLM's default) an engine hands out the tokens of a step
only once it has launched the next, so what lies between two outputs is the longer of two times, of different steps:

    host   launch n        launch n + 1 ............  wait     launch n + 2
    GPU    ... n - 1 | n ..............|        n + 1 ....................
    output           n - 1                      n                        n + 1
                     |<- the record of step n ->|<- of step n + 1 ------>|

(vLLM 0.26, ``EngineCore.step_with_batch_queue``.) Decode steps are launched faster than they run, steps with prompts often
not. Where n + 1 holds prompts, only the time of both together is theirs, whatever the share of each.
Nothing in them is trusted: lines that are no records are counted and left out, and values are checked.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.core.errors import BadInputError

SCHEMA: Final = "wastenot.steps/1"
REMEDY: Final = "vLLM with wastenot installed beside it writes a file of steps where WASTENOT_STEPS names one"
MOST_RECORDS = 200_000
"""Of a server; the latest ones are used."""
StepRow = tuple[float, float, float, float, float, float, float]
_MOST_BYTES = 4096  # of a line
_MOST_TOKENS = 1e7
_LONGEST_S = 60.0  # that a step may take


@dataclass(frozen=True, slots=True, eq=False)
class StepRecords:
    """Steps that a server has run, in order. All arrays have the shape (steps,).

    Attributes:
        model: as the server calls it.
        engine: such as ``vllm 0.32.0``.
        gpus: that it runs on.
        prefill_tokens: of prompts, in the step.
        decode_tokens: made by requests that were decoding.
        context: tokens in the cache of each request that was in the batch, on average.
        time_s: of the step: since the one before where requests decoded in both, else what the engine waited for it. With
            asynchronous scheduling always since the one before; NaN where the engine may have had nothing to do meanwhile.
        core_mhz: clock in effect; NaN where it was not read.
        left_out: lines that are no records of a whole step.
        prompts: that had new tokens in the step; ``None`` where that is not told.
        ahead: whether a step with prompts was launched in the time of the step before; ``None`` where none was.
        most_graph_tokens: of steps that are launched as CUDA graphs.
    """

    model: str
    engine: str
    gpus: int
    prefill_tokens: FloatArray
    decode_tokens: FloatArray
    context: FloatArray
    time_s: FloatArray
    core_mhz: FloatArray
    left_out: int = 0
    prompts: FloatArray | None = None
    ahead: BoolArray | None = None
    most_graph_tokens: int = 512

    def __len__(self) -> int:
        return len(self.time_s)


def read_step_records(path: str | os.PathLike[str]) -> StepRecords:
    """Read a file of records, and before it the one that it took the place of (``FILE.1``), if it is there.

    Raises:
        BadInputError: it cannot be read, or has no records of this form.
    """
    path = Path(path)
    head: dict[str, Any] = {}
    rows: deque[StepRow] = deque(maxlen=MOST_RECORDS)
    left_out = 0
    before: dict[str, Any] | None = None
    for file in (path.with_name(path.name + ".1"), path):
        if file != path and not file.exists():
            continue
        for found in _documents(file):
            if isinstance(found, dict) and "schema" in found:
                head = found
                if head["schema"] != SCHEMA:
                    raise BadInputError(f"{file}: is {head['schema']!s:.60}, not records of steps ({SCHEMA}); {REMEDY}")
                continue
            row = step_row(found) if head else None
            if row is not None and isinstance(found, dict):
                if head.get("asynchronous") is True:
                    row = _since(row, found, before)
                before = found
            else:
                before = None
            if row is None:
                left_out += 1
            else:
                rows.append(row)
    if not head:
        raise BadInputError(f"{path}: has no records of steps ({SCHEMA}); {REMEDY}")
    if not rows:
        raise BadInputError(f"{path}: has no record of a whole step; serve some requests first")
    return records_of(head, rows, left_out)


def records_of(head: Mapping[str, Any], rows: Collection[StepRow], left_out: int = 0) -> StepRecords:
    """Records of at least one step.

    Args:
        head: what engine the steps are of, as in the first line of a file.
        rows: of :func:`step_row`.
        left_out: records that are none of a whole step.
    """
    prefill, decode, context, time_s, core_mhz, prompts, ahead = np.array(rows, dtype=np.float64).T
    gpus, graph = head.get("gpus"), head.get("most_graph_tokens")
    return StepRecords(
        str(head.get("model", ""))[:200],
        str(head.get("engine", ""))[:200],
        gpus if isinstance(gpus, int) and gpus >= 1 else 1,
        prefill,
        decode,
        context,
        time_s,
        core_mhz,
        left_out,
        prompts,
        ahead > 0.0,
        graph if isinstance(graph, int) and graph >= 0 else 512,
    )


def _documents(path: Path) -> Iterator[object]:
    """The lines of a file as JSON; ``None`` for those that are none, such as one that is being written."""
    try:
        with path.open("rb") as file:
            while line := file.readline(_MOST_BYTES):
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    yield None
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}; {REMEDY}") from error


def step_row(found: object) -> StepRow | None:
    """A record as numbers, in the order of the arrays of :class:`StepRecords`; ``None`` where it is none."""
    if not isinstance(found, dict):
        return None
    prefill, decode = _number(found, "prefill_tokens", _MOST_TOKENS), _number(found, "decode_tokens", _MOST_TOKENS)
    running, cached = _number(found, "running", _MOST_TOKENS), _number(found, "cache_tokens", 1e12)
    time_s = _number(found, "step_s" if decode else "wait_s", _LONGEST_S)
    if prefill is None or decode is None or time_s is None or not time_s > 0.0 or not prefill + decode > 0.0:
        return None
    context = _number(found, "context_tokens", _MOST_TOKENS)
    if context is None:
        context = 0.0 if cached is None or not running else cached / max(running, decode)
    prompts = _number(found, "prefills", _MOST_TOKENS) or 1.0
    return prefill, decode, context, time_s, _number(found, "core_mhz", 1e5) or math.nan, prompts, 0.0


def _since(row: StepRow, found: dict[str, Any], before: dict[str, Any] | None) -> StepRow:
    """A row of an engine that schedules ahead, by the record before: the time since, and whether it was launched then."""
    prefill, decode, context, time_s, core_mhz, prompts, _ = row
    busy = before is not None and bool(_number(before, "running", _MOST_TOKENS) or _number(before, "waiting", _MOST_TOKENS))
    if not decode:
        at, was = _number(found, "at", 1e12), None if before is None else _number(before, "at", 1e12)
        time_s = math.nan if at is None or was is None or not busy or not 0.0 < at - was < _LONGEST_S else at - was
    return prefill, decode, context, time_s, core_mhz, prompts, float(busy and prefill > 0.0)


def _number(found: dict[str, Any], name: str, most: float) -> float | None:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= most:
        return None
    return float(value)

"""A plug-in of vLLM (``vllm.stat_logger_plugins``) that records what each step held and how long it took.

vLLM loads it in the process of its API server wherever both are installed; it does nothing unless ``WASTENOT_STEPS`` names
a file. What vLLM tells a logger is no stable interface, so whatever it does not tell is left out of a record:

- with ``--enable-logging-iteration-details``: scheduled prompt and decode tokens of each step, and how long the engine
  waited for it (``wait_s``), which is less than the step where the next one is scheduled meanwhile;
- always: the median time between tokens of the requests that decoded in it (``step_s``): from the step before, host time
  included. There is none in a step that only prefills.

Where steps are scheduled ahead (``asynchronous``), what these times are of: :mod:`wastenot.serving.model.step_records`.

It does not tell the context of each request; the tokens in the cache are those of all blocks in use (``cache_tokens``).
"""

from __future__ import annotations

import logging
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from wastenot.serving.bench.step_log import MOST_BYTES, StepLog, clock_of
from wastenot.serving.model.step_records import SCHEMA

FILE, MEGABYTES, DEVICE = "WASTENOT_STEPS", "WASTENOT_STEPS_MB", "WASTENOT_STEPS_DEVICE"
_LEAST_BYTES = 1 << 16  # of a file, or each would hold a few steps
_LOG = logging.getLogger("vllm.wastenot")  # shown with vLLM's own lines


class StepLogger(StatLoggerBase):  # type: ignore[misc, unused-ignore]
    """Records the steps of one engine.

    Args:
        vllm_config: of the server.
        engine_index: of the engine, where there are several; each has a file of its own.
    """

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._config, self._cache_tokens = vllm_config, 0.0
        self._log: StepLog | None = None
        self._path = os.environ.get(FILE, "")
        if engine_index and self._path:
            self._path += f".engine{engine_index}"

    def record(self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0) -> None:
        """Record a step. Never waits, and never raises."""
        if not self._path:
            return
        try:
            if self._log is None:
                self._begin()
            found = step_record(scheduler_stats, iteration_stats, self._cache_tokens)
            if found is not None and self._log is not None:
                self._log.put(found)
        except Exception as error:  # of statistics that a later vLLM has not
            self._path = ""
            _LOG.warning("no more steps are recorded: %s: %s", type(error).__name__, error)

    def log_engine_initialized(self) -> None:
        """Nothing is to be done."""

    def _begin(self) -> None:
        """Open the log; by now the engine has its cache."""
        config = self._config
        cache, blocks = config.cache_config, getattr(config.cache_config, "num_gpu_blocks", None)
        self._cache_tokens = float(blocks or 0) * float(cache.block_size)
        from vllm import __version__

        head = {
            "schema": SCHEMA,
            "engine": f"vllm {__version__}",
            "model": str(config.model_config.served_model_name or config.model_config.model),
            "gpus": int(config.parallel_config.world_size),
            "most_step_tokens": int(config.scheduler_config.max_num_batched_tokens),
            "most_running": int(config.scheduler_config.max_num_seqs),
            "cache_tokens": int(self._cache_tokens),
            "asynchronous": bool(getattr(config.scheduler_config, "async_scheduling", False)),
            # Tokens of the largest step that is launched as CUDA graphs; 0 where none is.
            "most_graph_tokens": int(
                getattr(getattr(config, "compilation_config", None), "max_cudagraph_capture_size", None) or 0
            ),
            "details": bool(getattr(config.observability_config, "enable_logging_iteration_details", False)),
        }
        most = _most_bytes(os.environ.get(MEGABYTES))
        self._log = StepLog(self._path, head, most_bytes=most, clock_mhz=_clock(os.environ.get(DEVICE)))


def step_record(scheduler: Any, iteration: Any, cache_tokens: float) -> dict[str, Any] | None:
    """The record of a step; ``None`` where nothing was computed.

    Args:
        scheduler: ``SchedulerStats`` of vLLM.
        iteration: its ``IterationStats``.
        cache_tokens: that its cache holds.
    """
    if scheduler is None:
        return None
    record: dict[str, Any] = {
        "at": round(time.time(), 4),
        "running": scheduler.num_running_reqs,
        "waiting": scheduler.num_waiting_reqs,
        "cache_tokens": round(scheduler.kv_cache_usage * cache_tokens),
    }
    gaps = [] if iteration is None else iteration.inter_token_latencies_iter
    if gaps:
        record["step_s"] = round(statistics.median(gaps), 6)
    details = getattr(scheduler, "iteration_details", None)
    if details is not None and details.is_dummy:
        return None
    if details is not None:
        record |= {
            "prefill_tokens": details.num_ctx_tokens,
            "prefills": details.num_ctx_requests,
            "decode_tokens": details.num_generation_tokens,
            "decodes": details.num_generation_requests,
            "wait_s": round(1e-3 * details.elapsed_ms, 6),
        }
    elif gaps and len(gaps) == scheduler.num_running_reqs + len(iteration.finished_requests):
        # all that ran made a token, and none its first: no prompt was in the step
        record |= {
            "prefill_tokens": 0,
            "prefills": 0,
            "decode_tokens": iteration.num_generation_tokens,
            "decodes": len(gaps),
        }
    else:
        return None
    return record


def _most_bytes(megabytes: str | None) -> int:
    """Size at which a file is full; where what is asked for is no size, that is said and the default taken."""
    if not megabytes:
        return MOST_BYTES
    try:
        asked = float(megabytes)
    except ValueError:
        asked = math.nan
    if not 0.0 < asked < math.inf:
        _LOG.warning("%s=%s: not a size in megabytes; %.0f is used", MEGABYTES, megabytes, MOST_BYTES / 1e6)
        return MOST_BYTES
    return max(int(1e6 * asked), _LEAST_BYTES)


def _clock(name: str | None) -> Callable[[], float | None] | None:
    """The core clock of a device now, where one is named; one that cannot be opened is said, and left out."""
    if not name:
        return None
    from wastenot.core.errors import WastenotError, first_line

    try:
        return clock_of(name)
    except WastenotError as error:
        _LOG.warning("%s=%s: steps are recorded without a clock: %s", DEVICE, name, first_line(error))
        return None

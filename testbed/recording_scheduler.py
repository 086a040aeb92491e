"""Schedulers of vLLM that write down what they are given and what they decide, for ``vllm serve --scheduler-cls``.

``RECORD_TO=FILE vllm serve MODEL --scheduler-cls testbed.recording_scheduler.Recording`` writes a line of JSON for each
request that comes and each step. vLLM schedules a step ahead by default where it runs on GPUs: ``RecordingAsync`` there.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler


class _Records:
    """Beside a scheduler of vLLM, before it in the order of bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file = open(os.environ["RECORD_TO"], "a", buffering=1, encoding="utf-8")  # noqa: SIM115 - while vLLM runs
        own: Any = self
        config = own.scheduler_config
        self._write(
            most_step_tokens=config.max_num_batched_tokens,
            most_running=config.max_num_seqs,
            policy=str(config.policy),
            asynchronous=bool(config.async_scheduling),
            cache_blocks=own.kv_cache_manager.block_pool.get_num_free_blocks(),
            block_tokens=own.block_size,
            caching=bool(own.cache_config.enable_prefix_caching),
        )

    def _write(self, **what: object) -> None:
        self._file.write(json.dumps({"at_s": round(time.monotonic(), 6), **what}) + "\n")

    def add_request(self, request: Any) -> None:
        """A request has come."""
        self._write(prompt=request.num_prompt_tokens, output=request.max_tokens, priority=request.priority)
        super().add_request(request)  # type: ignore[misc]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """A step is made up."""
        begin_s = time.monotonic()
        out = super().schedule(*args, **kwargs)  # type: ignore[misc]
        prompts, decodes = 0, 0
        for name, tokens in out.num_scheduled_tokens.items():
            request = self.requests[name]  # type: ignore[attr-defined]
            decodes_one = tokens == 1 and request.num_computed_tokens - tokens >= request.num_prompt_tokens
            prompts, decodes = (prompts, decodes + 1) if decodes_one else (prompts + tokens, decodes)
        self._write(begin_s=round(begin_s, 6), prompt_tokens=prompts, decodes=decodes)
        return out


class Recording(_Records, Scheduler):  # type: ignore[misc, unused-ignore]
    """Each step once the one before is over."""


class RecordingAsync(_Records, AsyncScheduler):  # type: ignore[misc, unused-ignore]
    """Each step while the one before runs."""

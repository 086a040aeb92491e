"""An engine: what its steps cost, how many requests and tokens it holds, and how it makes up its steps."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.core.errors import BadInputError
from wastenot.serving.model.tables import EngineTables


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """One engine with continuous batching.

    Attributes:
        tables: what its steps cost.
        cache_blocks: of the key-value cache.
        block_tokens: tokens of a block.
        most_running: requests that may be in the batch (vLLM's ``max_num_seqs``).
        most_step_tokens: new tokens of one step (vLLM's ``max_num_batched_tokens``).
        chunked: whether prompts are prefilled in chunks beside decoding requests; otherwise whole, in steps of their own,
            which decoding requests wait for.
        switch_s: from the moment a clock is asked for to the moment it is in effect.
        overhead_s: of each step on the host, while the GPUs wait.
        gpus: its parallel degree.
        model: such as ``llama-8b``.
        device: such as ``sim:h200``.

    Raises:
        BadInputError: a time that cannot be.
    """

    tables: EngineTables
    cache_blocks: int
    block_tokens: int = 16
    most_running: int = 256
    most_step_tokens: int = 2048
    chunked: bool = True
    switch_s: float = 0.05
    overhead_s: float = 0.0
    gpus: int = 1
    model: str = ""
    device: str = ""

    def __post_init__(self) -> None:
        for name, seconds in (("switch_s", self.switch_s), ("overhead_s", self.overhead_s)):
            if not 0.0 <= seconds < float("inf"):
                raise BadInputError(f"`{name}` {seconds:g}: must be a number of seconds, at least 0")

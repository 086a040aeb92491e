"""Which rank of the pipeline this process is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from wastenot.core.errors import BadInputError


def pipeline_rank(ranks: int, given: int | None = None, environment: Mapping[str, str] | None = None) -> int:
    """The rank that was given, else Megatron's, else the one that torchrun's environment says.

    Of a world that is a multiple of the pipeline, as with tensor and data parallelism around it, the pipeline is taken to
    be the outermost dimension: neighbouring processes share a stage. That is the default of Megatron-LM
    (``tp-cp-ep-dp-pp``) and of DeepSpeed (axes ``pipe, data, model``).

    Args:
        ranks: of the pipeline.
        given: by the program.
        environment: of this process.

    Raises:
        BadInputError: there is no such rank, or it cannot be told.
    """
    environment = os.environ if environment is None else environment
    if given is None:
        given = _megatron_rank()
    if given is not None:
        if not 0 <= given < ranks:
            raise BadInputError(f"`rank` {given}: the plan has ranks 0 to {ranks - 1}")
        return given
    texts = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not all(text.isdecimal() for text in texts):
        if ranks == 1:
            return 0
        raise BadInputError(
            f"`rank`: which of the plan's {ranks} ranks is this? Neither torchrun's RANK and WORLD_SIZE nor Megatron "
            "says; give `rank`"
        )
    rank, world = map(int, texts)
    if world % ranks or not world or rank >= world:
        raise BadInputError(
            f"`rank`: the plan has {ranks} ranks, and WORLD_SIZE is {world}, which is not a multiple of it; make a plan for "
            "this pipeline, or give `rank`"
        )
    return rank // (world // ranks)


def _megatron_rank() -> int | None:
    """What Megatron says, where the program uses it and has set its groups up."""
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None:
        return None
    with suppress(Exception):  # its groups are not set up yet, or it is another version
        if state.model_parallel_is_initialized():
            return int(state.get_pipeline_model_parallel_rank())
    return None

"""Connects a rank to the straggler server that its environment names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from wastenot.core.processes import number_in_environment
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.run.straggler_source import StragglerSource
from wastenot.pipelines.run.straggler_wire import ADDRESS, TOKEN_FILE, read_token

REPLICA = "WASTENOT_REPLICA"
"""Says which of the pipelines beside each other a rank belongs to, where torchrun's numbers do not."""


def seat_of(plan: PipelinePlan, pipeline_rank: int, environment: Mapping[str, str]) -> tuple[int, int]:
    """The replica of a process, and its number in it.

    Of the processes that share a stage, those that share its layers (tensor parallel) are neighbours, as in Megatron-LM.
    """
    world, rank = (number_in_environment(name, 0, environment) for name in ("WORLD_SIZE", "RANK"))
    beside = max(world // len(plan.ranks), 1)
    within = rank % beside
    replica = number_in_environment(REPLICA, within // plan.gpus_per_stage, environment)
    return replica, pipeline_rank * plan.gpus_per_stage + within % plan.gpus_per_stage


def source_of(
    plan: PipelinePlan, pipeline_rank: int, environment: Mapping[str, str] | None = None
) -> StragglerSource | None:
    """A connection to the server; ``None`` where none is named, or it cannot be reached, which is said."""
    environment = {**os.environ, **(environment or {})}
    address = environment.get(ADDRESS)
    if not address:
        return None
    try:
        token = read_token(environment[TOKEN_FILE]) if environment.get(TOKEN_FILE) else None
        replica, rank = seat_of(plan, pipeline_rank, environment)
        return StragglerSource(address, replica, rank, digest=plan.digest, token=token)
    except (OSError, ValueError) as error:
        print(f"wastenot: {address}: {error}; this rank runs its own plan, whatever pipeline is slow", file=sys.stderr)
        return None

"""A pipeline's plan, and the JSON document that holds it (schema ``wastenot.pipeline/1``)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from wastenot.documents import Count, Finite, Name, NotNegative, Part, Positive
from wastenot.setting import Setting

SCHEMA: Final = "wastenot.pipeline/1"


class Clocks(Part):
    """One setting, each part of which may be auto (``None``), for a number of kernels in a row.

    Attributes:
        kernels: how many; ``None`` for all of the instruction.
        time_s: that these kernels take at it, where it is known.
    """

    core_mhz: Positive | None
    memory_mhz: Positive | None = None
    power_limit_w: Positive | None = None
    kernels: Annotated[int, Field(ge=1)] | None = None
    time_s: Positive | None = None

    @property
    def setting(self) -> Setting:
        """The setting as a value."""
        return Setting(self.core_mhz, self.memory_mhz, self.power_limit_w)


class Way(Part):
    """A way that the plan uses to run an instruction of a stage.

    Attributes:
        clocks: one setting for the whole instruction, or several, each for so many ``kernels`` of it, in order.
        time_s: on one GPU, for one micro-batch.
        energy_j: likewise.
    """

    stage: Count
    instruction: Name
    clocks: Annotated[tuple[Clocks, ...], Field(strict=False, min_length=1)]
    time_s: Positive
    energy_j: Positive


class RankPlan(Part):
    """What one rank runs.

    Attributes:
        instructions: in order of execution: (index into the plan's ways, micro-batch).
    """

    instructions: Annotated[tuple[Annotated[tuple[Count, Count], Field(strict=False)], ...], Field(strict=False)]


class Iteration(Part):
    """Time of an iteration, and energy of all GPUs of the pipeline, waiting included."""

    time_s: Positive
    energy_j: Positive


class PipelinePlan(Part):
    """Settings for each instruction of each rank.

    Attributes:
        until_s: another pipeline (a straggler) takes so long, and all wait for it; ``None`` where none does.
        baseline: at the default clocks, waiting for the straggler too.
        lower_bound_j: no plan within the deadline needs less.
    """

    schema_: Annotated[Literal["wastenot.pipeline/1"], Field(alias="schema")] = SCHEMA
    name: Name
    device: Name
    basis: Literal["measured", "simulated", "forecast"]
    schedule: Name
    stages: Annotated[int, Field(ge=1)]
    micro_batches: Annotated[int, Field(ge=1)]
    gpus_per_stage: Annotated[int, Field(ge=1)]
    waiting_w: NotNegative
    transfer_s: NotNegative
    iteration_s: NotNegative
    iteration_j: NotNegative
    max_slowdown: Finite | None
    within_s: Positive | None
    until_s: Positive | None
    baseline: Iteration
    predicted: Iteration
    lower_bound_j: Positive
    ways: Annotated[tuple[Way, ...], Field(strict=False)]
    ranks: Annotated[tuple[RankPlan, ...], Field(strict=False)]

"""What each instruction of each stage can take: the frontiers that a pipeline is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wastenot.frontiers.algebra import Frontier

Basis = Literal["measured", "simulated", "forecast"]
BaselineClocks = Literal["auto", "highest"]


@dataclass(frozen=True, slots=True, eq=False)
class PipelineProfile:
    """Times and energies of a pipeline's instructions.

    Attributes:
        name: of what is trained, such as ``gpt3-175b``.
        device: the GPU, such as ``sim:h200`` or ``A100-SXM4-80GB``.
        basis: where the numbers come from.
        ways: for each (stage, instruction's name) the ways to run it for one micro-batch on one GPU, each labelled with
            a :class:`~wastenot.setting.Setting` or, where kernels inside take their own, a tuple of them.
        baseline: for each (stage, instruction's name) time and energy at the default clocks; where they were not
            measured, at the highest.
        waiting_w: power that a GPU draws while it waits for another one.
        gpus_per_stage: GPUs that share a stage (tensor, context and expert parallel degree); energies are of one.
        transfer_s: of activations or gradients from one stage to the next.
        iteration_s: added to each iteration, such as gradients' all-reduce and the optimizer.
        iteration_j: energy of that on one GPU.
        baseline_clocks: whether the baseline is at the default clocks, or at the highest for want of those.
    """

    name: str
    device: str
    basis: Basis
    ways: Mapping[tuple[int, str], Frontier]
    baseline: Mapping[tuple[int, str], tuple[float, float]]
    waiting_w: float
    gpus_per_stage: int = 1
    transfer_s: float = 0.0
    iteration_s: float = 0.0
    iteration_j: float = 0.0
    baseline_clocks: BaselineClocks = "highest"

    @property
    def stages(self) -> int:
        """Stages of the model."""
        return 1 + max(stage for stage, _ in self.ways)

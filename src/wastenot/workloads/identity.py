"""What identifies the measurements of a workload: its name, the state of its energies, and what was measured as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from wastenot.workloads.shape import Shape

EnergyState = Literal["ssp", "sse", "context", "natural"]
"""The state that a kernel's energy is taken in: steady power (FinGraV's SSP), steady-state execution (its SSE), after the
kernel that runs before it, or at clocks that nobody requested and the GPU went through by itself."""

Granularity = Literal["iteration", "pass", "kernel"]
"""What is measured as one, or gets one setting."""

ENERGY_STATES: tuple[EnergyState, ...] = get_args(EnergyState)
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)

STATE_DESCRIPTIONS: dict[EnergyState, str] = {
    "ssp": "each kernel back to back, in steady power",
    "sse": "each kernel's first execution at full speed",
    "context": "each kernel after the one that runs before it",
    "natural": "each kernel at clocks that the GPU went through by itself",
}
_STATE_SUFFIX: dict[EnergyState, str] = {
    "ssp": "",
    "sse": " at SSE",
    "context": " in context",
    "natural": " at natural clocks",
}


@dataclass(frozen=True, slots=True)
class WorkloadKey:
    """What tells one set of measurements in a study from another.

    Attributes:
        name: for people, such as ``gpt3-xl-batch10``.
        state: of the energies.
        granularity: what was measured as one.
    """

    name: str
    state: EnergyState = "ssp"
    granularity: Granularity = "kernel"

    def __str__(self) -> str:
        measured = "" if self.granularity == "kernel" else f" by {self.granularity}"
        return f"{self.name}{measured}{_STATE_SUFFIX[self.state]}"


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A model and how it is run, from which the kernels of a workload follow.

    Attributes:
        model: such as ``gpt3-xl``.
        shape: how it is run.
    """

    model: str
    shape: Shape

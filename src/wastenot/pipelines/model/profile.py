"""What each instruction of each stage can take: the frontiers that a pipeline is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.core.suggest import suggestion
from wastenot.frontiers.algebra import Frontier
from wastenot.frontiers.nodes import Ways
from wastenot.planning.switching import SwitchTime

if TYPE_CHECKING:
    from wastenot.pipelines.model.errors import ProfileErrors

BaselineClocks = Literal["auto", "highest"]
FIXED_NAMES: Final = ("load", "send", "receive", "all_reduce", "optimizer")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Work of a GPU that takes the same time at every clock.

    Attributes:
        time_s: that it takes.
        energy_j: of one GPU meanwhile; ``None`` if it draws what it draws while it waits.
        overlapped: for ``all_reduce``: it runs beside the last backward of its stage, and its energy is what it adds.
    """

    time_s: float
    energy_j: float | None = None
    overlapped: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.time_s < float("inf"):
            raise BadInputError(f"`time_s` {self.time_s:g}: of fixed work: must be at least 0")
        if self.energy_j is not None and not 0.0 <= self.energy_j < float("inf"):
            raise BadInputError(f"`energy_j` {self.energy_j:g}: of fixed work: must be at least 0")


@dataclass(frozen=True, slots=True, eq=False)
class PipelineProfile:
    """Times and energies of a pipeline's instructions.

    Attributes:
        name: of what is trained, such as ``gpt3-175b``.
        device: the GPU, such as ``sim:h200`` or ``A100-SXM4-80GB``.
        origin: where the numbers come from.
        ways: for each (stage, instruction's name) the ways to run it for one micro-batch on one GPU, each labelled with
            a :class:`~wastenot.core.setting.Setting` or, where kernels inside take their own, a tuple of them. Collectives
            inside (of tensor and expert parallelism) are included.
        baseline: for each (stage, instruction's name) time and energy at the default clocks; where they were not
            measured, at the highest.
        waiting_w: power that a GPU draws while it waits for another one.
        gpus_per_stage: GPUs that share a stage (tensor, context and expert parallel degree); energies are of one.
        replicas: pipelines beside each other (data parallel degree), all alike.
        transfer_s: of activations or gradients from one stage to the next, while both ranks do something else.
        fixed: for each (stage, name of :data:`FIXED_NAMES`) work of the same time at every clock: ``load`` of a micro-batch
            before the forward; ``receive`` before, and ``send`` after, an instruction whose data come from or go to another
            rank, where these keep their own ranks busy; ``all_reduce`` of gradients over replicas, and ``optimizer``, after
            the stage's last backward.
        recomputes: whether ``backward`` runs the forward again first (full recomputation of activations), in its numbers.
        iteration_s: added to each iteration, on all ranks and after everything else.
        iteration_j: energy of that on one GPU.
        notes: what was assumed, for the reader of a plan.
        errors: how far times and energies can be off; ``None`` where nothing says.
        baseline_clocks: whether the baseline is at the default clocks, or at the highest for want of those.
        switching: how long the device takes to change clocks, where more is known than its name tells.
    """

    name: str
    device: str
    origin: Origin
    ways: Mapping[tuple[int, str], Frontier]
    baseline: Mapping[tuple[int, str], tuple[float, float]]
    waiting_w: float
    gpus_per_stage: int = 1
    replicas: int = 1
    transfer_s: float = 0.0
    fixed: Mapping[tuple[int, str], Fixed] = field(default_factory=dict)
    recomputes: bool = False
    iteration_s: float = 0.0
    iteration_j: float = 0.0
    notes: tuple[str, ...] = ()
    baseline_clocks: BaselineClocks = "highest"
    errors: ProfileErrors | None = None
    switching: SwitchTime | None = None

    def __post_init__(self) -> None:
        where = f"profile {self.name}"
        if not self.ways:
            raise BadInputError(f"{where}: has no instructions")
        for what, unit, number in (
            ("waiting power", "W", self.waiting_w),
            ("transfer", "s", self.transfer_s),
            ("rest of an iteration", "s", self.iteration_s),
            ("rest of an iteration", "J", self.iteration_j),
        ):
            if not 0.0 <= number < float("inf"):
                raise BadInputError(f"{where}: {what} of {number:g} {unit}: must be at least 0 and finite")
        if self.gpus_per_stage < 1 or self.replicas < 1:
            raise BadInputError(
                f"{where}: {self.gpus_per_stage} GPUs for a stage, {self.replicas} replicas: must be at least 1"
            )
        for stage, name in self.fixed:
            if name not in FIXED_NAMES:
                raise BadInputError(f"{where}: unknown fixed work '{name}'; {suggestion(name, FIXED_NAMES)}")
            if not 0 <= stage < self.stages:
                raise BadInputError(f"{where}: {name} of stage {stage}: stages are 0 to {self.stages - 1}")

    def graph_until_s(self, until_s: float | None) -> float | None:
        """Until when the graph of an iteration lasts, where the whole iteration lasts until a time; ``None`` for no time."""
        return None if until_s is None else max(until_s - self.iteration_s, 0.0)

    @property
    def stages(self) -> int:
        """Stages of the model."""
        return 1 + max(stage for stage, _ in self.ways)


def listed_ways(frontier: Frontier) -> list[tuple[float, float, object]]:
    """Time, energy and label of each way: all ways of a single choice, of anything else those worth taking."""
    node = frontier.alternatives[0]
    if len(frontier.alternatives) == 1 and isinstance(node, Ways) and len(node.groups.start) == 2:
        labels = range(len(node.time_s)) if node.label is None else node.label
        groups = node.groups
        return list(zip(groups.time_s.tolist(), groups.energy_j.tolist(), labels, strict=True))
    return [(point.time_s, point.energy_j, point.choices) for point in frontier.pareto()]

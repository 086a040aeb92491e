"""A pipeline's profile from what its kernels cost: each instruction of a stage is a sequence of kernels.

A model's layers are alike, so a few dozen kernels measured once give every stage of every partition. Kernels of one
instruction share a setting, or take their own (:mod:`wastenot.pipelines.model.ways`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.pipelines.model.derived import HIDDEN, suited
from wastenot.pipelines.model.errors import KernelErrors, Loadings, ProfileErrors
from wastenot.pipelines.model.kernel_table import KernelTable
from wastenot.pipelines.model.measured_stages import MeasuredStages, measured_stages
from wastenot.pipelines.model.partition import balanced, least_energy_partition
from wastenot.pipelines.model.profile import Fixed, PipelineProfile
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.waiting import waiting_power
from wastenot.pipelines.model.ways import InstructionWays, Settings, ways_of
from wastenot.planning.latency import switching_of
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.planning.switching import SwitchTime
from wastenot.study.store import Source, sweep_of
from wastenot.workloads.communication import LINKS, Link, all_gather_s, all_reduce_s, point_to_point_s
from wastenot.workloads.kernel import DTYPE_BYTES
from wastenot.workloads.models import MODELS, Model
from wastenot.workloads.shape import Shape
from wastenot.workloads.stages import (
    Recomputation,
    StageWork,
    check_partition,
    check_stages,
    layers_of,
    stage_work,
    update_work,
)

PartitionKind = Literal["balanced", "least-energy"]
PARTITIONS: tuple[PartitionKind, ...] = get_args(PartitionKind)
_FP32 = 4  # bytes of a gradient that is summed over replicas


@dataclass(frozen=True, slots=True)
class StageOptions:
    """How a model is cut into stages, how these are run, and what is known of them.

    Attributes:
        partition: layers of each stage; ``balanced`` makes the slowest as fast as can be at the default clocks;
            ``least-energy``, of partitions that are as fast, takes the one whose plan needs least.
        settings: what gets a setting of its own: each instruction (of each micro-batch); or, inside it, each kernel, each
            layer, or stretches as long as the device needs to switch.
        recomputation: of activations: ``none``, ``full`` in the backward, or ``early`` as an instruction of its own.
        split_backward: into ``backward_input`` and ``backward_weight``, for zero-bubble schedules.
        replicas: data-parallel pipelines; their gradients are summed at the end of an iteration.
        waiting_w: power of a GPU while it waits for another one; by default what is known of the device.
        tensor_link: between GPUs that share a stage, one of :data:`wastenot.workloads.communication.LINKS`.
        pipeline_link: between stages and between replicas.
        as_measured: use the numbers as measured, not corrected for noise.
        overlap: of a forward and a backward that run at once, the fraction of the shorter one that takes no time, where it
            was not measured; for ``dualpipe``.
    """

    partition: Sequence[int] | PartitionKind = "balanced"
    settings: Settings = "instruction"
    recomputation: Recomputation = "none"
    split_backward: bool = False
    replicas: int = 1
    waiting_w: float | None = None
    tensor_link: str = "nvlink4"
    pipeline_link: str = "ndr"
    as_measured: bool = False
    overlap: float = HIDDEN

    def run_by(self, schedule: PipelineSchedule) -> StageOptions:
        """The same with the instructions that a schedule has."""
        names = {each.name for each in schedule.instructions}
        early = "recomputation" in names
        return replace(
            self,
            recomputation="early" if early else "none" if self.recomputation == "none" else "full",
            split_backward="backward_input" in names,
        )


def profile_of_workload(
    source: Source | Planner,
    options: StageOptions | None = None,
    *,
    stages: int,
    workload: str | None = None,
    schedule: PipelineSchedule | None = None,
    max_slowdown: float = 0.0,
) -> PipelineProfile:
    """The profile of a pipeline whose stages run a training workload's kernels.

    Where the study knows how noisy its numbers are, they are corrected for noise.

    Args:
        source: what the kernels cost: a study (its file name, URL or the open study), a sweep, or a planner of it.
        options: how they are put together.
        stages: to cut the model into; with virtual stages all of them.
        workload: its name; may be left out where the study holds only one.
        schedule: that the partition of least energy is for.
        max_slowdown: that it is for.

    Raises:
        BadInputError: the workload has no layers, more stages than layers, a bad partition, or an unknown link.
        StudyError: the study cannot be read.
    """
    options = options or StageOptions()
    model, partition = StageModel.of(source, options, workload), options.partition
    if model.measured is not None:
        return model.profile(_as_measured(model.measured, stages, partition, options.recomputation))
    check_stages(stages, model.layers)
    if not isinstance(partition, str):
        return model.profile(check_partition(partition, stages, model.layers))
    check_partition_kind(partition)
    if partition == "balanced":
        return model.profile(model.balanced(stages))
    if schedule is None:
        raise BadInputError("`partition` least-energy: depends on the `schedule`; give one")
    return model.profile(model.least_energy(stages, schedule, max_slowdown))


def check_partition_kind(partition: str) -> None:
    """Refuse what is no way to share out layers.

    Raises:
        BadInputError: it is none.
    """
    if partition not in PARTITIONS:
        raise BadInputError(
            f"`partition` {partition}: {suggestion(partition, PARTITIONS)}, or write the layers of each stage"
        )


@dataclass(frozen=True, eq=False)
class StageModel:
    """What every partition of a model into stages is made from; get one with :meth:`of`.

    Attributes:
        planner: of the sweep.
        table: of its kernels.
        options: how stages are made from them.
        waiting_w: power of a GPU while it waits for another one.
        tensor_link: between GPUs that share a stage.
        pipeline_link: between stages and between replicas.
        switching: how long the device takes to change clocks.
        corrected: whether the numbers are corrected for noise.
        notes: what was assumed.
        measured: the stages, where their instructions were measured as a whole.
    """

    planner: Planner
    table: KernelTable
    options: StageOptions
    waiting_w: float
    tensor_link: Link
    pipeline_link: Link
    switching: SwitchTime
    corrected: bool
    notes: tuple[str, ...]
    measured: MeasuredStages | None = None
    _off_by: dict[object, Loadings] = field(default_factory=dict, init=False, repr=False)
    _made: dict[object, InstructionWays] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, source: Source | Planner, options: StageOptions | None = None, workload: str | None = None) -> StageModel:
        """See :func:`profile_of_workload`."""
        options = options or StageOptions()
        if not isinstance(source, Planner):
            source = Planner(sweep_of(source, workload, None, "kernel"), "kernel")
        planner = source.at("kernel")
        inside, between = _link("tensor_link", options.tensor_link), _link("pipeline_link", options.pipeline_link)
        corrected = planner.errors_known and not options.as_measured
        switching = switching_of(planner.sweep, None, None)
        table = KernelTable.of(planner, corrected=corrected)
        waiting = waiting_power(planner.sweep.device, options.waiting_w)
        links = (f"inside stages: {inside.name}, {inside.source}", f"between stages: {between.name}, {between.source}")
        notes = (f"waiting power: {waiting.watts:.4g} W, {waiting.source}", *links)
        measured = measured_stages(table.kernels)
        if measured is not None and options.settings != "instruction":
            raise BadInputError(
                f"`granularity` {options.settings}: instructions were measured as a whole and take one "
                "setting; measure kernels"
            )
        model = cls(planner, table, options, waiting.watts, inside, between, switching, corrected, notes, measured)
        return model._without_slow_memory()

    # ---- what there is ---------------------------------------------------------------------------------------

    @cached_property
    def layers(self) -> int:
        """Of the model."""
        return layers_of(self.table.kernels) if self.measured is None else sum(self.measured.partition)

    @property
    def model(self) -> Model | None:
        """The model, where the sweep says which it is."""
        run = self.planner.sweep.run
        return None if run is None else MODELS.get(run.model)

    @property
    def shape(self) -> Shape | None:
        """How the model is run, where the sweep says."""
        run = self.planner.sweep.run
        return None if run is None else run.shape

    @property
    def tensor_parallel(self) -> int:
        """GPUs that share a stage."""
        return 1 if self.shape is None else self.shape.tensor_parallel

    # ---- partitions ------------------------------------------------------------------------------------------

    def balanced(self, stages: int) -> tuple[int, ...]:
        """The partition whose slowest stage is fastest at the default clocks."""
        check_stages(stages, self.layers)
        first, each, last = self._stage_times()
        return balanced(self.layers, stages, each, first, last)

    def least_energy(self, stages: int, schedule: PipelineSchedule, max_slowdown: float) -> tuple[int, ...]:
        """The partition whose plan needs least, of those that are as fast."""

        def profile(partition: tuple[int, ...]) -> PipelineProfile:
            return suited(self.profile(partition), schedule, self.options.overlap)

        return least_energy_partition(self.balanced(stages), profile, schedule, max_slowdown=max_slowdown).partition

    def _stage_times(self) -> tuple[float, float, float]:
        """Time for one micro-batch of all instructions: of the embedding, a layer, and head and loss."""
        alone = self._auto_s((1,))
        pair = self._auto_s((0, 1)), self._auto_s((1, 0))
        return alone - pair[0], pair[0] + pair[1] - alone, alone - pair[1]

    def _auto_s(self, partition: tuple[int, ...]) -> float:
        """Time at auto of the stage of a partition that has one layer."""
        stage = partition.index(1)
        return sum(self._baseline(each)[0] for (at, _), each in self._work(partition).items() if at == stage)

    def _work(self, partition: Sequence[int]) -> Mapping[tuple[int, str], StageWork]:
        if self.measured is not None:
            return self.measured.work
        return stage_work(
            self.table.kernels,
            partition,
            recomputation=self.options.recomputation,
            split_backward=self.options.split_backward,
        )

    # ---- profiles --------------------------------------------------------------------------------------------

    def profile(self, partition: Sequence[int]) -> PipelineProfile:
        """The profile of a partition, which must be one of this model."""
        work = self._work(partition)
        sweep = self.planner.sweep
        written = ", ".join(map(str, partition))
        return PipelineProfile(
            name=sweep.workload if self.model is None else self.model.name,
            device=sweep.device,
            origin=sweep.origin,
            ways={key: self._ways(each).frontier for key, each in work.items()},
            baseline={key: self._at_auto(each) for key, each in work.items()},
            waiting_w=self.waiting_w,
            gpus_per_stage=self.tensor_parallel,
            replicas=self.options.replicas,
            fixed=self._fixed(partition),
            recomputes=self.options.recomputation == "full" if self.measured is None else self.measured.recomputes,
            notes=(f"layers by stage: {written}", *self.notes),
            baseline_clocks="auto",
            errors=self._errors(work),
            switching=self.switching,
        )

    def _ways(self, work: StageWork, settings: Settings | None = None) -> InstructionWays:
        settings = settings or self.options.settings
        key = work.loops, work.layers, settings
        if key not in self._made:
            fixed_s = work.layers * self.collectives_s
            self._made[key] = ways_of(self.table, work, settings, fixed_s, self.waiting_w, self.switching)
        return self._made[key]

    def _errors(self, work: Mapping[tuple[int, str], StageWork]) -> ProfileErrors | None:
        if self._kernel_errors is None:
            return None
        ways: dict[tuple[int, str], Loadings] = {}
        for key, each in work.items():
            made = each.loops, each.layers
            if made not in self._off_by:
                self._off_by[made] = self._kernel_errors.of_ways(self._ways(each))
            ways[key] = self._off_by[made]
        return ProfileErrors(ways, {key: each.at(0) for key, each in ways.items()})

    @cached_property
    def _kernel_errors(self) -> KernelErrors | None:
        if not self.corrected:
            return None
        whole_s = float(self.planner.believed.baseline_time_s)
        too_low = self.planner.optimism(Objective("waste", 0.0)).time_s / whole_s
        # Where every kernel chooses, those on the critical path are chosen for their speed: all of that luck is expected.
        return KernelErrors.of(self.planner, self.table, too_low, 0.5 if self.options.settings == "instruction" else 1.0)

    def _baseline(self, work: StageWork) -> tuple[float, float]:
        """Time and energy at auto: the first way of each instruction, whatever gets settings of its own."""
        ways = self._ways(work, "instruction")
        return float(ways.time_s[0]), float(ways.energy_j[0])

    def _at_auto(self, work: StageWork) -> tuple[float, float]:
        """Of the way at auto, to its last digit: a deadline may be just the time that all of them take."""
        made = self._ways(work)
        return (float(made.time_s[0]), float(made.energy_j[0])) if not made.setting_at(0).any() else self._baseline(work)

    def _fixed(self, partition: Sequence[int]) -> Mapping[tuple[int, str], Fixed]:
        fixed: dict[tuple[int, str], Fixed] = {}
        if receive_s := self._receive_s():
            fixed |= {(stage, "receive"): Fixed(receive_s) for stage in range(len(partition))}
        updates = update_work(self.table.kernels, partition) if self.measured is None else self.measured.update
        for stage, work in enumerate(updates):
            if work.loops:
                fixed[stage, "optimizer"] = Fixed(*self._baseline(work))
        if self.options.replicas > 1 and self.model is not None:
            for stage, layers in enumerate(partition):
                parameters = layers * self.model.layer_parameters(self.tensor_parallel)
                if stage in (0, len(partition) - 1):
                    parameters += self.model.vocabulary * self.model.width // self.tensor_parallel
                fixed[stage, "all_reduce"] = Fixed(
                    all_reduce_s(self.pipeline_link, _FP32 * parameters, self.options.replicas)
                )
        return fixed

    # ---- communication ---------------------------------------------------------------------------------------

    @property
    def _activation_bytes(self) -> float:
        """Of a micro-batch between two layers."""
        if self.model is None or self.shape is None:
            return 0.0
        return float(self.shape.rows * self.model.width * DTYPE_BYTES[self.shape.dtype])

    @cached_property
    def collectives_s(self) -> float:
        """Of a layer's forward, or its backward: two all-reduces, after attention and after the feed-forward part.

        With sequence parallelism each is a reduce-scatter and an all-gather, which take as long (Korthikanti et al. 2022).
        """
        degree = self.tensor_parallel
        return 4.0 * all_gather_s(self.tensor_link, self._activation_bytes, degree) if degree > 1 else 0.0

    def _receive_s(self) -> float:
        """Each of the GPUs that share a stage gets its part of the activations, and is kept by that.

        NCCL's receive keeps its own rank, also where the data came long ago: two H200s took 0.16 ms for 50 MB
        (docs/h200.md), where NVLink alone takes 0.12 ms.
        """
        size = self._activation_bytes / self.tensor_parallel
        return point_to_point_s(self.pipeline_link, size) if size else 0.0

    # ---- what a driver can do --------------------------------------------------------------------------------

    def _without_slow_memory(self) -> StageModel:
        """Without memory clocks of their own where those take longer to change than an instruction lasts."""
        longest_s = max(self._baseline(each)[0] for each in self._work((self.layers,)).values())
        longest_s /= self.layers if self.measured is None else 1
        own = [each.memory_mhz is None for each in self.table.settings]
        if all(own) or self.switching.memory_s <= longest_s:
            return self
        note = (
            f"memory clocks stay at the default: they take {self.switching.memory_s:g} s to change "
            f"({self.switching.basis}), and instructions take less"
        )
        return replace(self, table=self.table.only(own), notes=(*self.notes, note))


def _as_measured(
    measured: MeasuredStages, stages: int, partition: Sequence[int] | str, recomputation: Recomputation
) -> tuple[int, ...]:
    """The partition that was measured; refuses another one."""
    written = ",".join(map(str, measured.partition))
    if stages != len(measured.partition):
        raise BadInputError(f"`stages` {stages}: instructions of {len(measured.partition)} stages were measured ({written})")
    if not isinstance(partition, str) and tuple(partition) != measured.partition:
        asked = ",".join(map(str, partition))
        raise BadInputError(f"`partition` {asked}: instructions of {written} layers were measured; leave it out")
    if (recomputation == "full") != measured.recomputes:
        how = "with" if measured.recomputes else "without"
        raise BadInputError(f"`recomputation` {recomputation}: the backward was measured {how} full recomputation")
    return measured.partition


def _link(argument: str, name: str) -> Link:
    if name not in LINKS:
        raise BadInputError(f"`{argument}` {name}: unknown; {suggestion(name, LINKS)}")
    return LINKS[name]

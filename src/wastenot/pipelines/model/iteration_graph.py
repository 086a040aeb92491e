"""The graph of a pipeline's iteration: a schedule's instructions with a profile's ways, and the fixed work around them.

rank 0  |load|F0|load|F1|            |receive|B0|         |receive|B1|all-reduce|optimizer|
rank 1         |receive|F0|B0|receive|F1|B1|all-reduce|optimizer|
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.core.wording import counted
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.pipelines.model.profile import Fixed, PipelineProfile
from wastenot.pipelines.model.schedule import NAMES, Instruction, PipelineSchedule

_BACKWARDS = ("backward", "backward_input", "backward_weight")
_LEAST_J = 1e-30  # a way has some energy
ONCE = -1  # micro-batch of what is done once in an iteration


def pipeline_graph(schedule: PipelineSchedule, profile: PipelineProfile) -> Graph:
    """The graph whose parts are those of :func:`pipeline_parts`, and whose workers are the schedule's ranks.

    Energies are of one GPU of each rank; its others, replicas included, are alike.

    Raises:
        BadInputError: the profile has not the schedule's stages, lacks one of its instructions or has a bad number, or the
            schedule deadlocks.
    """
    return _built(schedule, profile).graph()


def baseline_of(schedule: PipelineSchedule, profile: PipelineProfile) -> GraphPlan:
    """Every instruction as :attr:`PipelineProfile.baseline` has it, in a graph with the same parts; waits for nobody."""
    only = {key: choice([(*profile.baseline[key], AUTO)]) for key in profile.ways}
    return pipeline_graph(schedule, replace(profile, ways=only, errors=None)).least_time()


def pipeline_parts(schedule: PipelineSchedule, profile: PipelineProfile) -> tuple[tuple[int, Instruction], ...]:
    """The rank and the instruction of each part: the schedule's instructions as they are, then the profile's fixed work.

    Fixed work (see :attr:`PipelineProfile.fixed`) has one way only. A ``send`` or ``receive`` that draws no more than
    waiting does is no part of its own: the instruction starts so much later.
    """
    return tuple(_built(schedule, profile).parts)


@dataclass(slots=True)
class _Parts:
    """A graph as it grows: parts, the kind of each, and edges with delays."""

    profile: PipelineProfile
    parts: list[tuple[int, Instruction]]
    kind: list[int]
    kinds: list[Frontier]
    place: dict[tuple[int, str], int]
    pairs: list[tuple[int, int, float]] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)  # parts that keep no worker busy

    def fixed(self, stage: int, name: str) -> Fixed | None:
        """Work that takes time; nothing otherwise."""
        found = self.profile.fixed.get((stage, name))
        return found if found is not None and found.time_s > 0.0 else None

    def add(self, rank: int, name: str, stage: int, micro_batch: int, way: Fixed) -> int:
        energy_j = max(self.profile.waiting_w * way.time_s if way.energy_j is None else way.energy_j, _LEAST_J)
        key = stage, name
        if key not in self.place:
            self.place[key] = len(self.kinds)
            self.kinds.append(choice([(way.time_s, energy_j, name)]))
        self.parts.append((rank, Instruction(name, stage, micro_batch)))
        self.kind.append(self.place[key])
        return len(self.parts) - 1

    def graph(self) -> Graph:
        rank = np.array([rank for rank, _ in self.parts], dtype=np.intp)
        worker = rank.copy()
        worker[self.idle] = -1
        return Graph(
            self.kinds,
            np.array(self.kind, dtype=np.intp),
            np.array([pair[:2] for pair in self.pairs], dtype=np.intp).reshape(-1, 2),
            delay_s=np.array([pair[2] for pair in self.pairs]),
            worker=worker,
            waiting_w=np.full(1 + int(rank.max()), self.profile.waiting_w),
        )


def _built(schedule: PipelineSchedule, profile: PipelineProfile) -> _Parts:
    edges, rank = schedule.edges(), schedule.rank.tolist()
    instructions = schedule.instructions
    _refuse_misfit(schedule, profile)
    run = {(each.stage, each.name) for each in instructions}
    kinds = [key for key in profile.ways if key in run]
    place = {key: index for index, key in enumerate(kinds)}
    built = _Parts(
        profile,
        list(zip(rank, instructions, strict=True)),
        [place[each.stage, each.name] for each in instructions],
        [profile.ways[key] for key in kinds],
        place,
    )
    between = [(a, b) for a, b in edges.tolist() if rank[a] != rank[b]]
    on_rank = [(a, b) for a, b in edges.tolist() if rank[a] == rank[b]]
    # Where the order of the rank, and data from another one, enter an instruction and leave it.
    first, data, last = ({at: at for at in range(len(instructions))} for _ in range(3))
    into, out = dict.fromkeys(first, 0.0), dict.fromkeys(first, 0.0)

    receives = [(at, each) for earlier, at in between for each in _shared(instructions[at], instructions[earlier])]
    for at, each in receives:
        if receive := built.fixed(each.stage, "receive"):
            if receive.energy_j is None:
                into[at] += receive.time_s
            else:
                part = built.add(rank[at], "receive", each.stage, each.micro_batch, receive)
                built.pairs.append((part, first[at], 0.0))
                first[at] = data[at] = part
    for at, each in enumerate(instructions):
        if each.passes[0].name == "forward" and (load := built.fixed(each.stage, "load")):
            begin = built.add(rank[at], "load", each.stage, each.micro_batch, load)
            built.pairs.append((begin, first[at], into[at]))
            first[at] = begin
    sends = [(at, each) for at, later in between for each in _shared(instructions[at], instructions[later])]
    for at, each in sends:
        if send := built.fixed(each.stage, "send"):
            if send.energy_j is None:
                out[at] += send.time_s
            else:
                part = built.add(rank[at], "send", each.stage, each.micro_batch, send)
                built.pairs.append((last[at], part, 0.0))
                last[at] = part
    for a, b in on_rank:
        built.pairs.append((last[a], first[b], out[a] + (into[b] if first[b] == b else 0.0)))
    for a, b in between:
        built.pairs.append((last[a], data[b], profile.transfer_s + out[a] + (into[b] if data[b] == b else 0.0)))
    _add_ends(built, schedule, last, out)
    return built


def _shared(each: Instruction, other: Instruction) -> list[Instruction]:
    """Which of an instruction's passes have data to do with another instruction: those of its micro-batches."""
    return [one for one in each.passes if one.micro_batch in {passed.micro_batch for passed in other.passes}]


def _add_ends(built: _Parts, schedule: PipelineSchedule, last: dict[int, int], out: dict[int, float]) -> None:
    """What each rank does after its last instruction."""
    end = -1
    for rank, instructions in enumerate(schedule.ranks):
        begin, end = end + 1, end + len(instructions)
        tail, delay = last[end], out[end]
        backwards = {
            one.stage: begin + at for at, each in enumerate(instructions) for one in each.passes if one.name in _BACKWARDS
        }
        beside: list[int] = []
        for stage, backward in sorted(backwards.items()):
            if not (reduce := built.fixed(stage, "all_reduce")):
                continue
            into = [(a, delay_s) for a, b, delay_s in built.pairs if b == backward] if reduce.overlapped else []
            part = built.add(rank, "all_reduce", stage, ONCE, reduce)
            if reduce.overlapped:
                built.idle.append(part)
                built.pairs += [(a, part, delay_s) for a, delay_s in into]
                beside.append(part)
            else:
                built.pairs.append((tail, part, delay))
                tail, delay = part, 0.0
        for stage in sorted(backwards):
            if optimizer := built.fixed(stage, "optimizer"):
                part = built.add(rank, "optimizer", stage, ONCE, optimizer)
                built.pairs += [(tail, part, delay), *((each, part, 0.0) for each in beside)]
                tail, delay, beside = part, 0.0, []


def _refuse_misfit(schedule: PipelineSchedule, profile: PipelineProfile) -> None:
    if schedule.stages != profile.stages:
        raise BadInputError(
            f"schedule {schedule.name} has {counted(schedule.stages, 'stage')} on {counted(len(schedule.ranks), 'rank')}, "
            f"profile {profile.name} {counted(profile.stages, 'stage')}; both must have as many"
        )
    missing = {(each.stage, each.name) for each in schedule.instructions} - set(profile.ways)
    if missing:
        stage, name = min(missing, key=lambda key: (key[0], NAMES.index(key[1])))
        raise BadInputError(f"profile {profile.name}: lacks {name} of stage {stage}, which schedule {schedule.name} runs")

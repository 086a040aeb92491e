"""Instructions of stages that were measured as a whole, and what a study calls them.

Kernels add up to an instruction as long as the power limit leaves them alone. Near it they do not: a heavy kernel by itself
is throttled, where between lighter ones it is not, and whole instructions of large models run 2 to 4 % faster than the sum
of their kernels. So what takes one setting is better measured as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wastenot.core.wording import counted
from wastenot.workloads.order import StepLoop
from wastenot.workloads.stages import Placed, StageWork

_NAME = re.compile(r"(\w+) of stages? ([\d,-]+), (\d+) layers?")


def measured_name(instruction: str, stages: Sequence[int], layers: int) -> str:
    """What a study calls an instruction that some stages run alike.

    Args:
        instruction: such as ``forward``; ``optimizer`` for the update of a stage's parameters.
        stages: that run it, rising.
        layers: of each.
    """
    runs: list[list[int]] = []
    for stage in stages:
        if runs and stage == runs[-1][-1] + 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    listed = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"{instruction} of stage{'s' if len(stages) > 1 else ''} {listed}, {counted(layers, 'layer')}"


@dataclass(frozen=True, slots=True)
class MeasuredStages:
    """Stages whose instructions were measured as a whole.

    Attributes:
        partition: layers of each stage.
        work: by (stage, instruction), which measurement it is.
        update: the optimizer of each stage; empty where there is none.
        recomputes: whether the backward runs the forward again first.
    """

    partition: tuple[int, ...]
    work: Mapping[tuple[int, str], StageWork]
    update: tuple[StageWork, ...]
    recomputes: bool


def measured_stages(kernels: Sequence[Placed]) -> MeasuredStages | None:
    """The stages that a study's kernels are instructions of; ``None`` where they are kernels."""
    found = [_NAME.fullmatch(kernel.name) for kernel in kernels]
    layers: dict[int, int] = {}
    work: dict[tuple[int, str], StageWork] = {}
    update: dict[int, StageWork] = {}
    for index, match in enumerate(found):
        if match is None:
            return None
        passed = int(match[3])
        for stage in _stages(match[2]):
            own = StageWork((StepLoop((index,), 1),), 0 if match[1] in ("optimizer", "backward_weight") else passed)
            if match[1] == "optimizer":
                update[stage] = own
                continue
            work[stage, match[1]] = own
            if match[1] == "forward":
                layers[stage] = passed
    partition = tuple(layers[stage] for stage in sorted(layers))
    nothing = StageWork((), 0)
    recomputes = any(
        layers[stage] and each.layers == 2 * layers[stage] and name in ("backward", "backward_input")
        for (stage, name), each in work.items()
    )
    return MeasuredStages(partition, work, tuple(update.get(stage, nothing) for stage in sorted(layers)), recomputes)


def _stages(listed: str) -> list[int]:
    found: list[int] = []
    for run in listed.split(","):
        first, _, last = run.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found

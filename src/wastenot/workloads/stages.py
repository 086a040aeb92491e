"""A model cut into pipeline stages: which kernels each instruction of a stage runs, in which order.

    stage 0                 stages between        last stage
    embedding, layers       layers                layers, output layer and loss

A training workload's kernels say by pass and block what they belong to; nothing else of the model is needed, so a study of
them will do. A stage runs its share of the layers, as often as it has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.workloads.order import Ordered, StepLoop

Recomputation = Literal["none", "full", "early"]
"""Whether activations are kept, computed again by the backward, or by an instruction of their own before it."""


class Placed(Ordered, Protocol):
    """A kernel of a workload, as far as stages go by it."""

    @property
    def name(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class StageWork:
    """What one instruction of a stage runs for one micro-batch.

    Attributes:
        loops: of kernels, as indices into the workload's, in order of execution.
        layers: transformer layers that it goes through, forward and backward counted apart.
    """

    loops: tuple[StepLoop, ...]
    layers: int

    @property
    def order(self) -> tuple[int, ...]:
        """Indices of the kernels in the order they run."""
        return tuple(member for loop in self.loops for member in loop.members * loop.times)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The kernels of a training iteration by what they are for, as indices."""

    embedding: tuple[int, ...]
    forward: tuple[int, ...]
    loss: tuple[int, ...]
    loss_backward: tuple[int, ...]
    backward: tuple[int, ...]
    embedding_backward: tuple[int, ...]
    layer_update: tuple[int, ...]
    outer_update: tuple[int, ...]


def layers_of(kernels: Sequence[Placed]) -> int:
    """How many layers a training workload has.

    Raises:
        BadInputError: its kernels do not say which of them are a layer's, forward and backward.
    """
    counts = {kernel.count for kernel in kernels if kernel.block == "layer"}
    passes = {kernel.pass_name for kernel in kernels if kernel.block == "layer"}
    if len(counts) != 1 or not passes >= {"forward", "backward"}:
        raise BadInputError(
            "`workload`: a pipeline's stages are made of a training workload's layers, kernels with block 'layer' in the "
            "passes forward and backward that run equally often, but it has none; use a model such as gpt3-xl"
        )
    return counts.pop()


def check_partition(partition: Sequence[int], stages: int, layers: int) -> tuple[int, ...]:
    """A partition that was given: the layers of each stage.

    Raises:
        BadInputError: it does not cut that many layers into that many stages.
    """
    written = ",".join(map(str, partition))
    if len(partition) != stages:
        raise BadInputError(f"`partition` {written}: has {counted(len(partition), 'stage')}, but there are {stages}")
    if any(each < 0 for each in partition) or not all(partition[1:-1]):
        raise BadInputError(f"`partition` {written}: only the first and the last stage can have no layers")
    if sum(partition) != layers:
        raise BadInputError(f"`partition` {written}: has {sum(partition)} layers, but the model has {layers}")
    return tuple(int(each) for each in partition)


def check_stages(stages: int, layers: int) -> None:
    """Refuse, by a BadInputError, a number of stages that is not positive, or above the layers."""
    if not 1 <= stages <= layers:
        raise BadInputError(f"`stages` {stages}: must be from 1 to {layers}, since the model has {counted(layers, 'layer')}")


def stage_work(
    kernels: Sequence[Placed],
    partition: Sequence[int],
    *,
    recomputation: Recomputation = "none",
    split_backward: bool = False,
) -> Mapping[tuple[int, str], StageWork]:
    """What each instruction of each stage runs.

    Args:
        kernels: of a training workload, in order of execution.
        partition: layers of each stage.
        recomputation: ``full``: the backward runs each layer's forward again; ``early``: the instruction
            ``recomputation`` does, before it.
        split_backward: the backward is two instructions, ``backward_input`` and ``backward_weight``: what the stage before
            waits for, and gradients of parameters, which can wait (zero-bubble schedules).

    Returns:
        By (stage, instruction): ``forward``; ``backward``, or its two parts; ``recomputation`` where it is one.
    """
    parts = _parts_of(kernels)
    last = len(partition) - 1
    work: dict[tuple[int, str], StageWork] = {}
    for stage, layers in enumerate(partition):
        embedding, embedding_backward = (parts.embedding, parts.embedding_backward) if stage == 0 else ((), ())
        loss, loss_backward = (parts.loss, parts.loss_backward) if stage == last else ((), ())
        again = parts.forward if recomputation == "full" else ()
        backward = tuple(
            each for each in parts.backward if recomputation == "none" or not kernels[each].name.endswith("_again")
        )
        work[stage, "forward"] = _work((embedding, 1), (parts.forward, layers), (loss, 1), layers=layers)
        if recomputation == "early":
            work[stage, "recomputation"] = _work((parts.forward, layers), layers=layers)
        passed = layers * (2 if again else 1)
        if not split_backward:
            work[stage, "backward"] = _work(
                (loss_backward, 1), ((*again, *backward), layers), (embedding_backward, 1), layers=passed
            )
            continue
        weight, inner = ([each for each in backward if _of_weights(kernels[each].name) == is_] for is_ in (True, False))
        loss_weight, loss_inner = (
            [each for each in loss_backward if _of_weights(kernels[each].name) == is_] for is_ in (True, False)
        )
        work[stage, "backward_input"] = _work((loss_inner, 1), ((*again, *inner), layers), layers=passed)
        work[stage, "backward_weight"] = _work((loss_weight, 1), (weight, layers), (embedding_backward, 1), layers=0)
    return {key: each for key, each in work.items() if each.loops}


def update_work(kernels: Sequence[Placed], partition: Sequence[int]) -> tuple[StageWork, ...]:
    """The optimizer of each stage's parameters, once an iteration; empty where the workload has none.

    Tables of tokens are updated where they are: in the first stage and, being the output layer too, in the last.
    """
    parts = _parts_of(kernels)
    last = len(partition) - 1
    return tuple(
        _work((parts.layer_update, layers), (parts.outer_update if stage in (0, last) else (), 1), layers=0)
        for stage, layers in enumerate(partition)
    )


def _work(*loops: tuple[Sequence[int], int], layers: int) -> StageWork:
    return StageWork(tuple(StepLoop(tuple(members), times) for members, times in loops if members and times), layers)


def _parts_of(kernels: Sequence[Placed]) -> _Parts:
    layers_of(kernels)

    def those(pass_name: str, block: str | None) -> tuple[int, ...]:
        return tuple(index for index, each in enumerate(kernels) if each.pass_name == pass_name and each.block == block)

    loss = those("loss", None)
    words = ("dinput", "dweight", "dbias", "backward")
    gradients = tuple(each for each in loss if any(word in kernels[each].name for word in words))
    return _Parts(
        those("embedding", None),
        those("forward", "layer"),
        tuple(each for each in loss if each not in gradients),
        gradients,
        those("backward", "layer"),
        those("embedding_backward", None),
        those("optimizer", "layer_update"),
        those("optimizer", None),
    )


def _of_weights(name: str) -> bool:
    """Whether a backward kernel only makes gradients of parameters; norms make both, and stay with the inputs."""
    return any(word in name for word in ("dweight", "dbias"))

"""The kernels that an engine's steps are made of, and shapes of them from which steps of any size can be put together.

    embedding, norms, linear layers      by the tokens of a step
    output layer                         by the sequences that get a token
    attention, one new token each        by sequences, and tokens in the cache of each
    attention of prompts                 by new tokens, and tokens in the cache before them

Products and the attention of prompts cost whole tiles of the GPU: one row more than a tile holds takes as long as the next
tile full. So they are measured on both sides of the edges of tiles, and what lies between is on a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wastenot.core.errors import BadInputError
from wastenot.workloads.build import build_workload
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.named import find_model
from wastenot.workloads.parts import Parts

Size = Literal["tokens", "sequences", "decode", "prefill"]
"""What decides the size of a kernel; see the module."""

_TILES = 64, 128, 192, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384
_FEW = 1, 16, 32
_SMOOTH = 1, 16, 64, 256, 1024, 2048, 4096, 8192, 16_384  # tokens of kernels without tiles
_SEQUENCES = 1, 2, 4, 8, 16, 32, 64, 128, 192, 256
_CONTEXTS = 1, 128, 512, 1024, 2048, 4096, 8192, 16_384
_PROMPTS = 1, 16, 64, 65, 128, 129, 256, 257, 384, 385, 512, 513, 1024, 1025, 2048, 4096, 8192, 16_384
_PAST = 0, 512, 2048, 8192, 16_384
_NAME = re.compile(
    r"(?P<part>\w+) of (?P<first>\d+) (?P<what>tokens|sequences|new tokens)(?:, (?P<second>\d+) in the cache)?"
)


@dataclass(frozen=True, slots=True)
class StepShapes:
    """Shapes to measure kernels of steps at; steps can be put together up to the largest of them.

    Attributes:
        product_tokens: tokens of a step, for products.
        smooth_tokens: the same for other kernels.
        sequences: of decode steps.
        context: tokens in the cache of each.
        prompt_tokens: new tokens, for the attention of prompts.
        past_tokens: tokens in the cache before them; the first is 0.
    """

    product_tokens: tuple[int, ...]
    smooth_tokens: tuple[int, ...]
    sequences: tuple[int, ...]
    context: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    past_tokens: tuple[int, ...]

    @classmethod
    def up_to(cls, tokens: int = 16_384, batch: int = 256, context: int = 16_384) -> StepShapes:
        """Shapes for steps of a number of tokens, or of a number of sequences with a number of tokens each in the cache.

        Raises:
            BadInputError: one is below 1, or the batch above the tokens of a step.
        """
        for name, value in (("tokens", tokens), ("batch", batch), ("context", context)):
            if value < 1:
                raise BadInputError(f"`{name}` {value}: must be at least 1")
        if batch > tokens:
            raise BadInputError(f"`batch` {batch}: must not be above the {tokens} tokens of the largest step")
        edges = sorted({each for tile in _TILES for each in (tile, tile + 1)})
        return cls(
            _within((*_FEW, *edges), tokens),
            _within(_SMOOTH, tokens),
            _within((*_SEQUENCES, *(each for each in edges if each < _SEQUENCES[-1])), batch),
            _within(_CONTEXTS, context),
            _within(_PROMPTS, tokens),
            _within(_PAST, context),
        )


@dataclass(frozen=True, slots=True)
class StepPart:
    """A kernel of steps at one shape.

    Attributes:
        name: of the kernel in its workload, such as ``qkv_gemm``.
        size: what decides its size.
        at: the tokens, or the sequences, or the pair.
        count: how often a step runs it.
    """

    name: str
    size: Size
    at: tuple[int, ...]
    count: int

    @property
    def called(self) -> str:
        """What a study calls it."""
        what = {"tokens": "tokens", "sequences": "sequences", "decode": "sequences", "prefill": "new tokens"}[self.size]
        second = f", {self.at[1]} in the cache" if len(self.at) > 1 else ""
        return f"{self.name} of {self.at[0]} {what}{second}"


def part_of(called: str, count: int) -> StepPart | None:
    """The part that a study calls so; ``None`` where it is none.

    Args:
        called: its name in the study.
        count: how often a step runs it.
    """
    match = _NAME.fullmatch(called)
    if match is None or (match["what"] == "new tokens") > (match["second"] is not None):
        return None
    if match["second"] is None:
        own: Size = "tokens" if match["what"] == "tokens" else "sequences"
        return StepPart(match["part"], own, (int(match["first"]),), count)
    size: Size = "prefill" if match["what"] == "new tokens" else "decode"
    return StepPart(match["part"], size, (int(match["first"]), int(match["second"])), count)


def step_parts(model: str, shapes: StepShapes, *, degree: int = 1, dtype: str = "bf16") -> list[tuple[StepPart, KernelSpec]]:
    """The kernels of a model's steps at all shapes, on one GPU of a tensor-parallel group.

    Args:
        model: such as ``llama-8b``.
        shapes: to make them at.
        degree: of tensor parallelism.
        dtype: of activations and weights.

    Raises:
        BadInputError: there is no such model, or it cannot be run so.
    """

    def kernels(batch: int, sequence: int) -> dict[str, KernelSpec]:
        workload = build_workload(
            model, phase="decode", batch=batch, sequence=sequence,
            tensor_parallel=degree, dtype=dtype, attention="flash",
        )  # fmt: skip
        return {kernel.name: replace(kernel, place=0) for kernel in workload.kernels}

    found: list[tuple[StepPart, KernelSpec]] = []

    def put(kernel: KernelSpec, size: Size, *at: int) -> None:
        found.append((StepPart(kernel.name, size, at, kernel.count), kernel))

    for tokens in sorted({*shapes.product_tokens, *shapes.smooth_tokens}):
        for kernel in kernels(tokens, 1).values():
            wanted = shapes.product_tokens if kernel.op == "gemm" else shapes.smooth_tokens
            if kernel.op != "attention" and kernel.pass_name != "head" and tokens in wanted:
                put(kernel, "tokens", tokens)
    for sequences in shapes.sequences:
        for kernel in kernels(sequences, 1).values():
            if kernel.pass_name == "head":
                put(kernel, "sequences", sequences)
        if sequences in _SEQUENCES or sequences == shapes.sequences[-1]:
            for context in shapes.context:
                put(_attention(kernels(sequences, context)), "decode", sequences, context)
    one = _attention(kernels(1, 1))
    sizes = find_model(model)
    for new in shapes.prompt_tokens:
        for past in shapes.past_tokens:
            keys = new + past
            work = Parts.of(dtype).attention(
                sizes.heads // degree, sizes.groups // degree, new, keys, sizes.head_width, used=(past + 0.5 * new) / keys
            )
            placed = work.placed(one.name, one.label, one.pass_name, one.block, one.count)
            put(replace(placed, element_bytes=one.element_bytes), "prefill", new, past)
    return found


def _attention(kernels: dict[str, KernelSpec]) -> KernelSpec:
    return next(each for each in kernels.values() if each.op == "attention")


def _within(knots: Sequence[int], most: int) -> tuple[int, ...]:
    return tuple(sorted({each for each in knots if each < most} | {most}))

"""How a model is run: phase, batch, sequence, parallelism, data type; and what divides by what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from numbers import Integral
from typing import Any, Literal, TypedDict, get_args

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.workloads.kernel import DTYPE_BYTES
from wastenot.workloads.models import Model

Phase = Literal["training", "prefill", "decode"]
Attention = Literal["unfused", "flash", "cudnn", "efficient"]
Optimizer = Literal["none", "adamw"]

PHASES: tuple[Phase, ...] = get_args(Phase)
ATTENTIONS: tuple[Attention, ...] = get_args(Attention)
_CHOICES: dict[str, tuple[str, ...]] = {
    "phase": PHASES,
    "dtype": tuple(DTYPE_BYTES),
    "attention": ATTENTIONS,
    "optimizer": get_args(Optimizer),
}

_MOST = 2**24  # of a size; beyond lies a slip of the keyboard, and numbers that no float holds


@dataclass(frozen=True, slots=True)
class Shape:
    """How a model is run on one GPU of a tensor-parallel group.

    Attributes:
        phase: a training iteration, the prefill of prompts, or one decoding step.
        batch: sequences at once on the group.
        sequence: tokens of each; in decoding those attended to, which the key-value cache holds.
        tensor_parallel: GPUs that share each matrix product.
        sequence_parallel: whether these GPUs also share what tensor parallelism leaves whole (norms, residuals,
            embedding, loss), along the sequence (Megatron-LM).
        dtype: of activations and weights.
        attention: ``unfused``, scores in memory, as in the paper; or one kernel: ``flash`` (FlashAttention-2), ``cudnn``
            (what PyTorch takes by itself on Hopper) or ``efficient`` (memory-efficient attention).
        optimizer: whether a training iteration ends with an optimizer pass.
    """

    phase: Phase = "training"
    batch: int = 40
    sequence: int = 1024
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    dtype: str = "bf16"
    attention: Attention = "unfused"
    optimizer: Optimizer = "none"

    def check(self, model: Model) -> None:
        """Refuse a shape that the model cannot be run in.

        Raises:
            BadInputError: a word that is not one of the choices, a size that is not a positive whole number, or one
                that does not divide as it must.
        """
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise BadInputError(f"`{name}` '{value}': {suggestion(value, choices)}")
        for name in ("batch", "sequence", "tensor_parallel"):
            _check_size(name, getattr(self, name))
        if self.optimizer != "none" and self.phase != "training":
            raise BadInputError(f"`optimizer` {self.optimizer}: is for training only, not for {self.phase}")
        self._check_tensor_parallel(model)
        if self.sequence_parallel:
            self._check_sequence_parallel()

    def _check_tensor_parallel(self, model: Model) -> None:
        degree = self.tensor_parallel
        for what, size in (
            ("heads", model.heads),
            ("key-value heads", model.groups),
            ("columns of the feed-forward layer", model.hidden),
        ):
            if size % degree:
                allowed = tensor_parallel_degrees(model)
                nearest = min(allowed, key=lambda each: abs(each - degree))
                raise BadInputError(
                    f"`tensor_parallel` {degree}: does not divide {model.name}'s {size:,} {what}; "
                    f"the nearest that does is {nearest}. There are: {', '.join(map(str, allowed))}"
                )

    def _check_sequence_parallel(self) -> None:
        degree = self.tensor_parallel
        if degree == 1:
            raise BadInputError("`sequence_parallel`: needs `tensor_parallel` of at least 2")
        name, size = ("batch", self.batch) if self.phase == "decode" else ("sequence", self.sequence)
        if size % degree:
            raise BadInputError(f"`sequence_parallel`: `{name}` {size:,} is not divisible by `tensor_parallel` {degree}")

    @property
    def rows(self) -> int:
        """Tokens that go through the model at once."""
        return self.batch if self.phase == "decode" else self.batch * self.sequence


class ShapeOptions(TypedDict, total=False):
    """The fields of :class:`Shape`, each of which may be left out."""

    phase: Phase
    batch: int
    sequence: int
    tensor_parallel: int
    sequence_parallel: bool
    dtype: str
    attention: Attention
    optimizer: Optimizer


def check_options(given: Mapping[str, object], *, settled: str | None = None) -> None:
    """Refuse options of a shape that do not exist, or that say what is said already.

    Args:
        given: by name.
        settled: what the shape is known from; ``None`` where the options decide it.

    Raises:
        BadInputError: names the first.
    """
    for name in given:
        if name not in ShapeOptions.__annotations__:
            raise BadInputError(f"`{name}`: there is no such argument; {suggestion(name, ShapeOptions.__annotations__)}")
        if settled is not None:
            raise BadInputError(f"`{name}`: has no effect on {settled}; leave it out")


def default_batch(phase: Phase) -> int:
    """Sequences at once unless said otherwise: the paper's 40 in training, common serving sizes elsewhere."""
    return {"training": 40, "prefill": 4, "decode": 64}.get(phase, 40)


def tensor_parallel_degrees(model: Model) -> tuple[int, ...]:
    """Degrees by which a model can be split."""
    common = gcd(model.heads, model.groups, model.hidden)
    return tuple(degree for degree in range(1, common + 1) if common % degree == 0)


def name_of(model: Model, shape: Shape) -> str:
    """A name that says how a model is run, leaving out what is the default for its phase."""
    default = Shape(phase=shape.phase, batch=default_batch(shape.phase))
    parts = [model.name]
    if shape.phase != "training":
        parts.append(shape.phase)
    if shape.batch != default.batch:
        parts.append(f"batch{shape.batch}")
    if shape.sequence != default.sequence:
        parts.append(f"seq{shape.sequence}")
    if shape.tensor_parallel > 1:
        parts.append(f"tp{shape.tensor_parallel}" + ("sp" if shape.sequence_parallel else ""))
    choices = ("dtype", "attention", "optimizer")
    parts += [getattr(shape, name) for name in choices if getattr(shape, name) != getattr(default, name)]
    return "-".join(parts)


def parse_name(name: str) -> tuple[str, Shape]:
    """The model and the shape that :func:`name_of` gave a name; the inverse of it.

    Raises:
        BadInputError: no model and shape have that name.
    """
    family, _, rest = name.partition("-")
    size, *words = rest.split("-")
    options: dict[str, Any] = {"phase": words.pop(0) if words and words[0] in PHASES else "training"}
    options["batch"] = default_batch(options["phase"])
    for word in words:
        number = re.fullmatch(r"(batch|seq|tp)(\d+)(sp)?", word)
        if number:
            options[{"batch": "batch", "seq": "sequence", "tp": "tensor_parallel"}[number[1]]] = int(number[2])
            options["sequence_parallel"] = options.get("sequence_parallel", False) or number[3] is not None
            continue
        field = next((field for field, values in _CHOICES.items() if field != "phase" and word in values), None)
        if field is None:
            raise BadInputError(f"workload '{name}': '{word}' is not an option of how a model is run")
        options[field] = word
    return f"{family}-{size}", Shape(**options)


def _check_size(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= value <= _MOST:
        nearest = f"; the nearest is {1 if value < 1 else _MOST}" if isinstance(value, Integral) else ""
        raise BadInputError(f"`{name}` {value}: must be a whole number from 1 to {_MOST:,}{nearest}")

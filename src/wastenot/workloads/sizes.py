"""What one GPU of a tensor-parallel group holds and handles: what is split is divided by the degree, once, here."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.workloads.models import Model
from wastenot.workloads.parts import Parts
from wastenot.workloads.shape import Shape

_CAUSAL = 0.5  # share of the scores that the causal mask leaves


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes on one GPU.

    Tensor parallelism splits heads and the feed-forward width (Megatron-LM: Shoeybi et al. 2019). What it leaves
    whole, embedding, norms, residuals and loss, is split along the sequence by sequence parallelism, as in the
    kernel-level DVFS paper (section 8). In serving, the output layer is split by the vocabulary, as engines do.
    Communication is left out, as in the paper.

    Attributes:
        model: which model.
        shape: how it is run.
    """

    model: Model
    shape: Shape

    @property
    def part(self) -> Parts:
        """Operations at the data type."""
        return Parts.of(self.shape.dtype)

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.shape.phase == "training"

    @property
    def flash(self) -> bool:
        """Whether attention is one kernel."""
        return self.shape.attention == "flash"

    @property
    def rows(self) -> int:
        """Tokens in what tensor parallelism splits."""
        return self.shape.rows

    @property
    def shared_rows(self) -> int:
        """Tokens in what tensor parallelism leaves whole."""
        return self.shape.rows // self.degree if self.shape.sequence_parallel else self.shape.rows

    @property
    def degree(self) -> int:
        """GPUs that share each matrix product."""
        return self.shape.tensor_parallel

    @property
    def width(self) -> int:
        """Width of a token's representation, which nothing splits."""
        return self.model.width

    @property
    def hidden(self) -> int:
        """Columns of the feed-forward layer on this GPU."""
        return self.model.hidden // self.degree

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.model.head_width

    @property
    def query_width(self) -> int:
        """Width of all query heads on this GPU."""
        return self.model.heads // self.degree * self.head_width

    @property
    def kv_width(self) -> int:
        """Width of all key heads on this GPU, which is that of the value heads."""
        return self.model.groups // self.degree * self.head_width

    @property
    def qkv_width(self) -> int:
        """Columns of the product that makes queries, keys and values."""
        return self.query_width + 2 * self.kv_width

    @property
    def heads(self) -> int:
        """Query heads on this GPU, of all sequences."""
        return self.shape.batch * self.model.heads // self.degree

    @property
    def groups(self) -> int:
        """Key and value heads on this GPU, of all sequences."""
        return self.shape.batch * self.model.groups // self.degree

    @property
    def queries(self) -> int:
        """New tokens of a sequence."""
        return 1 if self.shape.phase == "decode" else self.shape.sequence

    @property
    def keys(self) -> int:
        """Tokens of a sequence that queries attend to, before the causal mask."""
        return self.shape.sequence

    @property
    def used(self) -> float:
        """Share of the scores that the causal mask leaves: the newest token attends to all."""
        return 1.0 if self.shape.phase == "decode" else _CAUSAL

    @property
    def vocabulary(self) -> int:
        """Rows of the token table."""
        return self.model.vocabulary

    @property
    def tokens_touched(self) -> int:
        """Rows of the token table that are read or changed: at most one for each token."""
        return min(self.vocabulary, self.shared_rows)

    @property
    def positions_touched(self) -> int:
        """Rows of the position table that are read or changed; every sequence has the same positions."""
        return self.queries // self.degree if self.shape.sequence_parallel and self.queries > 1 else self.queries

    @property
    def logit_rows(self) -> int:
        """Tokens whose successor is predicted: all of them in training, the newest of each sequence in serving."""
        return self.shared_rows if self.training else self.shape.batch

    @property
    def logit_columns(self) -> int:
        """Words whose logits this GPU computes."""
        return self.vocabulary if self.training else -(-self.vocabulary // self.degree)

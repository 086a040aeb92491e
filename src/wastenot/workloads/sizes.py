"""What one GPU of a tensor-parallel group holds and handles: what is split is divided by the degree, once, here."""

from __future__ import annotations

from wastenot.workloads.models import Model
from wastenot.workloads.parts import Parts
from wastenot.workloads.shape import Shape

_CAUSAL = 0.5  # fraction of the scores that the causal mask leaves


class Sizes:
    """Sizes on one GPU.

    Tensor parallelism splits heads and the feed-forward width (Megatron-LM: Shoeybi et al. 2019). What it leaves
    whole, embedding, norms, residuals and loss, is split along the sequence by sequence parallelism, as in the
    kernel-level DVFS paper (section 8). In serving, the output layer is split by the vocabulary, as engines do.
    Communication is left out, as in the paper.

    Args:
        model: which model.
        shape: how it is run.
    """

    def __init__(self, model: Model, shape: Shape) -> None:
        self.model = model
        self.shape = shape
        self.part = Parts.of(shape.dtype)
        self.training = shape.phase == "training"
        self.fused = shape.attention != "unfused"  # attention in one kernel
        self.degree = degree = shape.tensor_parallel
        decoding, sequence_parallel = shape.phase == "decode", shape.sequence_parallel

        self.rows = shape.rows  # tokens in what tensor parallelism splits
        self.shared_rows = self.rows // degree if sequence_parallel else self.rows  # tokens in what it leaves whole
        self.width = model.width
        self.hidden = model.hidden // degree
        self.head_width = model.head_width
        self.query_width = model.heads // degree * model.head_width  # of all query heads
        self.kv_width = model.groups // degree * model.head_width  # of all key heads, and of all value heads
        self.qkv_width = self.query_width + 2 * self.kv_width
        self.heads = shape.batch * model.heads // degree  # query heads of all sequences
        self.groups = shape.batch * model.groups // degree  # key and value heads of all sequences
        self.queries = 1 if decoding else shape.sequence  # new tokens of a sequence
        self.keys = shape.sequence  # tokens of a sequence that queries attend to, before the causal mask
        self.used = 1.0 if decoding else _CAUSAL  # fraction of the scores that is needed: the newest token attends to all

        # Rows of the tables that are read or changed: at most one token each, and the same positions in every sequence.
        self.tokens_touched = min(model.vocabulary, self.shared_rows)
        self.positions_touched = self.queries // degree if sequence_parallel and self.queries > 1 else self.queries
        # Training predicts the successor of every token, serving that of the newest in each sequence.
        self.logit_rows = self.shared_rows if self.training else shape.batch
        self.logit_columns = model.vocabulary if self.training else -(-model.vocabulary // degree)

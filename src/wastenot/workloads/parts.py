"""Operations analytically: FLOPs and least bytes of one call, each input read once and each output written once.

Sizes: ``rows`` are tokens (batch × sequence), ``width`` is what each token holds. A multiply-add is two FLOPs; any
other operation, exponentials and quotients too, is one. Gradients of parameters are added to those that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wastenot.workloads.kernel import DTYPE_BYTES, KernelSpec, Op

_FP32 = 4  # bytes of statistics, losses, gradients in reductions and optimizer states
_TOKEN = 4  # bytes of a token's number


@dataclass(frozen=True, slots=True)
class Work:
    """What one call does, without its place in a workload; see :class:`KernelSpec`."""

    op: Op
    shape: tuple[int, ...]
    flops: float
    bytes_read: float
    bytes_written: float
    element_bytes: int = 0

    def placed(self, name: str, label: str, pass_name: str, block: str | None, count: int) -> KernelSpec:
        """The kernel that does this work at a place in a workload."""
        work = (self.op, self.shape, self.flops, float(self.bytes_read), float(self.bytes_written))
        return KernelSpec(name, label, *work, pass_name, block, count, element_bytes=self.element_bytes)


@dataclass(frozen=True, slots=True)
class Parts:
    """Operations at one data type, of activations and weights."""

    element_bytes: int

    @classmethod
    def of(cls, dtype: str) -> Parts:
        """Operations at a data type that :data:`DTYPE_BYTES` knows."""
        return cls(DTYPE_BYTES[dtype])

    def gemm(self, m: int, n: int, k: int, batches: int = 1, *, accumulate: bool = False) -> Work:
        """``batches`` products of (m × k) and (k × n); with ``accumulate`` the output is read and added to.

        A bias that is added on the way out is left out: one FLOP in 2·k.
        """
        size = self.element_bytes * batches
        read = size * (m * k + k * n + (m * n if accumulate else 0))
        return Work("gemm", (batches, m, n, k), 2.0 * batches * m * n * k, read, size * m * n)

    def elementwise(self, elements: int, *, inputs: int = 1, outputs: int = 1, flops: float = 1.0) -> Work:
        """An operation on each of ``elements``, with a number of arrays in and out and FLOPs for each element."""
        size = self.element_bytes * elements
        return Work("elementwise", (elements,), flops * elements, size * inputs, size * outputs)

    def permute(self, elements: int) -> Work:
        """A change of layout."""
        size = self.element_bytes * elements
        return Work("permute", (elements,), 0.0, size, size)

    def softmax(self, rows: int, width: int, *, used: float = 1.0) -> Work:
        """Softmax over the ``used`` fraction of each row; the rest is neither read nor written (it stays zero).

        Five FLOPs an element: maximum, difference, exponential, sum, quotient.
        """
        size = self.element_bytes * rows * width * used
        return Work("softmax", (rows, width), 5.0 * rows * width * used, size, size)

    def softmax_backward(self, rows: int, width: int, *, used: float = 1.0) -> Work:
        """Gradient of a softmax from its output and the output's gradient, in the latter's place.

        Four FLOPs an element of the ``used`` fraction; the rest is not read but set to zero, as llm.c does: the matrix
        products that follow read all of it.
        """
        size = self.element_bytes * rows * width
        return Work("softmax", (rows, width), 4.0 * rows * width * used, 2 * size * used, size)

    def norm(self, rows: int, width: int, *, op: Op = "layernorm", residual: bool = False) -> Work:
        """Layer norm (mean, variance, scale, shift: eight FLOPs an element) or RMS norm (four).

        With ``residual`` the sum of two inputs is formed first and kept, in the same kernel.
        """
        size = self.element_bytes * rows * width
        statistics, weights = (2, 2) if op == "layernorm" else (1, 1)
        flops = (8.0 if op == "layernorm" else 4.0) + (1.0 if residual else 0.0)
        inputs, outputs = (2, 2) if residual else (1, 1)
        read = inputs * size + weights * self.element_bytes * width
        return Work(op, (rows, width), flops * rows * width, read, outputs * size + statistics * _FP32 * rows)

    def norm_backward(self, rows: int, width: int, *, op: Op = "layernorm") -> Work:
        """Gradients of a norm's input and weights, the former added to the gradient that passes by it.

        Fourteen FLOPs an element, or ten of an RMS norm.
        """
        size = self.element_bytes * rows * width
        statistics, weights = (2, 2) if op == "layernorm" else (1, 1)
        read = 3 * size + statistics * _FP32 * rows + (1 + weights) * self.element_bytes * width
        written = size + weights * self.element_bytes * width
        return Work(op, (rows, width), (14.0 if op == "layernorm" else 10.0) * rows * width, read, written)

    def column_sums(self, rows: int, width: int, *, splits: int = 1) -> Work:
        """Gradient of a bias: sums down the columns; with several ``splits`` left as that number of partial sums."""
        size, sums = self.element_bytes * rows * width, self.element_bytes * width
        read, written = (size, splits * _FP32 * width) if splits > 1 else (size + sums, sums)
        return Work("reduce", (rows, width), float(rows * width), read, written)

    def sum_of_partials(self, splits: int, width: int) -> Work:
        """The partial sums of :meth:`column_sums` brought together."""
        read = _FP32 * splits * width + self.element_bytes * width
        return Work("reduce", (splits, width), float(splits * width), read, self.element_bytes * width)

    def embedding(self, rows: int, width: int, *, table_rows: int, tables: int = 1) -> Work:
        """Rows looked up in ``tables`` tables, in all ``table_rows`` different ones, and added."""
        size = self.element_bytes * width
        read = size * table_rows + _TOKEN * rows
        return Work("embedding", (rows, width), float((tables - 1) * rows * width), read, size * rows)

    def embedding_backward(self, rows: int, width: int, touched: int, *, looked_up: bool = True) -> Work:
        """Gradients summed into the ``touched`` rows of a table; ``looked_up`` by token, or else by position.

        By position each row of the table is the sum of the same row of each sequence, which is a plain reduction.
        """
        size = self.element_bytes * width
        read = size * (rows + touched) + (_TOKEN * rows if looked_up else 0)
        op: Op = "embedding_backward" if looked_up else "reduce"
        return Work(op, (rows, width), float(rows * width), read, size * touched)

    def cross_entropy(self, rows: int, vocabulary: int) -> Work:
        """Softmax, loss and gradient of the logits in one kernel, the gradient in the logits' place."""
        size = self.element_bytes * rows * vocabulary
        return Work("softmax", (rows, vocabulary), 6.0 * rows * vocabulary, size + _TOKEN * rows, size + _FP32 * rows)

    def attention(self, heads: int, groups: int, queries: int, keys: int, head_width: int, *, used: float) -> Work:
        """Attention in one kernel (FlashAttention): scores never reach memory.

        Args:
            heads: query heads, batch included.
            groups: key and value heads, batch included.
            queries: query positions.
            keys: key positions.
            head_width: of a head.
            used: fraction of the scores that the causal mask leaves.
        """
        flops = 4.0 * heads * queries * keys * head_width * used
        read = self.element_bytes * head_width * (heads * queries + 2 * groups * keys)
        written = self.element_bytes * head_width * heads * queries + _FP32 * heads * queries
        return Work("attention", (heads, groups, queries, keys, head_width), flops, read, written)

    def attention_backward(self, heads: int, groups: int, queries: int, keys: int, head_width: int, *, used: float) -> Work:
        """Gradient of :meth:`attention`, which forms the scores again: five products instead of two."""
        flops = 10.0 * heads * queries * keys * head_width * used
        read = self.element_bytes * head_width * (3 * heads * queries + 2 * groups * keys) + _FP32 * heads * queries
        written = self.element_bytes * head_width * (heads * queries + 2 * groups * keys)
        return Work("attention_backward", (heads, groups, queries, keys, head_width), flops, read, written)

    def adamw(self, parameters: int) -> Work:
        """One AdamW step: gradient and weight at the data type, master weight and two moments in fp32.

        Weights of four bytes are their own master. Twelve FLOPs a parameter.
        """
        states, size = 3 * _FP32 * parameters, self.element_bytes * parameters
        written = states + (size if self.element_bytes < _FP32 else 0)
        return Work("optimizer", (parameters,), 12.0 * parameters, size + states, written)


Place = Callable[[str, str, Work], KernelSpec]
"""Puts work at a place: name, label, work."""


def placer(pass_name: str, block: str | None = None, count: int = 1) -> Place:
    """What gives kernels one pass, block and count."""
    return lambda name, label, work: work.placed(name, label, pass_name, block, count)

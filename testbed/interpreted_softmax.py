"""A program that checks the Triton kernels of causal softmax in Triton's interpreter: what they compute and touch."""

import torch

from wastenot.workloads.operations import softmaxes, triton_softmax

UNTOUCHED = 7.0


def check(size: int) -> None:
    """Compare rows of three squares; what should not be read is not a number."""
    row = torch.arange(3 * size) % size
    beyond = torch.arange(size) >= ((row // 16 + 1) * 16)[:, None]
    scores, grad = torch.randn(3 * size, size), torch.randn(3 * size, size)
    expected = softmaxes.causal_softmax(scores)
    out = triton_softmax.causal_softmax(scores.masked_fill(beyond, torch.nan), torch.full_like(scores, UNTOUCHED))
    assert (out[beyond] == UNTOUCHED).all()
    torch.testing.assert_close(out[~beyond], expected[~beyond])
    hidden, seen = (values.masked_fill(beyond, torch.nan) for values in (grad, expected))
    out = triton_softmax.causal_softmax_backward(hidden, seen, torch.full_like(grad, UNTOUCHED))
    torch.testing.assert_close(out, softmaxes.causal_softmax_backward(grad, expected))


if __name__ == "__main__":
    for size in (7, 16, 40):
        check(size)

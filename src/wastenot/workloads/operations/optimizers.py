"""One AdamW step on all parameters at once, master weights and moments in fp32."""

from __future__ import annotations

import torch
from torch import Tensor

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall, several

_RATE, _BETA1, _BETA2, _EPSILON, _DECAY, _STEP = 1e-4, 0.9, 0.95, 1e-8, 0.1, 100.0


def adamw(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Weights below fp32 have a master copy; PyTorch's fused step takes gradients of the states' type only."""
    (parameters,) = kernel.shape
    fp32 = torch.float32
    grad, master, first = make.normal(parameters), make.normal(parameters, dtype=fp32), make.normal(parameters, dtype=fp32)
    second = make.normal(parameters, dtype=fp32).square_()
    if make.dtype == fp32:
        return PreparedCall(_fused_step, (master, grad, first, second, torch.full((), _STEP, device=make.device)))
    return several(adamw_step, make.empty(parameters), grad, master, first, second, parts=12)


def adamw_step(weight: Tensor, grad: Tensor, master: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Update of weight, master weight and both moments in place (Loshchilov and Hutter 2019, Algorithm 2)."""
    wide = grad.float()
    mean = _BETA1 * first + (1.0 - _BETA1) * wide
    square = _BETA2 * second + (1.0 - _BETA2) * wide * wide
    unbiased = mean / (1.0 - _BETA1**_STEP)
    spread = (square / (1.0 - _BETA2**_STEP)).sqrt() + _EPSILON
    updated = master * (1.0 - _RATE * _DECAY) - _RATE * unbiased / spread
    first.copy_(mean)
    second.copy_(square)
    master.copy_(updated)
    weight.copy_(updated)
    return weight, master, first, second


def _fused_step(master: Tensor, grad: Tensor, first: Tensor, second: Tensor, step: Tensor) -> tuple[Tensor, ...]:
    torch._fused_adamw_(
        [master], [grad], [first], [second], [], [step],
        lr=_RATE, beta1=_BETA1, beta2=_BETA2, weight_decay=_DECAY, eps=_EPSILON, amsgrad=False, maximize=False,
    )  # fmt: skip
    return master, first, second

"""Which pass of a training step an operation belongs to."""

from __future__ import annotations

import inspect
from types import TracebackType
from typing import Any, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

PassName = Literal["forward", "backward", "optimizer"]


class Passes:
    """Tracks the pass of a training step while the context is open.

    Backward is everything that runs under a node of the autograd graph, in any thread. Optimizer is everything within
    ``step()`` of a :class:`torch.optim.Optimizer`, and what runs without gradients between a backward pass and it, such as
    clipping and scaling. The rest is forward.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._after_backward = False
        self._hooks: list[Any] = []

    def __enter__(self) -> Passes:
        self._hooks = [
            register_optimizer_step_pre_hook(self._step_begins),
            register_optimizer_step_post_hook(self._step_ends),
        ]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for hook in self._hooks:
            hook.remove()

    def current(self) -> PassName:
        """The pass of what is running in this thread."""
        if torch._C._current_autograd_node() is not None:
            self._after_backward = True
            return "backward"
        if self._steps > 0:
            return "optimizer"
        if torch.is_grad_enabled():
            self._after_backward = False
            return "forward"
        return "optimizer" if self._after_backward else "forward"

    @staticmethod
    def seeds_backward() -> bool:
        """Whether the ``ones_like`` that is running creates the initial gradient of a backward pass."""
        frame = inspect.currentframe()
        while frame is not None:
            if frame.f_code.co_name == "_make_grads" and frame.f_globals.get("__name__") == "torch.autograd":
                return True
            frame = frame.f_back
        return False

    def _step_begins(self, *_: Any) -> None:
        self._steps += 1

    def _step_ends(self, *_: Any) -> None:
        self._steps = max(self._steps - 1, 0)
        self._after_backward = False

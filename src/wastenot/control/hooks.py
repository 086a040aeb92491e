"""Markers of a PyTorch training step, from hooks on its model and optimizer.

    iteration  embedding                 the model is called for the first time since the optimizer's last step
    forward    forward:0 forward:1 …     its layers
    loss                                 behind the last of them
    backward   backward:0 backward:1 …   its gradient arrives; the last layer's turn comes first
    embedding_backward                   behind the first layer's
    optimizer                            its step begins

Only hooks that PyTorch offers are used, and only the whole model, its layers and the optimizer have any: other modules run
as before. Inside ``torch.compile`` hooks do nothing, since they would break the graph, so that layers are seen only outside
of it. Recomputed layers (activation checkpointing) belong to the backward pass.

Loaded into other people's programs, so it imports nothing but the standard library; PyTorch is handed in.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from wastenot.control.harmless import Harmless

PASSES = frozenset({"iteration", "forward", "loss", "backward", "optimizer"})
"""What is always marked."""

Record = Callable[..., None]
"""Takes the names of the markers that stand at one place."""

_TENSORS_DEEP = 3  # that outputs are searched
_LEAST_LAYERS = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the training job.

    Attributes:
        parameters: of the model; ``None`` where it is not known, as are the others.
        dtype: of most of them, such as ``bfloat16``.
        tokens: integers that the model was given in an iteration, as far as they are token IDs.
        layers: that were found.
    """

    parameters: int | None = None
    dtype: str | None = None
    tokens: int | None = None
    layers: int = 0


class Hooks:
    """Records the markers of a training step.

    Args:
        record: see :meth:`wastenot.control.markers.Markers.record`.
        torch: PyTorch.
        on_step: called after each step of an optimizer.
        on_first_step: called after the first step of any, before the model is looked for.
        harmless: what the hooks are called through, so that no fault of theirs reaches the program.
    """

    def __init__(
        self,
        record: Record,
        torch: Any,
        *,
        on_step: Callable[[], None] | None = None,
        on_first_step: Callable[[], None] | None = None,
        harmless: Harmless | None = None,
    ) -> None:
        self._harmless = harmless or Harmless()
        self._record, self._torch = record, torch
        self._wanted, self._by_layers = PASSES, True
        self._on_step, self._on_first_step = on_step, on_first_step
        self._compiling = torch.compiler.is_compiling
        self._handles: list[Any] = []
        self._roots: list[Any] = []
        self._layers: list[Any] = []
        self._own: Any = None  # the optimizer that iterations are counted by where no model is known
        self._fresh = True  # the next call of the model begins an iteration
        self._in_backward = False
        self._depth = 0
        self._turn = -1  # latest in the backward pass
        self._layers_called = self._layers_work = False
        self._tokens = self._tokens_now = 0

    # ---- what is watched -------------------------------------------------------------------------------------

    def watch(self, *models: Any, optimizers: Iterable[Any] = ()) -> None:
        """Watch models: the outermost of them that is called counts.

        Args:
            models: modules.
            optimizers: theirs; none where all optimizers are watched (:meth:`watch_all_optimizers`).
        """
        for model in models:
            if any(model is root for root in self._roots):
                continue
            self._roots.append(model)
            if getattr(model, "_compiled_call_impl", None) is not None:
                self._handles.append(_AroundCompiled(model, self._hook(self._model_begins), self._hook(self._model_ends)))
                continue
            self._handles.append(model.register_forward_pre_hook(self._hook(self._model_begins), with_kwargs=True))
            self._handles.append(model.register_forward_hook(self._hook(self._model_ends), always_call=True))
        if models and not self._layers:
            self._layers = layers_of(models[0], self._torch)
            last = len(self._layers) - 1
            for index, layer in enumerate(self._layers):
                if index in (0, last) or {f"forward:{index}", f"backward:{last - index}"} & self._wanted:
                    self._handles.append(layer.register_forward_pre_hook(self._hook(self._layer_begins(index))))
                    self._handles.append(layer.register_forward_hook(self._hook(self._layer_ends(index))))
        for optimizer in optimizers:
            self._handles.append(optimizer.register_step_pre_hook(self._hook(self._step_begins)))
            self._handles.append(optimizer.register_step_post_hook(self._hook(self._step_ends)))

    def configure(self, *, wanted: Iterable[str], by_layers: bool) -> None:
        """Change what is marked, before a model is watched.

        Args:
            wanted: names to mark besides :data:`PASSES`: others, and layers' turns.
            by_layers: passes are bounded by the layers, as in the workloads that wastenot knows, and by default: ``loss`` is
                all between the last layer's forward and backward. Otherwise ``backward`` begins where the loss's gradient
                does.
        """
        self._wanted, self._by_layers = PASSES | set(wanted), by_layers

    def watch_all_optimizers(self, *, find_models: bool = True) -> None:
        """Watch every optimizer of the program.

        Args:
            find_models: watch the model of the first that has made a step, too.
        """
        from importlib import import_module

        optimizer = import_module("torch.optim.optimizer")
        self._handles.append(optimizer.register_optimizer_step_pre_hook(self._hook(self._step_begins)))
        ends = self._any_step_ends if find_models else self._step_ends
        self._handles.append(optimizer.register_optimizer_step_post_hook(self._hook(ends)))

    def detach(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._roots.clear()
        self._layers = []

    def seen(self) -> Seen:
        """What is known of the job so far."""
        if not self._roots:
            return Seen()
        sizes: dict[str, int] = {}
        for parameter in self._roots[0].parameters():
            dtype = str(parameter.dtype).removeprefix("torch.")
            sizes[dtype] = sizes.get(dtype, 0) + int(parameter.numel())
        most = max(sizes, key=lambda name: sizes[name]) if sizes else None
        return Seen(sum(sizes.values()), most, self._tokens or None, len(self._layers))

    def _hook(self, does: Callable[..., None]) -> Callable[..., None]:
        """A hook as PyTorch calls it: nothing where a graph is compiled, and no fault of ours reaches the program."""

        @functools.wraps(does)
        def hook(*arguments: Any, **named: Any) -> None:
            if not self._compiling():
                self._harmless.call(does, *arguments, **named)

        return hook

    def _mark(self, *names: str) -> None:
        wanted = [name for name in names if name in self._wanted]
        if wanted:
            self._record(*wanted)

    # ---- the model -------------------------------------------------------------------------------------------

    def _trains(self, model: Any) -> bool:
        return bool(model.training) and self._torch.is_grad_enabled()

    def _model_begins(self, model: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not self._trains(model):
            return
        self._depth += 1
        if self._depth > 1 or self._in_recomputation():
            return
        self._in_backward, self._turn, self._layers_called = False, -1, False
        names = ["embedding"] if self._layers_work else ["forward"]
        if self._fresh:
            self._fresh = False
            self._tokens, self._tokens_now = self._tokens_now, 0
            names.insert(0, "iteration")
        self._tokens_now += _tokens_in(self._torch, (*arguments, *named.values()))
        self._mark(*names)

    def _model_ends(self, model: Any, arguments: Any, output: Any) -> None:
        if not self._trains(model):
            return
        self._depth = max(self._depth - 1, 0)
        if self._depth or self._in_recomputation():
            return
        self._layers_work = self._layers_called
        if not self._layers_work and self._by_layers:
            self._mark("loss")
        for tensor in _differentiable(self._torch, output):
            tensor.register_hook(self._hook(self._gradient_comes))
            break

    def _gradient_comes(self, _: Any) -> None:
        begins = not self._in_backward
        self._in_backward = True
        if begins and not (self._by_layers and self._layers_work):
            self._mark("backward")

    def _in_recomputation(self) -> bool:
        """Whether the model's forward is run again for its backward pass."""
        return self._in_backward and not self._fresh and bool(self._torch._C._current_graph_task_id() != -1)

    # ---- its layers ------------------------------------------------------------------------------------------

    def _layer_begins(self, index: int) -> Callable[[Any, tuple[Any, ...]], None]:
        last, turn = len(self._layers) - 1, f"forward:{index}"

        def begins(_: Any, arguments: tuple[Any, ...]) -> None:
            if not self._depth and not self._in_backward:
                return
            if self._in_backward:
                self._backward_comes_to(last - index)
                return
            self._layers_called = True
            if index == 0 and self._layers_work:
                self._mark("forward", turn)
            else:
                self._mark(turn)
            if index == 0 and self._by_layers and "embedding_backward" in self._wanted:
                for tensor in _differentiable(self._torch, arguments):
                    tensor.register_hook(self._hook(self._layers_are_back))
                    break

        return begins

    def _layer_ends(self, index: int) -> Callable[[Any, Any, Any], None]:
        last = len(self._layers) - 1

        def ends(_: Any, __: Any, output: Any) -> None:
            if not self._depth or self._in_backward:
                return
            for tensor in _differentiable(self._torch, output):
                tensor.register_hook(self._hook(lambda _: self._backward_comes_to(last - index)))
                break
            if index == last and self._by_layers:
                self._mark("loss")

        return ends

    def _backward_comes_to(self, turn: int) -> None:
        if turn <= self._turn:
            return
        self._in_backward, self._turn = True, turn
        if turn == 0 and self._by_layers and self._layers_work:
            self._mark("backward", "backward:0")
        else:
            self._mark(f"backward:{turn}")

    def _layers_are_back(self, _: Any) -> None:
        self._mark("embedding_backward")

    # ---- the optimizer ---------------------------------------------------------------------------------------

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        self._in_backward, self._depth = False, 0
        if not self._fresh:
            self._mark("optimizer")

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        self._fresh = True
        if self._on_step is not None:
            self._on_step()

    def _any_step_ends(self, optimizer: Any, *_: Any) -> None:
        if self._own is None:
            self._own = optimizer
            if self._on_first_step is not None:
                self._on_first_step()
            self.watch(*owners_of(optimizer, self._torch))
        self._step_ends(optimizer)
        if not self._roots and optimizer is self._own:
            self._mark("iteration")
            self._fresh = False


class _AroundCompiled:
    """Stands in for the hooks of a model that ``model.compile()`` has compiled together with its hooks."""

    def __init__(self, model: Any, begins: Callable[..., None], ends: Callable[..., None]) -> None:
        self._model, self._compiled = model, model._compiled_call_impl

        def call(*arguments: Any, **named: Any) -> Any:
            begins(model, arguments, named)
            output = None
            try:
                output = self._compiled(*arguments, **named)
            finally:
                ends(model, arguments, output)
            return output

        model._compiled_call_impl = call

    def remove(self) -> None:
        """Leave the model as it was."""
        self._model._compiled_call_impl = self._compiled


def owners_of(optimizer: Any, torch: Any) -> list[Any]:
    """The modules that hold all parameters of an optimizer, outermost first; none where the parameters are copies."""
    wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    found = []
    for thing in gc.get_objects():
        if not issubclass(type(thing), torch.nn.Module):
            continue
        try:
            held = {id(parameter) for parameter in thing.parameters()}
        except Exception:  # a module that is not whole, such as one that is being built
            continue
        if wanted <= held:
            found.append((sum(1 for _ in thing.modules()), thing))
    return [module for _, module in sorted(found, key=lambda pair: -pair[0])]


def layers_of(model: Any, torch: Any) -> list[Any]:
    """The repeated modules of a model in order: the children of that list whose parameters are most."""
    best: tuple[int, list[Any]] = (0, [])
    for module in model.modules():
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        children = list(module)
        if len(children) < _LEAST_LAYERS or len({type(child) for child in children}) != 1:
            continue
        size = sum(int(parameter.numel()) for parameter in module.parameters())
        if size > best[0]:
            best = (size, children)
    return best[1]


def _differentiable(torch: Any, value: Any, deep: int = _TENSORS_DEEP) -> Iterator[Any]:
    """Tensors with a gradient in a module's arguments or output; a loss first."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif deep:
        loss = getattr(value, "loss", None) if not isinstance(value, (tuple, list)) else None
        if isinstance(value, dict):
            parts: Iterable[Any] = value.values()
        elif isinstance(value, (tuple, list)):
            parts = value
        else:
            parts = ()
        for part in (loss, *parts):
            yield from _differentiable(torch, part, deep - 1)


def _tokens_in(torch: Any, values: Iterable[Any]) -> int:
    """Size of the first tensor of integers: token IDs; 0 where there is none."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32):
            return int(value.numel())
    return 0

"""A plan applied in a loop with Accelerate:

with applied_plan("plan.json", model, optimizer):        # as accelerator.prepare() has returned them
for batch in batches: ...
"""  # noqa: D415

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from accelerate.optimizer import AcceleratedOptimizer

from wastenot.programs.apply import Applied, apply, without_plan


@contextmanager
def applied_plan(plan: Any, model: Any, optimizer: Any, **options: Any) -> Iterator[Applied]:
    """Apply a plan while the context is open. What fails of it is reported, and training continues.

    Args:
        plan: its file, or the plan.
        model: as prepared.
        optimizer: as prepared, or several.
        options: of :class:`wastenot.apply`.
    """
    several = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    inner = [one.optimizer if isinstance(one, AcceleratedOptimizer) else one for one in several]
    with ExitStack() as stack:
        try:
            applied = stack.enter_context(apply(plan, **options))
        except Exception as error:  # whatever it is, training is worth more
            applied = without_plan(error)
        applied.watch(model, inner)
        yield applied

"""How many layers each stage of a pipeline gets."""

from __future__ import annotations


def balanced(layers: int, stages: int, layer_s: float, first_s: float = 0.0, last_s: float = 0.0) -> tuple[int, ...]:
    """The partition whose slowest stage is fastest; of those, the one whose stages differ least.

    Layers are alike, so that it is known which times the slowest stage can have: the least at which the layers still fit.

    Args:
        layers: to give to stages, at least as many as there are stages.
        stages: to give them to.
        layer_s: time of a layer.
        first_s: what the first stage runs besides layers.
        last_s: what the last one runs besides them.

    Returns:
        Layers of each stage, one at least.
    """
    extra = [0.0] * stages
    extra[0] += first_s
    extra[-1] += last_s
    counts = [1] * stages
    # The stage that would be fastest with one layer more gets it: greedy is optimal, for a stage's time only grows.
    for _ in range(layers - stages):
        stage = min(range(stages), key=lambda each: (extra[each] + (counts[each] + 1) * layer_s, each))
        counts[stage] += 1
    return tuple(counts)

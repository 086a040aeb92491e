"""What each layout of a cluster can carry of any blend of classes: frontiers of instances, made when first asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import COUNT, class_of, dominates
from wastenot.serving.cluster.frontiers import InstanceFrontier, capacity_at_full_speed, frontier, ladder_frontier
from wastenot.serving.cluster.mixes import Mix, evenly, mix_of_classes
from wastenot.serving.cluster.model import Cluster
from wastenot.serving.model.requests import Requests

_KINDS, _MANY = 32, 256
"""Of requests that stand for a class; and where rules are tried, for which the longest prompts count: beside a prompt of
many steps all that decode get late tokens. With 32 a trial showed none where 200 requests of Azure's trace had some."""
TOGETHER = np.array([1, 2, 4, 8, 16])
"""Instances behind one router that are told apart: the more there are, the more even is the load of each."""
_GRAIN, _FINE = 20, 200
"""Parts of a whole by which blends are told apart, and those of which few are asked for."""
_TYPICAL_PROMPT, _TYPICAL_OUTPUT = (128.0, 600.0, 2500.0), (50.0, 200.0, 500.0)


_Key = tuple[int, bool, bool, int, tuple[float, ...]]


@dataclass(slots=True, eq=False)
class Profiles:
    """Frontiers by layout and blend of classes.

    Attributes:
        cluster: whose layouts they are of.
        lengths: requests that show how long prompts and answers of each class are; those of earlier traffic.
        points: levels of load of each frontier.
        share: of the requests that are to keep the deadlines, with independent arrivals; more than is asked of bursty ones.
        misses: of those that this allows, which ladders are to stay below.
    """

    cluster: Cluster
    lengths: Requests
    points: int = 12
    share: float = 0.995
    misses: float = 1.0
    _kinds: dict[int, list[tuple[FloatArray, FloatArray]]] = field(init=False, repr=False)
    _known: dict[_Key, InstanceFrontier] = field(init=False, repr=False, default_factory=dict)
    _capacities: dict[int, FloatArray] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._kinds = {kinds: _kinds_of(self.lengths, kinds) for kinds in (_KINDS, _MANY)}

    def mix(self, rate_per_s: FloatArray, *, many: bool = False) -> Mix:
        """What requests of classes at these rates are like, the longest included where there are many kinds; shape (9,)."""
        kinds = self._kinds[_MANY if many else _KINDS]
        there = np.flatnonzero(rate_per_s > 0)
        share = rate_per_s[there] / rate_per_s[there].sum()
        counts = [len(kinds[each][0]) for each in there]
        return Mix(
            np.concatenate([kinds[each][0] for each in there]),
            np.concatenate([kinds[each][1] for each in there]),
            np.concatenate([np.full(count, some / count) for count, some in zip(counts, share, strict=True)]),
        )

    def frontier(
        self,
        layout: int,
        rate_per_s: FloatArray,
        *,
        full_speed: bool = False,
        together: int = 1,
        ladders: bool = False,
        fine: bool = False,
    ) -> InstanceFrontier:
        """Of an instance that serves classes in the ratio of these rates.

        Args:
            layout: of the instance.
            rate_per_s: of each class; shape (9,).
            full_speed: at the maximum clock only.
            together: instances behind one router, told apart as :data:`TOGETHER` has them.
            ladders: clocks that climb with the backlog instead of fixed ones.
            fine: whether blends that differ little are told apart; each new one takes time. Those of ladders are.
        """
        blend = np.rint((_FINE if ladders or fine else _GRAIN) * rate_per_s / rate_per_s.sum()).astype(int)
        if not blend.any():
            blend = np.asarray(rate_per_s > 0, dtype=int)
        together = int(TOGETHER[max(together, 1) >= TOGETHER][-1])
        key = (layout, full_speed, ladders, together, tuple((blend / blend.sum()).round(4).tolist()))
        if key not in self._known:
            engine = self.cluster.layouts[layout]
            share = self.share
            if ladders:
                share = 1 - (1 - share) * self.misses
                made = partial(ladder_frontier, points=max(self.points // 2, 3))
            else:
                settings = (len(engine.tables.settings) - 1,) if full_speed else None
                made = partial(frontier, settings=settings, points=self.points)
            mix, deadlines = self.mix(blend.astype(np.float64), many=ladders), self.cluster.deadlines
            self._known[key] = made(engine, mix, deadlines, share=share, together=together)
        return self._known[key]

    def capacity_by_class(self, layout: int) -> FloatArray:
        """Of an instance at the maximum clock in each class' pool; shape (9,).

        A pool may get what its class dominates, too, and prompts of a class are not always longer than those of one that it
        dominates: the least capacity counts.
        """
        if layout not in self._capacities:
            engine, deadlines = self.cluster.layouts[layout], self.cluster.deadlines
            alone = [capacity_at_full_speed(engine, self.mix(each), deadlines, share=self.share) for each in np.eye(COUNT)]
            self._capacities[layout] = np.array(
                [min(alone[other] for other in range(COUNT) if dominates(each, other)) for each in range(COUNT)]
            )
        return self._capacities[layout]


def _kinds_of(requests: Requests, kinds: int) -> list[tuple[FloatArray, FloatArray]]:
    """Prompts and answers that stand for each class: some that were seen, or typical ones."""
    of = class_of(requests.prompt_tokens, requests.output_tokens)
    found = []
    for number in range(COUNT):
        own = np.flatnonzero(of == number)
        if len(own) < _KINDS // 4:
            only = np.eye(COUNT)[number]
            prompt, output = _TYPICAL_PROMPT[number // 3], _TYPICAL_OUTPUT[number % 3]
            mix = mix_of_classes(only, np.full(COUNT, prompt), np.full(COUNT, output))
            found.append((mix.prompt_tokens, mix.output_tokens))
            continue
        order = own[np.lexsort((requests.output_tokens[own], requests.prompt_tokens[own]))]
        some = order[evenly(len(order), kinds)]
        found.append((requests.prompt_tokens[some].astype(np.float64), requests.output_tokens[some].astype(np.float64)))
    return found

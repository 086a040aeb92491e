"""A cluster under a load: engines behind a router, with a controller that starts, stops and steers them.

Each instance answers the requests that it is sent as the engine of :mod:`wastenot.serving.simulation.simulate` would, with a
policy of its own (:class:`Steered`) or with one that looks its clock up in the instance's :class:`ClockRule`. Around it:

- A request comes to the router and goes to an instance at once: to the first pool of its class (as predicted) in which an
  instance serves whose cache can hold it and which has room; where none has room, to the first that can. Of several that the
  router thinks equal it is the first one, by layout and then by number. Requests that nobody can take wait at the router,
  first come, first served.
- Where a route says how much may wait on an instance, it gets no more than that. Requests are held at the router until an
  instance of a pool on their route has room: at its next boundary, or when one more serves. They go in :class:`Route`'s
  order, each to the instance that the router would choose. What would be late at that instance, by the time that all prompts
  there take at the clock of its rule, is late for good.
- At the same time, requests come first, then hosts fail or are back, then the controller visits, then steps end.
- An instance that is stopped, parked or re-sharded finishes what it has first. Re-sharded ones wait for each other.
- A host that fails takes its instances along. What they had comes to the router again: tokens that were made are not made
  again, but prefilled with the prompt. The energy of steps that were cut off is spent.
- GPUs of a failed host draw nothing, those without an instance draw ``off_power_w``.
- The run ends with the last answer. Requests that wait at the router while nothing else is left to do are given up after an
  hour; they have no instance (-1), and their times are ``nan``.

The steps are made by :mod:`wastenot.serving.cluster.simulation.core`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster import classes
from wastenot.serving.cluster.model import Cluster, ClusterServed, ClusterView, Controller, Failure, Router
from wastenot.serving.cluster.simulation import core, records, router
from wastenot.serving.cluster.simulation.actions import Actions
from wastenot.serving.cluster.simulation.fleet import Fleet
from wastenot.serving.cluster.simulation.records import assign, column_of, longer, row_of, values_of
from wastenot.serving.cluster.simulation.served import cluster_served
from wastenot.serving.cluster.simulation.state import first_state
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import check_setting

_PATIENCE_S = 3600.0


class Answers(NamedTuple):
    """What became of some requests, as in :class:`ClusterServed`; each of shape (requests,)."""

    instance: IndexArray
    sent_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    late_tokens: IndexArray


def simulate_cluster(
    requests: Requests,
    cluster: Cluster,
    controller: Controller,
    *,
    router: Router = Router.LEAST_REQUESTS,
    predicted_tokens: FloatArray | None = None,
    failures: Sequence[Failure] = (),
    seed: int = 0,
    bin_s: float = 60.0,
) -> ClusterServed:
    """Run a cluster under requests that are there as a whole: what :class:`ClusterRun` serves, with all that became of each.

    ``predicted_tokens`` are answers' lengths as router and controller are told; by default the true ones.
    """
    told = None if predicted_tokens is None else lambda _: predicted_tokens
    whole: list[Answers] = []
    served = ClusterRun(
        (requests,), cluster, controller, lambda _, answers: whole.append(answers),
        router=router, predict=told, failures=failures, seed=seed, bin_s=bin_s,
    ).served()  # fmt: skip
    return replace(served, **whole[0]._asdict()) if whole else served


def make_ready(cluster: Cluster) -> None:
    """Have the simulator compiled, so that processes that are started later need not, each for itself."""
    controller = cast("Controller", None)  # there are no requests to control
    core.make_ready(ClusterRun((), cluster, controller, print).fleet.arrays)


def _check(cluster: Cluster, failures: Sequence[Failure]) -> None:
    if not cluster.layouts or len(cluster.changes.start_s) != len(cluster.layouts):
        raise BadInputError("a cluster needs layouts, and `start_s` for each of them")
    for place, engine in enumerate(cluster.layouts):
        if not 1 <= engine.gpus <= cluster.gpus_per_host:
            raise BadInputError(f"layout {place} needs {engine.gpus} GPUs; a host has {cluster.gpus_per_host}")
    for failure in failures:
        if not 0 <= failure.host < cluster.hosts:
            raise BadInputError(f"host {failure.host} cannot fail; there are hosts 0 to {cluster.hosts - 1}")
        if not failure.at_s >= 0 or (failure.back_s is not None and failure.back_s < failure.at_s):
            raise BadInputError("a host fails from 0 s on, and is back after it has failed")


def _check_fit(requests: Requests, cluster: Cluster, before: int) -> None:
    """Refuse a request that no cache can hold; ``before`` came before these."""
    tokens = requests.prompt_tokens + requests.output_tokens
    fits = np.zeros(len(requests), dtype=bool)
    for engine in cluster.layouts:
        fits |= -(-tokens // engine.block_tokens) <= engine.cache_blocks
    if not fits.all():
        first, most = int(np.argmin(fits)), max(each.cache_blocks * each.block_tokens for each in cluster.layouts)
        raise BadInputError(
            f"request {before + first + 1}: {requests.prompt_tokens[first]} + {requests.output_tokens[first]} tokens do not "
            f"fit into the cache of {most} tokens; leave it out or give the engine more memory"
        )


def _added(counts: IndexArray, at: IndexArray) -> IndexArray:
    """Counts by bin and class, with some more."""
    size = (max(len(counts), int(at.max(initial=0)) + 1) + classes.COUNT - 1) // classes.COUNT * classes.COUNT
    return np.bincount(at, minlength=size) + np.pad(counts, (0, size - len(counts)))


class ClusterRun:
    """A run under more requests than memory holds: they come in parts, and go when all of a part are answered.

    Args:
        parts: of the load, each from where the one before ended, their times counted from the beginning of the run.
        cluster: that serves it.
        controller: that steers it.
        answered: is called with each part, in their order, and what became of it.
        router: how an instance is chosen for a request.
        predict: answers' lengths of a part as router and controller are told; by default the true ones.
        failures: of hosts.
        seed: of what is drawn at random.
        bin_s: width of the timeline's bins.

    Raises:
        BadInputError: layouts or failures that make no run.
    """

    def __init__(
        self,
        parts: Iterable[Requests],
        cluster: Cluster,
        controller: Controller,
        answered: Callable[[Requests, Answers], object],
        *,
        router: Router = Router.LEAST_REQUESTS,
        predict: Callable[[Requests], FloatArray] | None = None,
        failures: Sequence[Failure] = (),
        seed: int = 0,
        bin_s: float = 60.0,
    ) -> None:
        _check(cluster, failures)
        self.later, self.cluster, self.controller = iter(parts), cluster, controller
        self.predict, self.bin_s, self.answered = predict, bin_s, answered
        self.parts: list[Requests] = []
        self.last_s = 0.0
        self.arrivals = self.missed = np.zeros(0, dtype=np.intp)
        state = first_state(cluster, router, seed=seed, bin_s=bin_s, predicts=predict is not None)
        self.fleet = Fleet(cluster, failures, state)
        self.actions = Actions(self.fleet, router)

    def served(self) -> ClusterServed:
        """Run, and what came of it; arrays by request are empty.

        Raises:
            BadInputError: a request that no layout's cache can hold; a period or bins that make no run; a part that begins
                before the one before it ends.
            OutsideProfileError: a step that the tables do not cover.
        """
        if not self.controller.period_s > 0:
            raise BadInputError(f"`period_s` of '{self.controller.name}' ({self.controller.period_s:g}) must be above 0")
        if not 0 < self.bin_s < math.inf:
            raise BadInputError(f"`bin_s` ({self.bin_s:g}) must be above 0")
        self.run()
        end_s = float(self.fleet.numbers.now_s)
        self._cover(end_s)
        self.fleet.settle(end_s)
        self._hand_over(True)
        return cluster_served(self.fleet, self.controller.name, self.arrivals, self.missed, self.bin_s, end_s)

    def get_ready(self, slots: int) -> None:
        """Have the controller begin, all requests come, and room for a number of them in the cluster at once."""
        self.actions.act(0.0, self.controller.begin(self.cluster), begins=True)
        self.fleet.arrange(0.0)
        while self.fleet.numbers.more:
            self._next_part()
        self._more_slots(slots)

    def run(self) -> None:
        """Go on until all requests are answered, or nothing can be done for those that are left."""
        numbers = self.fleet.numbers
        self.actions.act(0.0, self.controller.begin(self.cluster), begins=True)
        visits, visit_s, stuck_s = 0, self.controller.period_s, math.inf
        while True:
            self.fleet.arrange(float(numbers.now_s))
            until_s = min(visit_s, self.fleet.timers[0][0] if self.fleet.timers else math.inf)
            why = self._run(until_s)
            if why == records.DONE:
                break
            if why == records.UNTIL:
                if until_s == math.inf:
                    break
                numbers.now_s = until_s
                self._cover(until_s)
                if self.fleet.timers and self.fleet.timers[0][0] == until_s:
                    self.fleet.fail_or_back(until_s)
                    continue
                idle = numbers.next == numbers.requests and not numbers.more and numbers.left == numbers.unplaced_count
                stuck_s = min(stuck_s, until_s) if idle else math.inf
                if until_s - stuck_s > _PATIENCE_S:
                    break
                visits += 1
                visit_s = (visits + 1) * self.controller.period_s
                self.actions.act(until_s, self.controller.control(self._view(until_s)))
            elif why == records.EMPTY:
                self.fleet.emptied(int(numbers.which), float(numbers.now_s))
            elif why == records.READY:
                self.fleet.begin(int(numbers.which), float(numbers.now_s))
            elif why == records.SLOTS:
                self._more_slots()
            elif why == records.MORE:
                self._next_part()
            elif why == records.BINS:
                self._cover(2 * len(self.fleet.arrays.bins) * self.bin_s)
            else:
                self._refuse(int(numbers.which))

    def _run(self, until_s: float) -> int:
        """As :func:`core.run`, and policies are asked on the way."""
        while (why := core.run(self.fleet.arrays, until_s)) == records.ASK:
            each = self.fleet.instances[int(self.fleet.arrays.told[0])]
            policy, answer = each.policy, self.fleet.arrays.answer
            assert policy is not None, "only steered instances ask their policy"
            choice = policy.choose(self.fleet.look_into())
            check_setting(choice.setting, self.cluster.layouts[each.layout], policy)
            answer[0], answer[1] = choice
        return why

    def _next_part(self) -> None:
        """The requests that come next; those whose part is answered go."""
        self._hand_over(False)
        numbers, part = self.fleet.numbers, next(self.later, None)
        if part is None:
            numbers.more = 0
            return
        if not len(part):
            return
        _check_fit(part, self.cluster, int(numbers.requests))
        if part.arrival_s[0] < self.last_s:
            raise BadInputError("a part of the requests begins before the previous one ends; pass them in order")
        self.last_s = float(part.arrival_s[-1])
        self.parts.append(part)
        self._cover(self.last_s)
        answers = np.zeros(len(part), dtype=records.ANSWER)
        answers["sent_s"] = answers["first_s"] = answers["finish_s"] = math.nan
        answers["instance"] = records.PENDING
        cached = np.zeros(len(part), dtype=np.int64) if part.cached_tokens is None else part.cached_tokens
        arrays = self.fleet.arrays
        self.fleet.arrays = arrays._replace(
            arrival_s=longer(arrays.arrival_s, part.arrival_s.astype(np.float64, copy=False)),
            prompt=longer(arrays.prompt, part.prompt_tokens.astype(np.int64, copy=False)),
            cached=longer(arrays.cached, cached.astype(np.int64, copy=False)),
            output=longer(arrays.output, part.output_tokens.astype(np.int64, copy=False)),
            answers=longer(arrays.answers, answers),
        )
        if self.predict is not None:
            told = np.asarray(self.predict(part), dtype=np.float64)
            self.fleet.arrays = self.fleet.arrays._replace(predicted=longer(arrays.predicted, told))
        numbers.requests += len(part)
        numbers.left += len(part)

    def _hand_over(self, all_of_them: bool) -> None:
        """Parts of the requests that are answered."""
        while self.parts:
            part, arrays = self.parts[0], self.fleet.arrays
            count = len(part)
            head = arrays.answers[:count]
            instance = values_of(head, "instance").astype(np.intp)
            if not all_of_them and (instance == records.PENDING).any():
                return
            sent_s, first_s, finish_s = (values_of(head, name).copy() for name in ("sent_s", "first_s", "finish_s"))
            late = values_of(head, "late").astype(np.intp)
            answers = Answers(instance, sent_s, first_s, finish_s, late)
            at = (part.arrival_s / self.bin_s).astype(np.intp) * classes.COUNT
            at += classes.class_of(part.prompt_tokens, part.output_tokens)
            self.arrivals = _added(self.arrivals, at)
            self.missed = _added(self.missed, at[~self.cluster.deadlines.kept(part, answers)])
            self.answered(part, answers)
            del self.parts[0]
            self.fleet.numbers.gone += count
            self.fleet.arrays = arrays._replace(
                arrival_s=arrays.arrival_s[count:],
                prompt=arrays.prompt[count:],
                cached=arrays.cached[count:],
                output=arrays.output[count:],
                predicted=arrays.predicted[count:],
                answers=arrays.answers[count:],
            )

    def _cover(self, until_s: float) -> None:
        """The timeline reaches beyond a time."""
        missing = int(until_s / self.bin_s) + 3 - len(self.fleet.arrays.bins)
        if missing > 0:
            more = np.zeros(max(missing, len(self.fleet.arrays.bins)), dtype=records.BIN)
            self.fleet.arrays = self.fleet.arrays._replace(bins=longer(self.fleet.arrays.bins, more))

    def _more_slots(self, least: int = 1024) -> None:
        had = len(self.fleet.arrays.slots)
        more = np.zeros(max(had, least), dtype=records.SLOT)
        more["after"] = np.arange(had + 1, had + len(more) + 1)
        more["after"][-1] = -1
        self.fleet.arrays = self.fleet.arrays._replace(slots=longer(self.fleet.arrays.slots, more))
        self.fleet.numbers.spare = had

    def _refuse(self, which: int) -> None:
        """Say of which step the tables know nothing."""
        instance = row_of(self.fleet.arrays.instances, which)
        tables = self.cluster.layouts[self.fleet.instances[which].layout].tables
        setting, tokens, batch = int(instance.setting), int(instance.step_tokens), int(instance.step_batch)
        past, context = float(instance.past_tokens), float(instance.mean_context)
        if tokens and batch:
            tables.mixed(setting, tokens, past, batch, context)
        elif tokens:
            tables.prefill(setting, tokens, past)
        else:
            tables.decode(setting, batch, context)
        raise AssertionError("the tables cover a step that the simulator could not make")

    def _view(self, now_s: float) -> ClusterView:
        count, arrays, numbers = len(self.fleet.instances), self.fleet.arrays, self.fleet.numbers
        seen = [column_of(np.zeros(count, dtype=np.int64)) for _ in range(5)]
        core.look(arrays, now_s, *seen)
        at_router = [column_of(np.zeros(classes.COUNT, dtype=np.int64)) for _ in range(2)]
        if numbers.unplaced_count:
            router.look_held(arrays, now_s, *at_router)
        kinds = {name: values_of(arrays.kinds, name).copy() for name in records.KIND.names or ()}
        for name in kinds:
            assign(arrays.kinds, name, np.arange(classes.COUNT), np.zeros(classes.COUNT, dtype=records.KIND[name]))
        state, layout, pool, host = self.fleet.known[:, :count].copy()
        setting, running, waiting, waiting_tokens, context = (np.asarray(each, dtype=np.intp) for each in seen)
        held, held_late = (np.asarray(each, dtype=np.intp) for each in at_router)
        return ClusterView(
            now_s, state, layout, pool, host, setting, running, waiting, waiting_tokens, context, self.fleet.free.copy(),
            kinds["arrivals"], kinds["prompt_tokens"], kinds["output_tokens"], kinds["finished"], kinds["missed"],
            int(numbers.unplaced_count), held, held_late,
        )  # fmt: skip

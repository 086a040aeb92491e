"""The simulator's scheduler beside what a real vLLM's did with the same requests at the same times, step by step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from wastenot.core.setting import Setting
from wastenot.serving.cluster.simulation import core, records, trees
from wastenot.serving.cluster.simulation.records import row_of
from wastenot.serving.model.compiled import COMPILED
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import before_first_step, simulate

RECORDED = Path(__file__).parents[1] / "recorded" / "vllm-0.32.0.schedules.json"


@dataclass(frozen=True)
class Recording:
    """What a vLLM did.

    Attributes:
        engine: with its sizes; what its steps cost says nothing.
        requests: each at the time of the first step that it could be part of.
        deadlines: of the first tokens, in the order of the requests' priorities; no two prompts are of one length then.
        begin_s: of each step; shape (steps,).
        held: prompt tokens and decoding requests of each step; shape (steps, 2).
    """

    engine: Engine
    requests: Requests
    deadlines: Deadlines
    begin_s: np.ndarray
    held: np.ndarray


def recording(name: str) -> Recording:
    found = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    knots, one = np.array([1.0, 5000.0]), np.ones((1, 2, 2))
    tables = EngineTables(
        (Setting(),), knots, knots - 1, one, one, knots, knots, one, one, np.ones(1), "fitted", "simulated"
    )
    sizes = {key: found["engine"][key] for key in ("cache_blocks", "block_tokens", "most_running", "most_step_tokens")}
    engine = Engine(tables, **sizes, switch_s=0.0, scheduler=Scheduler(found["engine"]["policy"]))
    lasted_us, held = np.array(found["steps"])[:, 0], np.array(found["steps"])[:, 1:]
    begin_s = 1e-6 * np.cumsum(lasted_us)
    step, prompt, output, priority_ms = np.array(found["requests"]).T
    deadlines = Deadlines((1.0,), ())
    if engine.scheduler == Scheduler.PRIORITY:
        order, due_s = np.argsort(prompt), 1e-3 * priority_ms - begin_s[step]
        due_s = (due_s - due_s.min() + 1.0)[order].tolist()
        deadlines = Deadlines(tuple(due_s), tuple(prompt[order][1:].tolist()))
    return Recording(engine, Requests(begin_s[step], prompt, output), deadlines, begin_s, held)


def simulated(recorded: Recording) -> Iterator[tuple[int, int]]:
    """Prompt tokens and decoding requests of each of the simulator's steps, which last as long as those of the record."""
    state = before_first_step(recorded.requests, recorded.engine, recorded.deadlines, len(recorded.requests))
    for begin_s, end_s in zip(recorded.begin_s, [*recorded.begin_s[1:], math.inf], strict=True):
        assert core.run(state, math.nextafter(begin_s, math.inf)) == records.UNTIL
        instance, numbers = row_of(state.instances, 0), row_of(state.numbers, 0)
        yield int(instance.step_tokens), int(instance.step_batch)
        instance.steps, instance.step_s, instance.step_more_s, instance.end_s = 1, end_s - begin_s, 0.0, end_s
        state.events[int(numbers.leaves)] = end_s
        trees.grow_tree(state.events, 0, int(numbers.leaves))


@pytest.mark.skipif(not COMPILED, reason="a run's state is read as arrays")
@pytest.mark.parametrize(
    ("name", "steps", "equal"), [("roomy", 1001, 1001), ("tight", 1501, 1501), ("priority", 1501, 1498)]
)
def test_each_step_holds_what_it_held_in_vllm(name: str, steps: int, equal: int) -> None:
    """By priority, three differ: vLLM ends a step where a request is preempted for itself, and those after it wait."""
    recorded = recording(name)
    held = np.array(list(simulated(recorded)))
    assert len(held) == steps
    assert int((held == recorded.held).all(axis=1).sum()) == equal >= 0.95 * steps


def test_the_records_fill_steps_seats_and_cache() -> None:
    roomy, tight, priority = (recording(name) for name in ("roomy", "tight", "priority"))
    tokens = roomy.held.sum(axis=1)
    assert (tokens == roomy.engine.most_step_tokens).sum() > 100, "chunks"
    assert (roomy.held[:, 1] == roomy.engine.most_running).sum() > 100, "no seat is free"
    assert (roomy.held > 0).all(axis=1).sum() > 200, "prompts beside decoding requests"
    for each in (tight, priority):
        served = simulate(each.requests, each.engine, Fixed())
        assert served.preemptions.sum() > 10

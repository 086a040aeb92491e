"""Policies that steer one engine's clock, run beside each other on one load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from wastenot.core.errors import BadInputError
from wastenot.core.progress import Progress, Silent
from wastenot.serving.model.capacity import Capacity, best_step_tokens, capacity
from wastenot.serving.model.comparison import PolicyResult, result_of
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.lengths import log_normal_lengths
from wastenot.serving.model.loads import at_rate
from wastenot.serving.model.requests import Requests
from wastenot.serving.policies.best_fixed import best_fixed, fixed_clocks
from wastenot.serving.policies.by_name import maker_of
from wastenot.serving.policies.oracle import run_oracle
from wastenot.serving.simulation.policy import Fixed, Policy
from wastenot.serving.simulation.served import Served
from wastenot.serving.simulation.simulate import simulate

PolicyName = Literal["greatest", "fixed", "throttllem", "greenllm", "price", "by-metrics", "oracle"]
POLICY_NAMES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)

DEFAULT_POLICIES: Final = POLICY_NAMES[:-2]
"""All but the one that sees metrics alone, and the oracle, which takes minutes."""

_BIN_S = 0.25  # of time lines
_TRIED_S = 600.0  # of a trace, by which the budget of a step is chosen


@dataclass(frozen=True, slots=True, eq=False)
class Steered:
    """One policy's run.

    Attributes:
        name: of the policy.
        result: in numbers.
        served: the run.
    """

    name: PolicyName
    result: PolicyResult
    served: Served


@dataclass(frozen=True, slots=True, eq=False)
class Steering:
    """Policies beside each other.

    Attributes:
        engine: as it was run, with its budget of a step.
        deadlines: that were to be kept.
        requests: the load.
        duration_s: of the load.
        share: of the requests that are to keep all deadlines.
        capacity: of the greatest clock on this load; ``None`` where it was not asked for.
        runs: each policy's; the first is the greatest clock's.
    """

    engine: Engine
    deadlines: Deadlines
    requests: Requests
    duration_s: float
    share: float
    capacity: Capacity | None
    runs: tuple[Steered, ...]

    @property
    def rate_per_s(self) -> float:
        """Requests per second, on average."""
        return len(self.requests) / self.duration_s

    def saved(self, run: Steered) -> float:
        """Share of the greatest clock's energy that a policy saved; worth something only where it attains as much."""
        return 1.0 - run.result.energy_j / self.runs[0].result.energy_j


def steer(
    engine: Engine,
    trace: Requests,
    *,
    load: float | None = None,
    rate_per_s: float | None = None,
    step_tokens: int | None = None,
    policies: Sequence[PolicyName] = DEFAULT_POLICIES,
    deadlines: Deadlines = LITERATURE,
    share: float = 0.99,
    length_error: float = 0.3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Steering:
    """Run policies on a trace.

    Args:
        engine: whose clock is steered.
        trace: of requests.
        load: bring the trace to this share of the greatest clock's capacity.
        rate_per_s: or to this rate; by neither, it is taken as it is.
        step_tokens: most new tokens of a step; by default the budget with which the greatest clock can take most.
        policies: to run; the greatest clock always is.
        deadlines: to be kept.
        share: of the requests that are to keep them all.
        length_error: standard deviation of the logarithm of predicted over true lengths; 0 for true ones.
        seed: of errors of predictions, and of what is left out of a trace to thin it.
        progress: is told of each policy.

    Raises:
        BadInputError: options that contradict each other, requests that do not fit the engine, or deadlines that even the
            greatest clock keeps at no rate, where one is to be found.
        OutsideProfileError: a step that the engine's tables do not cover.
    """
    if load is not None and rate_per_s is not None:
        raise BadInputError("`load` and `rate_per_s` both say how many requests come; give one of them")
    if load is not None and not 0 < load <= 2:
        raise BadInputError(f"`load` ({load:g}) must be above 0, and 2 (200 %) at most")
    if not len(trace):
        raise BadInputError("the trace holds no requests")
    progress = progress or Silent()
    progress.begin(len(policies) + 1)
    duration_s = _duration_s(trace)
    if step_tokens is None:
        progress.say("choosing how many tokens a step may have")
        first = trace.part(0.0, _TRIED_S) if duration_s > _TRIED_S else trace
        first_s = min(duration_s, _TRIED_S)
        engine = best_step_tokens(
            lambda rate: at_rate(first, rate, first_s, seed=seed), engine, deadlines, share=share
        ).engine
    else:
        engine = replace(engine, most_step_tokens=step_tokens)
    reached = None
    if load is not None:
        progress.say("looking for the highest rate that the greatest clock takes")
        reached = capacity(lambda rate: at_rate(trace, rate, duration_s, seed=seed), engine, deadlines, share=share)
        rate_per_s = load * reached.rate_per_s
    requests = trace if rate_per_s is None else at_rate(trace, rate_per_s, duration_s, seed=seed)
    if not len(requests):
        raise BadInputError("at this rate no request comes while the trace lasts; give a longer trace or a higher rate")
    predicted = log_normal_lengths(requests.output_tokens, sigma=length_error, seed=seed)
    runs: list[Steered] = []
    for name in dict.fromkeys(("greatest", *policies)):
        progress.step(TITLES[name])
        if name == "oracle":
            _, served = run_oracle(requests, engine, deadlines, share=share)
        else:
            served = simulate(
                requests,
                engine,
                _policy(name, requests, engine, deadlines, share, length_error),
                deadlines=deadlines,
                predicted_tokens=predicted,
                timeline_s=_BIN_S,
            )
        runs.append(Steered(name, result_of(TITLES[name], served, engine, deadlines), served))
    return Steering(engine, deadlines, requests, duration_s, share, reached, tuple(runs))


TITLES: Final[dict[PolicyName, str]] = {
    "greatest": "greatest clock",
    "fixed": "best fixed clock (hindsight)",
    "throttllem": "throttLL'eM",
    "greenllm": "GreenLLM",
    "price": "price policy",
    "by-metrics": "metrics policy",
    "oracle": "oracle",
}


def _policy(
    name: PolicyName, requests: Requests, engine: Engine, deadlines: Deadlines, share: float, length_error: float
) -> Policy:
    if name == "greatest":
        return Fixed()
    if name == "fixed":
        return Fixed(best_fixed(fixed_clocks(requests, engine, deadlines), share).setting)
    return maker_of(name, length_error=length_error)()


def _duration_s(trace: Requests) -> float:
    """Of a trace: to its last request, and as long as it is from one to the next on average."""
    last = float(trace.arrival_s[-1])
    return last * (1.0 + 1.0 / max(len(trace) - 1, 1)) or 1.0

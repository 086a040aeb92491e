"""Policies that steer one engine's clock, run beside each other on one load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, get_args

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.progress import Progress, Silent
from wastenot.core.result import HasDocument, HasPage
from wastenot.serving.model.band import Band, band, idle_varied
from wastenot.serving.model.capacity import Capacity, best_step_tokens, capacity
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine, Scheduler, SchedulerName, core_clocks_mhz
from wastenot.serving.model.loads import at_rate
from wastenot.serving.model.profile_file import EngineProfile, read_engine
from wastenot.serving.model.requests import Requests, log_normal_lengths
from wastenot.serving.model.traces import read_trace
from wastenot.serving.policies.by_name import NAMES, Name, maker_of
from wastenot.serving.policies.oracle import run_oracle
from wastenot.serving.simulation.policy import Fixed, Policy
from wastenot.serving.simulation.served import Served, gap_percentile_s
from wastenot.serving.simulation.simulate import simulate


@dataclass(frozen=True, slots=True)
class FixedClock:
    """One clock throughout a load.

    Attributes:
        setting: an index into the settings of the engine's tables.
        attainment: share of the requests that kept all of their deadlines.
        energy_j: of the run.
    """

    setting: int
    attainment: float
    energy_j: float


def fixed_clocks(requests: Requests, engine: Engine, deadlines: Deadlines) -> tuple[FixedClock, ...]:
    """What a policy that steers must beat: each setting throughout, by falling clock.

    The lowest clocks keep no deadlines and the greatest waste energy; one in between is often nearly as good as steering. It
    has to be chosen before the load is known, so it is chosen on one part of a trace and judged on another; the one that
    hindsight would have chosen stands beside it. Settings end with the first that keeps the deadlines of less than half the
    requests: lower ones keep fewer still, and an engine that cannot keep up with its load takes long to simulate.
    """
    found: list[FixedClock] = []
    for setting in reversed(range(len(engine.tables.settings))):
        served = simulate(requests, engine, Fixed(setting), deadlines=deadlines)
        found.append(FixedClock(setting, served.attainment(deadlines), served.total_energy_j))
        if found[-1].attainment < 0.5:
            break
    return tuple(found)


def best_fixed(clocks: tuple[FixedClock, ...], share: float) -> FixedClock:
    """The clock of least energy among those that attain a share; where none does, the one that attains most."""
    enough = [each for each in clocks if each.attainment >= share]
    if not enough:
        return max(clocks, key=lambda each: each.attainment)
    return min(enough, key=lambda each: each.energy_j)


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """How a policy did.

    Attributes:
        policy: its name.
        energy_j: of the run.
        energy_per_token_j: for each token made.
        attainment: share of the requests that kept all of their deadlines.
        ttft_p99_s: 99th percentile of the time to the first token for each class of prompts; ``nan`` for an empty class.
        tbt_p99_s: 99th percentile of the time between two tokens, of all requests together.
        mean_core_mhz: ceiling of the core clock, over the time of the run; where the driver chooses, the greatest there is.
            ``None`` where no setting has one.
        power_w: mean of the run.
        switches: of the clock.
        preemptions: of requests, for want of cache.
    """

    policy: str
    energy_j: float
    energy_per_token_j: float
    attainment: float
    ttft_p99_s: tuple[float, ...]
    tbt_p99_s: float
    mean_core_mhz: float | None
    power_w: float
    switches: int
    preemptions: int


def result_of(policy: str, served: Served, engine: Engine, deadlines: Deadlines) -> PolicyResult:
    """A run in numbers."""
    requests = served.requests
    waited = served.first_token_s - requests.arrival_s
    kind = np.searchsorted(deadlines.prompt_below, requests.prompt_tokens, side="right")
    clocks = core_clocks_mhz(engine)
    mean = None if clocks is None else float(np.dot(served.setting_s, clocks) / served.setting_s.sum())
    return PolicyResult(
        policy,
        float(served.total_energy_j),
        float(served.energy_per_token_j),
        served.attainment(deadlines),
        tuple(
            float(np.percentile(waited[kind == each], 99)) if (kind == each).any() else float("nan")
            for each in range(len(deadlines.ttft_s))
        ),
        gap_percentile_s(served.gap_counts, 0.99),
        mean,
        float(served.total_energy_j / served.end_s),
        int(served.switches),
        int(served.preemptions.sum()),
    )


PolicyName = Literal["greatest", "fixed", Name, "oracle"]
POLICY_NAMES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)

DEFAULT_POLICIES: Final = tuple(name for name in POLICY_NAMES if name not in ("by-metrics", "oracle"))
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

    @property
    def hindsight(self) -> bool:
        """Whether it knows the requests to come."""
        return self.name in ("fixed", "oracle")


@dataclass(frozen=True, slots=True, eq=False)
class Steering(HasDocument, HasPage):
    """Policies beside each other.

    Attributes:
        engine: as it was run, with its budget of a step.
        deadlines: that were to be kept.
        requests: the load.
        duration_s: of the load.
        share: of the requests that are to keep all deadlines.
        capacity: of the maximum clock on this load; ``None`` where it was not asked for.
        runs: each policy's; the first is the maximum clock's.
        source: file of the engine; empty where it has none.
        trace: file of the requests; empty where they have none.
        trace_requests: of the trace, before it was brought to the load.
        with_assumed: the same with clocks that were neither measured nor fitted, where those were asked for.
        stock: the same with an engine that serves first come, first served, where this one prefills by deadline.
    """

    drawn_by: ClassVar[str] = "wastenot.serving.page.steer_page:steer_page"
    told_by: ClassVar[str] = "wastenot.serving.documents:steering_document"

    engine: Engine
    deadlines: Deadlines
    requests: Requests
    duration_s: float
    share: float
    capacity: Capacity | None
    runs: tuple[Steered, ...]
    source: str = ""
    trace: str = ""
    trace_requests: int | None = None
    with_assumed: Steering | None = None
    stock: Steering | None = None

    @property
    def rate_per_s(self) -> float:
        """Requests per second, on average."""
        return len(self.requests) / self.duration_s

    def saved(self, run: Steered) -> float:
        """Share of the maximum clock's energy that a policy saved; worth something only where it attains as much."""
        return 1.0 - run.result.energy_j / self.runs[0].result.energy_j

    def again(self, run: Steered) -> Steered:
        """The run of the same policy."""
        return next(each for each in self.runs if each.name == run.name)

    def attains(self, run: Steered) -> bool:
        """Whether a policy met the deadlines of as many requests as is asked."""
        return run.result.attainment >= self.share

    @property
    def best(self) -> Steered:
        """The policy that saved most of those that attained what was asked; the maximum clock where no other did.

        Those that know the requests to come do not count: they cannot be had.
        """
        attained = [run for run in self.runs if self.attains(run) and not run.hindsight]
        return max(attained or self.runs[:1], key=self.saved)

    @property
    def cap(self) -> Steered | None:
        """The run at the lowest clock throughout, where the best policy hardly leaves it: nothing else is needed then."""
        best, fixed = self.best, next((run for run in self.runs if run.name == "fixed"), None)
        if best is self.runs[0] or fixed is None or not self.attains(fixed):
            return None
        return fixed if all(self.stays_lowest(run) for run in (best, fixed)) else None

    def stays_lowest(self, run: Steered) -> bool:
        """Whether a run hardly leaves the lowest clock."""
        mean, lowest = run.result.mean_core_mhz, self.lowest_mhz
        return mean is not None and lowest is not None and mean <= 1.01 * lowest

    @property
    def headline(self) -> Steered:
        """What the headline is of: the clock fixed in hindsight where policies do no more, else the best policy."""
        return self.cap or self.best

    @property
    def band(self) -> Band | None:
        """What the headline's saving becomes with other idle power; ``None`` where nothing saves."""
        run, first, idle_w = self.headline, self.runs[0], self.engine.idle_gpu_w or 1.0
        if run is first:
            return None
        sums = [(each.result.energy_j, each.served.energy_j["idle"] / idle_w) for each in (first, run)]
        return band(run.name, self.saved(run), idle_varied(*sums))

    @property
    def lowest_mhz(self) -> float | None:
        """The lowest clock of the engine's tables; ``None`` where they name none."""
        clocks = core_clocks_mhz(self.engine)
        return None if clocks is None else float(clocks.min())


def steer(
    engine: PathLike | EngineProfile | Engine,
    trace: PathLike | Requests,
    *,
    load: float | None = None,
    rate_per_s: float | None = None,
    step_tokens: int | None = None,
    policies: Sequence[PolicyName] | None = None,
    deadlines: Deadlines | None = None,
    length_error: float = 0.3,
    seed: int = 0,
    assumed_clocks: bool = False,
    scheduler: SchedulerName | None = None,
    progress: Progress | None = None,
) -> Steering:
    """Simulate policies that set the clock of one engine, beside each other on a trace; the maximum clock always runs, too.

    Args:
        engine: whose clock is set; of a profile or its file, that of the lowest parallel degree.
        trace: of requests, or its file.
        load: rescale the trace to this share of the load that the maximum clock sustains.
        rate_per_s: or to this rate, in requests per second; by neither, it is taken as it is.
        step_tokens: most new tokens of a step; by default what sustains the highest load.
        policies: to run; by default all but the one that sees metrics alone, and the oracle, which takes minutes.
        deadlines: and the share of requests that is to meet them.
        length_error: of predicted answer lengths: the standard deviation of the logarithm of predicted over true ones.
        seed: of the prediction errors.
        assumed_clocks: run the policies with clocks that were neither measured nor fitted, too, whose steps' cost is
            assumed (``with_assumed`` of what is found).
        scheduler: of the engine; by default its own, which is first come, first served. By ``deadline``, which no stock
            engine offers, policies are run on a stock engine, too (``stock`` of what is found).
        progress: receives each policy.

    Raises:
        BadInputError: a file or an argument cannot be used, the requests do not fit the engine, or a rate is to be found and
            even the maximum clock meets the deadlines at none.
        OutsideProfileError: a step that the engine's tables do not cover.
    """
    policies, due = DEFAULT_POLICIES if policies is None else policies, deadlines or LITERATURE
    _check(policies, load, rate_per_s, length_error)
    source, path = (os.fspath(each) if isinstance(each, str | os.PathLike) else "" for each in (engine, trace))
    engine = read_engine(engine) if isinstance(engine, str | os.PathLike) else engine
    engine = engine.engine() if isinstance(engine, EngineProfile) else engine
    engine = engine if scheduler is None else replace(engine, scheduler=Scheduler.named(scheduler))
    recorded = read_trace(trace).requests if isinstance(trace, str | os.PathLike) else trace
    if not len(recorded):
        raise BadInputError("the trace holds no requests")
    share = due.share
    names = tuple(dict.fromkeys(("greatest", *policies)))
    whole, known = engine, engine.known_settings
    both = assumed_clocks and 0 < len(known) < len(engine.tables.settings)
    engine = engine if assumed_clocks and not known else engine.within_known_clocks()
    progress = progress or Silent()
    by_deadline = engine.scheduler == Scheduler.DEADLINE
    progress.begin((1 + both + by_deadline) * len(names))
    duration_s = _duration_s(recorded)
    if step_tokens is None:
        progress.say("choosing the number of tokens per step")
        first = recorded.part(0.0, _TRIED_S) if duration_s > _TRIED_S else recorded
        first_s = min(duration_s, _TRIED_S)
        engine = best_step_tokens(lambda rate: at_rate(first, rate, first_s, seed=seed), engine, due, share=share).engine
    else:
        engine = replace(engine, most_step_tokens=step_tokens)
    reached = None
    if load is not None:
        progress.say("finding the highest rate that the maximum clock sustains")
        reached = capacity(lambda rate: at_rate(recorded, rate, duration_s, seed=seed), engine, due, share=share)
        rate_per_s = load * reached.rate_per_s
    requests = recorded if rate_per_s is None else at_rate(recorded, rate_per_s, duration_s, seed=seed)
    if not len(requests):
        raise BadInputError("at this rate no request arrives during the trace; give a longer trace or a higher rate")
    predicted = log_normal_lengths(requests.output_tokens, sigma=length_error, seed=seed)

    def run(name: PolicyName, engine: Engine) -> Steered:
        progress.step(TITLES[name])
        if name == "oracle":
            _, served = run_oracle(requests, engine, due, share=share)
        else:
            served = simulate(
                requests,
                engine,
                _policy(name, requests, engine, due, share, length_error),
                deadlines=due,
                predicted_tokens=predicted,
                timeline_s=_BIN_S,
            )
        return Steered(name, result_of(TITLES[name], served, engine, due), served)

    def beside(engine: Engine) -> Steering:
        runs = tuple(run(name, engine) for name in names)
        return Steering(engine, due, requests, duration_s, share, reached, runs, source, path, len(recorded))

    found = beside(engine)
    whole = replace(whole, most_step_tokens=engine.most_step_tokens)
    if by_deadline:
        found = replace(found, stock=beside(replace(engine, scheduler=Scheduler.FCFS)))
    return replace(found, with_assumed=beside(whole)) if both else found


def _check(policies: Sequence[str], load: float | None, rate_per_s: float | None, length_error: float) -> None:
    for each in policies:
        if each not in POLICY_NAMES:
            raise BadInputError(f"`policies` {each}: is not one of {', '.join(POLICY_NAMES)}")
    if rate_per_s is not None and not 0 < rate_per_s < float("inf"):
        raise BadInputError(f"`rate_per_s` {rate_per_s:g}: must be above 0, and finite")
    if not 0 <= length_error < float("inf"):
        raise BadInputError(f"`length_error` {length_error:g}: must be a number of at least 0")
    if load is not None and rate_per_s is not None:
        raise BadInputError("`load` and `rate_per_s` both set the request rate; give only one of them")
    if load is not None and not 0 < load <= 2:
        raise BadInputError(f"`load` ({load:g}) must be above 0 and at most 2 (200 %)")


TITLES: Final[dict[PolicyName, str]] = {
    "greatest": Fixed().name,
    "fixed": "fixed clock, chosen in hindsight",
    "oracle": "oracle",
    **{name: maker_of(name)().name for name in NAMES},
}


def _policy(
    name: PolicyName, requests: Requests, engine: Engine, deadlines: Deadlines, share: float, length_error: float
) -> Policy:
    if name == "greatest":
        return Fixed()
    if name == "fixed":
        return Fixed(best_fixed(fixed_clocks(requests, engine, deadlines), share).setting)
    assert name != "oracle", "it makes its own run"
    return maker_of(name, length_error=length_error)()


def _duration_s(trace: Requests) -> float:
    """Of a trace: to its last request, and as long as it is from one to the next on average."""
    last = float(trace.arrival_s[-1])
    return last * (1.0 + 1.0 / max(len(trace) - 1, 1)) or 1.0

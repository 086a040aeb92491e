"""The graph of an iteration: fixed work around instructions, by hand and against a simulation written anew."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from testbed.pipeline_timeline import UNITS, timeline
from testbed.small_pipelines import ONE_BY_ONE
from wastenot.core.errors import BadInputError
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.iteration_graph import ONCE, pipeline_graph, pipeline_parts
from wastenot.pipelines.model.profile import Fixed, PipelineProfile
from wastenot.pipelines.model.schedule import Instruction, PipelineSchedule
from wastenot.pipelines.model.schedules import build_schedule

WAITING_W = 2.0


def profile_of(schedule: PipelineSchedule, **more: object) -> PipelineProfile:
    """One way for each instruction: a unit of time as in the pictures, at 10 W."""
    keys = {(each.stage, each.name) for each in schedule.instructions}
    numbers = {(stage, name): (UNITS[name], 10.0 * UNITS[name]) for stage, name in sorted(keys)}
    ways = {key: choice([each]) for key, each in numbers.items()}
    return PipelineProfile("mine", "gpu", "measured", ways, numbers, WAITING_W, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_without_fixed_work_the_graph_is_the_schedule(name: str) -> None:
    schedule = build_schedule(name, ranks=3, micro_batches=5)
    profile = profile_of(schedule)
    graph = pipeline_graph(schedule, profile)
    plan, line = graph.least_time(), timeline(schedule)
    np.testing.assert_allclose(plan.start_s, line.start)
    assert plan.time_s == line.length
    busy = float((line.end - line.start).sum())
    assert plan.energy_j == pytest.approx(10.0 * busy + WAITING_W * (3 * line.length - busy))
    assert pipeline_parts(schedule, profile) == tuple(zip(schedule.rank.tolist(), schedule.instructions, strict=True))


def test_fixed_work_by_hand() -> None:
    # rank 0  |l F0|l F1|            |r B0 2|         |r B1 2|all-reduce 3|optimizer 1|
    # rank 1       |r F0|B0 2|r F1|B1 2|all-reduce 3|optimizer 1|
    schedule = build_schedule("1f1b", ranks=2, micro_batches=2)
    fixed = {
        (0, "load"): Fixed(0.5, 6.0),
        (0, "receive"): Fixed(0.25, 1.0),
        (1, "receive"): Fixed(0.25, 1.0),
        **{(stage, "all_reduce"): Fixed(3.0, 12.0) for stage in (0, 1)},
        **{(stage, "optimizer"): Fixed(1.0, 8.0) for stage in (0, 1)},
    }
    profile = profile_of(schedule, fixed=fixed, transfer_s=0.125)
    graph, parts = pipeline_graph(schedule, profile), pipeline_parts(schedule, profile)
    plan = graph.least_time()
    begin = {(rank, str(each)): float(start) for (rank, each), start in zip(parts, plan.start_s, strict=True)}
    first = 0.5 + 1.0 + 0.125  # F0 of rank 0 arrives
    assert begin[1, "receive of micro-batch 0 on stage 1"] == first
    assert begin[1, "forward of micro-batch 0 on stage 1"] == first + 0.25
    assert begin[1, "backward of micro-batch 0 on stage 1"] == first + 1.25
    assert begin[1, "receive of micro-batch 1 on stage 1"] == first + 3.25
    last = first + 3.25 + 0.25 + 1.0 + 2.0  # B1 of rank 1 ends
    assert begin[1, f"all_reduce of micro-batch {ONCE} on stage 1"] == last
    assert begin[0, "receive of micro-batch 1 on stage 0"] == last + 0.125
    assert begin[0, f"optimizer of micro-batch {ONCE} on stage 0"] == last + 0.125 + 0.25 + 2.0 + 3.0
    assert plan.time_s == last + 0.125 + 0.25 + 2.0 + 3.0 + 1.0
    energy = 10.0 * 12 + 2 * 6.0 + 4 * 1.0 + 2 * 12.0 + 2 * 8.0
    busy = 12.0 + 2 * 0.5 + 4 * 0.25 + 2 * 3.0 + 2 * 1.0
    assert plan.energy_j == pytest.approx(energy + WAITING_W * (2 * plan.time_s - busy))


def test_an_all_reduce_may_run_beside_the_last_backward() -> None:
    schedule = build_schedule("1f1b", ranks=2, micro_batches=2)

    def solved(time_s: float, overlapped: bool) -> tuple[float, float]:
        fixed = {
            **{(stage, "all_reduce"): Fixed(time_s, 5.0, overlapped=overlapped) for stage in (0, 1)},
            **{(stage, "optimizer"): Fixed(1.0) for stage in (0, 1)},
        }
        plan = pipeline_graph(schedule, profile_of(schedule, fixed=fixed)).least_time()
        return plan.time_s, plan.energy_j

    alone_s = timeline(schedule).length
    for hidden_s in (0.5, 2.0):  # the backward takes 2
        time_s, energy_j = solved(hidden_s, overlapped=True)
        assert time_s == alone_s + 1.0
        assert energy_j == pytest.approx(120.0 + 10.0 + WAITING_W * (2 * time_s - 12.0))
    assert solved(3.0, overlapped=True)[0] == alone_s + 2.0
    assert solved(3.0, overlapped=False)[0] == alone_s + 4.0


times = st.sampled_from([0.0, 0.25, 0.5, 2.0])


@given(
    st.sampled_from(ONE_BY_ONE),
    st.integers(1, 4),
    st.integers(1, 6),
    times,
    times,
    times,
    times,
    st.booleans(),
    st.booleans(),
)
def test_fixed_work_as_in_a_simulation(
    name: str,
    ranks: int,
    micro_batches: int,
    load_s: float,
    send_s: float,
    receive_s: float,
    transfer_s: float,
    own_send: bool,
    own_receive: bool,
) -> None:
    schedule = build_schedule(name, ranks=ranks, micro_batches=micro_batches)
    fixed = {(0, "load"): Fixed(load_s)}
    for stage in range(schedule.stages):
        fixed[stage, "send"] = Fixed(send_s, 3.0 if own_send else None)
        fixed[stage, "receive"] = Fixed(receive_s, 3.0 if own_receive else None)
    plan = pipeline_graph(schedule, profile_of(schedule, fixed=fixed, transfer_s=transfer_s)).least_time()
    time_s, works = _simulated(schedule, load_s, send_s, receive_s, transfer_s)
    assert plan.time_s == pytest.approx(time_s, rel=1e-12)
    energy_j = works["instruction"] * 10.0 + WAITING_W * (len(schedule.ranks) * time_s - works["instruction"])
    for part, own, each_s in (("send", own_send, send_s), ("receive", own_receive, receive_s)):
        if own and each_s:
            energy_j += works[part] * (3.0 - WAITING_W * each_s)
    assert plan.energy_j == pytest.approx(energy_j, rel=1e-9)


def _simulated(
    schedule: PipelineSchedule, load_s: float, send_s: float, receive_s: float, transfer_s: float
) -> tuple[float, dict[str, float]]:
    """The iteration's time: ranks are run one instruction after another, each with its load, receive and send."""
    home = {(each.stage, each.micro_batch): rank for rank, order in enumerate(schedule.ranks) for each in order}
    done: dict[tuple[str, int, int], float] = {}  # when the data are there for the next stage
    at, clock = [0] * len(schedule.ranks), [0.0] * len(schedule.ranks)
    works = {"instruction": 0.0, "send": 0.0, "receive": 0.0}
    backwards = ("backward", "backward_input")
    last = schedule.stages - 1
    while any(place < len(order) for place, order in zip(at, schedule.ranks, strict=True)):
        for rank, order in enumerate(schedule.ranks):
            while at[rank] < len(order):
                each = order[at[rank]]
                neighbour = {"forward": each.stage - 1}.get(each.name, each.stage + 1 if each.name in backwards else -1)
                crosses = 0 <= neighbour <= last and home[neighbour, each.micro_batch] != rank
                source = ("forward" if each.name == "forward" else "backward", neighbour, each.micro_batch)
                if 0 <= neighbour <= last and source not in done:
                    break
                if each.name == "forward" and each.stage == 0:
                    clock[rank] += load_s
                if crosses:
                    clock[rank] = max(clock[rank], done[source] + transfer_s) + receive_s
                    works["receive"] += 1
                clock[rank] += UNITS[each.name]
                works["instruction"] += UNITS[each.name]
                onward = {"forward": each.stage + 1}.get(each.name, each.stage - 1 if each.name in backwards else -1)
                leaves = 0 <= onward <= last and home[onward, each.micro_batch] != rank
                if leaves:
                    clock[rank] += send_s
                    works["send"] += 1
                if each.name == "forward" or each.name in backwards:
                    key = "forward" if each.name == "forward" else "backward"
                    done[key, each.stage, each.micro_batch] = clock[rank]
                at[rank] += 1
    return max(clock), works


def test_a_profile_that_does_not_fit_is_refused() -> None:
    schedule = build_schedule("1f1b", ranks=4, micro_batches=2)
    with pytest.raises(BadInputError) as error:
        pipeline_graph(build_schedule("interleaved", ranks=4, micro_batches=2), profile_of(schedule))
    assert str(error.value) == (
        "schedule interleaved has 8 stages on 4 ranks, profile mine 4 stages; both must have as many"
    )
    with pytest.raises(BadInputError) as error:
        pipeline_graph(build_schedule("zb-h1", ranks=4, micro_batches=2), profile_of(schedule))
    assert str(error.value) == "profile mine: lacks backward_input of stage 0, which schedule zb-h1 runs"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"transfer_s": -1.0}, "profile mine: transfer of -1 s: must be at least 0 and finite"),
        ({"transfer_s": float("nan")}, "profile mine: transfer of nan s: must be at least 0 and finite"),
        ({"replicas": 0}, "profile mine: 1 GPUs for a stage, 0 replicas: must be at least 1"),
        ({"gpus_per_stage": 0}, "profile mine: 0 GPUs for a stage, 1 replicas: must be at least 1"),
        ({"fixed": {(0, "recieve"): Fixed(1.0)}}, "profile mine: unknown fixed work 'recieve'; did you mean 'receive'?"),
        ({"fixed": {(2, "load"): Fixed(1.0)}}, "profile mine: load of stage 2: stages are 0 to 1"),
    ],
)
def test_bad_numbers_are_named(more: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError) as error:
        profile_of(build_schedule("1f1b", ranks=2, micro_batches=2), **more)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("numbers", [(-1.0, None), (float("inf"), None), (1.0, -1.0), (1.0, float("nan"))])
def test_fixed_work_takes_time_and_energy(numbers: tuple[float, float | None]) -> None:
    with pytest.raises(BadInputError, match="of fixed work: must be at least 0"):
        Fixed(*numbers)


def test_a_stage_may_be_on_two_ranks() -> None:
    # Chimera (Li and Hoefler, SC 2021): micro-batch 1 runs through the ranks the other way round.
    names = {"F": "forward", "B": "backward"}
    ranks = tuple(
        tuple(Instruction(names[letter], int(stage), int(micro_batch)) for stage, letter, micro_batch in order.split())
        for order in ("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1")
    )
    schedule = PipelineSchedule("chimera", 2, 2, ranks)
    fixed = {(stage, "all_reduce"): Fixed(1.0) for stage in (0, 1)}
    profile = profile_of(schedule, fixed=fixed)
    plan = pipeline_graph(schedule, profile).least_time()
    added = [(rank, each.stage) for rank, each in pipeline_parts(schedule, profile) if each.name == "all_reduce"]
    assert added == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert plan.time_s == 6.0 + 2.0  # no waiting at all, then both all-reduces

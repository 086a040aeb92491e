"""DualPipe: forwards and backwards at once, against the bubble that is published and an event simulation of our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from testbed.pipeline_timeline import timeline
from testbed.small_pipelines import NAMES, hastily, planned, small_profile
from testbed.written_schedules import write_schedule
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.derived import suited, with_pairs
from wastenot.pipelines.model.iteration_graph import baseline_of, pipeline_graph, pipeline_parts
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.profile import Fixed, PipelineProfile, listed_ways
from wastenot.pipelines.model.schedule import OVERLAPPED, Instruction, PipelineSchedule
from wastenot.pipelines.model.schedule_file import read_schedule
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.model.source import schedule_for
from wastenot.pipelines.page.page import planned_page
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.planner import plan_pipeline
from wastenot.pipelines.plan.rank_steps import PlanGraph

SHAPES = [(2, 4), (2, 10), (4, 8), (4, 14), (6, 12), (8, 16), (8, 20), (10, 40)]


def simulated(schedule: PipelineSchedule, takes: Callable[[Instruction, int], float]) -> tuple[float, list[float]]:
    """When the last rank is done, and for how long each works: ranks run in order, once data have arrived."""
    done: dict[tuple[str, int, int], float] = {}
    at = [0] * len(schedule.ranks)
    now, busy = ([0.0] * len(schedule.ranks) for _ in range(2))

    def data(each: Instruction) -> list[tuple[str, int, int]]:
        stage, batch = each.stage, each.micro_batch
        if each.name == "forward":
            return [("forward", stage - 1, batch)] if stage else []
        if each.name == "backward_weight":
            return [("gradient", stage, batch)]
        return [("forward", stage, batch), *([("gradient", stage + 1, batch)] if stage < schedule.stages - 1 else [])]

    left = len(schedule.instructions)
    while left:
        before = left
        for rank, order in enumerate(schedule.ranks):
            while at[rank] < len(order):
                each = order[at[rank]]
                forward = Instruction("forward", each.stage, each.micro_batch)
                passes = [each] if each.beside is None else [forward, each.beside]
                needed = [key for one in passes for key in data(one)]
                if not all(key in done for key in needed):
                    break
                time = takes(each, sum(map(len, schedule.ranks[:rank])) + at[rank])
                now[rank] = max([now[rank], *(done[key] for key in needed)]) + time
                busy[rank] += time
                for one in passes:
                    made = {"forward": "forward", "backward_weight": "weight"}.get(one.name, "gradient")
                    done[made, one.stage, one.micro_batch] = now[rank]
                at[rank] += 1
                left -= 1
        assert left < before, "deadlock"
    return max(now), busy


@pytest.mark.parametrize(("ranks", "micro_batches"), SHAPES)
@pytest.mark.parametrize("weight", [1.0, 0.9])
@pytest.mark.parametrize("hidden", [0.0, 0.4, 1.0])
def test_the_bubble_is_that_of_the_report(ranks: int, micro_batches: int, weight: float, hidden: float) -> None:
    # DeepSeek-V3 technical report, table 2: (PP/2 - 1)(F&B + B - 3W), where a forward takes as long as a backward for the
    # input; of the ranks in the middle, which run most pairs.
    forward, inputs = 1.0, 1.0
    backward = inputs + weight
    pair = forward + backward - hidden * forward
    times = {
        "forward": forward, "backward": backward, "backward_input": inputs, "backward_weight": weight, OVERLAPPED: pair,
    }  # fmt: skip
    schedule = build_schedule("dualpipe", ranks=ranks, micro_batches=micro_batches)
    length, busy = simulated(schedule, lambda each, _: times[each.name])
    bubble = (ranks / 2 - 1) * (pair + backward - 3.0 * weight)
    waiting = [length - each for each in busy]
    assert waiting[ranks // 2] == pytest.approx(bubble, abs=1e-9)
    assert waiting[ranks // 2 - 1] == pytest.approx(bubble, abs=1e-9)
    assert max(waiting) <= bubble + 1e-9
    if hidden == 0.0:
        assert waiting == pytest.approx([bubble] * ranks, abs=1e-9)
    assert timeline(schedule, times).length == pytest.approx(length, abs=1e-9)


@pytest.mark.parametrize(("ranks", "micro_batches"), SHAPES)
def test_both_directions_are_alike_and_hold_what_the_report_says(ranks: int, micro_batches: int) -> None:
    schedule = build_schedule("dualpipe", ranks=ranks, micro_batches=micro_batches)
    half = micro_batches // 2
    for rank, order in enumerate(schedule.ranks):
        mirrored = schedule.ranks[ranks - 1 - rank]
        assert [
            [(one.name, one.stage, (one.micro_batch + half) % micro_batches) for one in each.passes] for each in mirrored
        ] == [[(one.name, one.stage, one.micro_batch) for one in each.passes] for each in order]
        for each in order:
            if each.beside is not None:
                assert each.beside.stage == ranks - 1 - each.stage
    # Table 2: activations of PP + 1 micro-batches.
    assert max(timeline(schedule).held) == ranks + 1


@pytest.mark.parametrize(
    ("ranks", "micro_batches", "message"),
    [
        (3, 12, "ranks 3: schedule dualpipe needs an even number, as micro-batches enter at both ends"),
        (4, 9, "micro_batches 9: schedule dualpipe needs an even number, at least 2 for each rank: 8 or more"),
        (4, 6, "micro_batches 6: schedule dualpipe needs an even number, at least 2 for each rank: 8 or more"),
    ],
)
def test_it_takes_even_numbers_only(ranks: int, micro_batches: int, message: str) -> None:
    with pytest.raises(BadInputError) as error:
        build_schedule("dualpipe", ranks=ranks, micro_batches=micro_batches)
    assert str(error.value) == message


def test_an_odd_number_is_refused_by_the_name_that_it_was_given_by() -> None:
    with pytest.raises(BadInputError, match=r"^stages 3: schedule dualpipe needs an even number"):
        schedule_for("dualpipe", micro_batches=12, ranks=3)


@pytest.mark.parametrize("hidden", [0.0, 0.3, 1.0])
def test_a_pair_takes_between_the_longer_pass_and_both(hidden: float) -> None:
    profile = small_profile(2)
    both = with_pairs(profile, {0: 1, 1: 0}, hidden)
    for stage in (0, 1):
        forward, backward = (
            {label: (time_s, energy_j) for time_s, energy_j, label in listed_ways(profile.ways[key])}
            for key in ((stage, "forward"), (1 - stage, "backward"))
        )
        ways = listed_ways(both.ways[stage, OVERLAPPED])
        assert len(ways) == len(forward)
        for time_s, energy_j, label in ways:
            (f_s, f_j), (b_s, b_j) = forward[label], backward[label]
            saved_s = hidden * min(f_s, b_s)
            assert max(f_s, b_s) - 1e-12 <= time_s <= f_s + b_s
            assert time_s == pytest.approx(f_s + b_s - saved_s)
            assert energy_j == pytest.approx(f_j + b_j - profile.waiting_w * saved_s)
    assert f"{100 * hidden:g} % of the shorter one is assumed" in both.notes[-1]


def test_the_fraction_that_is_hidden_is_checked() -> None:
    for hidden in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadInputError, match="overlap"):
            with_pairs(small_profile(2), {0: 1}, hidden)


def test_pairs_that_were_measured_are_taken_as_they_are(tmp_path: Path) -> None:
    rows = ["stage,instruction,frequency,time,energy"]
    for stage, (name, time) in product(range(4), (("forward", 1.0), ("backward", 2.0), (OVERLAPPED, 2.25))):
        rows += [f"{stage},{name},{clock},{time * 1000 / clock},{300 * time}" for clock in (1000, 500)]
    (tmp_path / "pairs.csv").write_text("\n".join(rows))
    profile = read_perseus_csv(tmp_path / "pairs.csv", waiting_w=70.0)
    schedule = build_schedule("dualpipe", ranks=4, micro_batches=8)
    found = suited(profile, schedule)
    assert found.baseline[2, OVERLAPPED] == (2.25, 675.0)
    assert not any("at once" in note for note in found.notes)
    times = {"forward": 1.0, "backward": 2.0, "backward_input": 1.0, "backward_weight": 1.0, OVERLAPPED: 2.25}
    length, _ = simulated(schedule, lambda each, _: times[each.name])
    assert baseline_of(schedule, found).time_s == pytest.approx(length)


def test_split_backwards_alone_are_joined_for_it() -> None:
    schedule = build_schedule("dualpipe", ranks=2, micro_batches=4)
    split = small_profile(2, NAMES["zb-h1"])
    profile = suited(split, schedule, 0.0)
    for stage in (0, 1):
        parts = [split.baseline[1 - stage, name][0] for name in ("backward_input", "backward_weight")]
        if (stage, OVERLAPPED) in profile.baseline:
            assert profile.baseline[stage, OVERLAPPED][0] == pytest.approx(split.baseline[stage, "forward"][0] + sum(parts))
    assert (1, OVERLAPPED) in profile.baseline


def test_the_plan_is_the_best_there_is() -> None:
    """All plans of two ranks with two clocks."""
    schedule = build_schedule("dualpipe", ranks=2, micro_batches=4)

    def work(time_s: float) -> list[tuple[float, float, object]]:
        return [(time_s, 300.0 * time_s, Setting(1500.0)), (1.4 * time_s, 240.0 * time_s, Setting(1000.0))]

    passes = {"forward": 1.0, "backward": 2.1}
    ways = {(stage, name): choice(work(time_s * (1.0 + 0.3 * stage))) for stage in (0, 1) for name, time_s in passes.items()}
    baseline = {key: listed_ways(each)[0][:2] for key, each in ways.items()}
    profile = suited(PipelineProfile("two", "toy", "simulated", ways, baseline, 60.0), schedule)
    graph = pipeline_graph(schedule, profile)
    within_s = 1.1 * graph.least_time().time_s
    options = [listed_ways(profile.ways[each.stage, each.name]) for each in schedule.instructions]
    least = np.inf
    for chosen in product((0, 1), repeat=len(options)):
        length, busy = simulated(schedule, lambda _, number, chosen=chosen: options[number][chosen[number]][0])
        if length <= within_s:
            work_j = sum(options[number][way][1] for number, way in enumerate(chosen))
            least = min(least, work_j + profile.waiting_w * (2 * length - sum(busy)))
    assert graph.least_energy(within_s).energy_j == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("energy_j", [None, 0.3])
def test_a_pair_receives_and_sends_for_both_of_its_passes(energy_j: float | None) -> None:
    schedule = PipelineSchedule(
        "mine", 2, 3,
        (
            (
                Instruction("forward", 0, 0), Instruction("forward", 0, 1),
                Instruction(OVERLAPPED, 0, 2, Instruction("backward", 0, 0)),
                Instruction("backward", 0, 1), Instruction("backward", 0, 2),
            ),
            tuple(Instruction(name, 1, batch) for batch in range(3) for name in ("forward", "backward")),
        ),
    )  # fmt: skip
    profile = suited(small_profile(2), schedule)
    fixed = {(0, name): Fixed(0.01, energy_j) for name in ("receive", "send")}
    graph = pipeline_graph(schedule, replace(profile, fixed=fixed))
    plain = pipeline_graph(schedule, profile)
    pair, forward = 2, 5 + 4  # the pair sends to the third forward of rank 1
    before, after = plain.least_time(), graph.least_time()
    # What it waits for was sent by the first forward, and is received by itself.
    assert after.start_s[pair] - before.start_s[pair] == pytest.approx(0.02)
    assert after.start_s[forward] >= after.start_s[pair] + after.part_time_s[pair] + 0.01 - 1e-12


def test_every_message_is_sent_and_received_once() -> None:
    schedule = build_schedule("dualpipe", ranks=4, micro_batches=8)
    profile = suited(small_profile(4), schedule)
    fixed = {(stage, name): Fixed(0.01, 0.3) for stage in range(4) for name in ("receive", "send")}
    names = [each.name for _, each in pipeline_parts(schedule, replace(profile, fixed=fixed))]
    # A forward and a backward of each micro-batch between neighbours.
    assert names.count("send") == names.count("receive") == 2 * 8 * 3


@pytest.mark.parametrize("ending", ["txt", "json"])
def test_files_hold_pairs(tmp_path: Path, ending: str) -> None:
    schedule = build_schedule("dualpipe", ranks=4, micro_batches=8)
    write_schedule(schedule, tmp_path / f"dualpipe.{ending}")
    assert read_schedule(tmp_path / f"dualpipe.{ending}") == schedule


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("0F0 (0F1;0B0)OVERLAP_F_B 0B1", None),
        ("(0F0;0B0)OVERLAP_F_B 0F1 0B1", "rank 0 runs forward of micro-batch 0 on stage 0 beside backward of micro-batch 0"),
        (
            "0F0 (0B0;0F1)OVERLAP_F_B 0B1",
            "'(0B0;0F1)OVERLAP_F_B': must be a forward and a whole backward, such as (0F3",
        ),
        ("0F0 (0F1;0I0)OVERLAP_F_B 0W0 0B1", "'(0F1;0I0)OVERLAP_F_B': must be a forward and a whole backward"),
        ("0F0 (0F1;0B0)OVERLAP_F_B 0B0 0B1", "backward of micro-batch 0 on stage 0 appears twice"),
    ],
)
def test_pairs_in_files_are_checked(tmp_path: Path, order: str, message: str | None) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(order)
    if message is None:
        assert read_schedule(path).ranks[0][1].beside == Instruction("backward", 0, 0)
        return
    with pytest.raises(BadInputError) as error:
        read_schedule(path)
    assert message in str(error.value)


def test_plans_are_written_read_and_shown(tmp_path: Path) -> None:
    made = planned("dualpipe", micro_batches=8, fixed=True, rungs=3)
    made.write(tmp_path / "plan.json")
    plan = read_pipeline_plan(tmp_path / "plan.json")
    assert plan == made.plan
    assert PlanGraph(plan).schedule == made.schedule
    assert plan.predicted.energy_j < plan.baseline.energy_j
    fewer = plan.ranks[0].model_copy(update={"beside": plan.ranks[0].beside[1:]})
    plan.model_copy(update={"ranks": (fewer, *plan.ranks[1:])}).sealed().write(tmp_path / "edited.json")
    with pytest.raises(BadInputError, match="beside them"):
        read_pipeline_plan(tmp_path / "edited.json")
    planned_page(made).write(tmp_path / "plan.html")
    assert "forward and backward at once" in (tmp_path / "plan.html").read_text()


def test_a_plan_of_nothing_hidden_takes_as_long_as_its_passes() -> None:
    schedule = build_schedule("dualpipe", ranks=4, micro_batches=8)
    profile = suited(small_profile(4), schedule, 0.0)
    with hastily():
        made = plan_pipeline(profile, schedule)
    length, _ = simulated(schedule, lambda each, _: profile.baseline[each.stage, each.name][0])
    assert made.plan.baseline.time_s == pytest.approx(length)

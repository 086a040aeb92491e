"""Schedules in files go round, and bad ones are refused in one line."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from testbed.small_pipelines import ONE_BY_ONE
from testbed.written_schedules import write_schedule
from wastenot.core.errors import BadInputError
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.schedule_file import read_schedule
from wastenot.pipelines.model.schedules import build_schedule

GOOD = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"


@pytest.mark.parametrize("suffix", [".json", ".txt", ".csv"])
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_schedule_is_read_as_it_was_written(tmp_path: Path, name: str, suffix: str) -> None:
    schedule = build_schedule(name, ranks=3, micro_batches=7)
    path = (tmp_path / name).with_suffix(suffix)
    write_schedule(schedule, path)
    assert read_schedule(path) == schedule


def test_people_may_write_it_their_way(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text('\ufeff# two ranks\r\n\r\n0F0, 0F1,,,0B0 0B1 # the first\r\n"1F0","1B0","1F1","1B1"\r\n')
    assert read_schedule(path) == PipelineSchedule("mine", 2, 2, build_schedule("1f1b", ranks=2, micro_batches=2).ranks)


def refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(BadInputError) as error:
        read_schedule(path)
    assert "\n" not in str(error.value)
    start = f"{path}:"
    assert str(error.value).startswith(start)
    return str(error.value)[len(start) :].strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: there are no instructions; see 'A schedule of your own' in docs/pipelines-schedules.md"),
        ("# nothing\n,,\n", "1: there are no instructions"),
        (
            GOOD.replace("1F1", "1X1"),
            "2: '1X1': unknown instruction X; there are F forward, R recomputation, B backward, I back",
        ),
        (GOOD.replace("1F1", "F1"), "2: 'F1': is not stage, letter, micro-batch, such as 0F3"),
        (GOOD.replace("1F1", "1F"), "2: '1F': is not stage, letter, micro-batch, such as 0F3"),
        (GOOD.replace("1F1", "1F-1"), "2: '1F-1': is not stage, letter, micro-batch"),
        (
            GOOD.replace("1F1", "(1F1;1B0)OVERLAP_F_B"),
            "rank 1: backward of micro-batch 0 on stage 1 appears twice",
        ),
        (
            GOOD.replace("1F1", "(1F1)OVERLAP_F_B"),
            "2: '(1F1)OVERLAP_F_B': is not stage, letter, micro-batch, such as 0F3",
        ),
        (GOOD.replace("1B1", ""), "lacks backward of micro-batch 1 on stage 1"),
        (GOOD.replace("1B1", "1I1"), "lacks backward_weight of micro-batch 1 on stage 1"),
        (
            GOOD.replace("1B1", "1B1 1W1"),
            "backward of micro-batch 1 on stage 1 is given both whole and split; give one of the two",
        ),
        (GOOD.replace("0F0 ", ""), "lacks forward of micro-batch 0 on stage 0"),
        (GOOD.replace("1B1", "1B1 1B1"), "rank 1: backward of micro-batch 1 on stage 1 appears twice"),
        (GOOD.replace("1B1", "1B9"), "lacks forward of micro-batch 2 on stage 0 (2 stages, 10 micro-batches)"),
        (GOOD.replace("1F1", "3F1"), "lacks forward of micro-batch 1 on stage 1"),
        (
            GOOD.replace("1F1", "999999999F999999999"),
            "lacks forward of micro-batch 2 on stage 0 (1,000,000,000 stages, 1,000,000,000 micro-batches)",
        ),
        (
            GOOD.replace("1B1", "\n1B1"),
            "backward of micro-batch 1 on stage 1 is on rank 2, its other instructions on rank 1",
        ),
        (
            GOOD.replace("1F0 1B0", "1B0 1F0"),
            "rank 1 runs backward of micro-batch 0 on stage 1 before forward of micro-batch 0 on stage 1, which it waits",
        ),
        (
            "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n",
            "deadlocks: rank 0 cannot run backward of micro-batch 0 on stage 0 before backward of micro-batch 0 on stage 1, "
            "rank 1 cannot run forward of micro-batch 1 on stage 1 before forward of micro-batch 1 on stage 0",
        ),
        (
            "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n2F0 2B0 2F1 2B1",
            "deadlocks: rank 0 cannot run backward of micro-batch 0 on stage 0 before backward of micro-batch 0 on stage 1, "
            "rank 1 cannot run forward of micro-batch 1 on stage 1 before forward of micro-batch 1 on stage 0",
        ),
    ],
)
def test_bad_texts_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path / "mine.txt", text).startswith(message)


JSON = """{"schema": "wastenot.pipeline-schedule/1",
"name": "mine", "stages": 1, "micro_batches": 1,
"ranks": [[["forward", 0, 0], ["backward", 0, 0]]]}"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JSON[:-1], "3: document: is not JSON"),
        (JSON.replace("schedule/1", "schedule/2"), "1: schema: is 'wastenot.pipeline-schedule/2', where this version reads"),
        (JSON.replace('"stages": 1', '"stages": 0'), "2: stages: Input should be greater than or equal to 1"),
        (JSON.replace('["forward", 0, 0]', '["forward", 0]'), "3: ranks.0.0.2: Field required"),
        (JSON.replace('["forward", 0, 0]', '["forward", 0, -1]'), "3: ranks.0.0.2: Input should be greater"),
        (JSON.replace('"stages": 1', '"stages": 2'), "lacks forward of micro-batch 0 on stage 1"),
        (JSON.replace('"stages": 1', '"stages": 1000000000'), "lacks forward of micro-batch 0 on stage 1"),
        (JSON.replace('"micro_batches": 1', '"micro_batches": 2'), "lacks forward of micro-batch 1 on stage 0"),
        (
            JSON.replace('"forward", 0, 0', '"forward", 0, 5'),
            "rank 0: forward of micro-batch 5 on stage 0: micro-batches are 0",
        ),
        (
            JSON.replace('"forward", 0, 0', '"forward", 7, 0'),
            "rank 0: forward of micro-batch 0 on stage 7: stages are 0 to 0",
        ),
        (JSON.replace('"forward"', '"fordward"'), "rank 0: unknown instruction 'fordward'; did you mean 'forward'?"),
        (JSON.replace("]]]", "]], []]"), "rank 1 has no instructions; leave it out"),
    ],
)
def test_bad_documents_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    read = tmp_path / "good.json"
    read.write_text(JSON)
    assert read_schedule(read).micro_batches == 1
    assert refusal(tmp_path / "mine.json", text).startswith(message)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.sampled_from(["text", "json"]), st.data())
def test_any_damage_is_read_or_refused_in_one_line(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    content = bytearray((GOOD if kind == "text" else JSON).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(begin, min(begin + 20, len(content))))
        content[begin:end] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"0F0", b"{", b"]", b"9", b"NaN", b"\n", b"1e9"])
        )
    path = tmp_path / "mine"
    path.write_bytes(content)
    try:
        read_schedule(path).edges()
    except BadInputError as error:
        assert str(error).startswith(f"{path}:")
        assert len(str(error).splitlines()) == 1


def test_a_deadlock_through_many_ranks_names_a_few() -> None:
    schedule = build_schedule("interleaved", ranks=9, micro_batches=1)
    first, second, *others = schedule.ranks[0]
    with pytest.raises(BadInputError) as error:
        PipelineSchedule("mine", 18, 1, ((second, first, *others), *schedule.ranks[1:])).edges()
    assert str(error.value) == (
        "schedule mine: deadlocks: rank 0 cannot run forward of micro-batch 0 on stage 9 before forward of micro-batch 0 on "
        "stage 8, rank 8 cannot run forward of micro-batch 0 on stage 8 before forward of micro-batch 0 on stage 7, rank 7 "
        "cannot run forward of micro-batch 0 on stage 7 before forward of micro-batch 0 on stage 6, and so on "
        "through 9 ranks"
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.randoms(use_true_random=False), st.sampled_from(ONE_BY_ONE), st.integers(1, 4), st.integers(1, 5))
def test_any_order_runs_or_says_what_waits(random, name: str, ranks: int, micro_batches: int) -> None:
    schedule = build_schedule(name, ranks=ranks, micro_batches=micro_batches)
    order = [list(rank) for rank in schedule.ranks]
    for rank in order:
        for _ in range(random.randrange(3)):
            one, other = random.randrange(len(rank)), random.randrange(len(rank))
            rank[one], rank[other] = rank[other], rank[one]
    shuffled = PipelineSchedule("mine", schedule.stages, micro_batches, tuple(map(tuple, order)))
    try:
        edges = shuffled.edges().tolist()
    except BadInputError as error:
        assert "cannot run" in str(error) or "which it waits for" in str(error)
        assert not _runs(shuffled)
    else:
        assert _runs(shuffled)
        assert len(set(map(tuple, edges))) == len(edges)


def _runs(schedule: PipelineSchedule) -> bool:
    """Whether every instruction comes to run, by rules written down anew."""
    done: set[tuple[str, int, int]] = set()
    at = [0] * len(schedule.ranks)
    names = {(each.name, each.stage, each.micro_batch) for each in schedule.instructions}
    moved = True
    while moved:
        moved = False
        for rank, instructions in enumerate(schedule.ranks):
            while at[rank] < len(instructions):
                each = instructions[at[rank]]
                stage, batch = each.stage, each.micro_batch
                needed = {
                    "forward": {("forward", stage - 1, batch)},
                    "recomputation": {("forward", stage, batch)},
                    "backward_weight": {("backward_input", stage, batch)},
                }.get(
                    each.name,
                    {
                        ("forward", stage, batch),
                        ("recomputation", stage, batch),
                        ("backward", stage + 1, batch),
                        ("backward_input", stage + 1, batch),
                    },
                )
                if needed & names - done:
                    break
                done.add((each.name, stage, batch))
                at[rank] += 1
                moved = True
    return len(done) == len(names)

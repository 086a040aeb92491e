"""Our schedules against those of torch.distributed.pipelining, action by action."""

from functools import cache
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from testbed.pipeline_timeline import timeline
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.schedule_file import LETTERS, read_schedule
from wastenot.pipelines.model.schedules import build_schedule


def _pipelining(module: str):
    """Imported by the tests that need it, as it takes longer than PyTorch itself."""
    return pytest.importorskip(f"torch.distributed.pipelining.{module}")


@cache
def _stage(index: int, ranks: int, of: int) -> MagicMock:
    stage = MagicMock(spec=_pipelining("stage")._PipelineStageBase)
    stage.configure_mock(group_size=ranks, group_rank=0, num_stages=of, stage_index=index, submod=None)
    stage.configure_mock(is_first=index == 0, is_last=index == of - 1, has_backward=True, device="cpu")
    return stage


def _torch_schedule(kind: str, ranks: int, micro_batches: int, chunks: int = 1, *, turning: bool = False):
    own = [2 * ranks - 1 if turning and chunk else chunk * ranks for chunk in range(chunks)]
    built = [_stage(index, ranks, ranks * chunks) for index in own]
    several = kind not in ("ScheduleGPipe", "Schedule1F1B")
    return getattr(_pipelining("schedules"), kind)(built if several else built[0], micro_batches, loss_fn=MagicMock())


def _their_order(kind: str, ranks: int, micro_batches: int, chunks: int) -> list[list[str]]:
    order = _torch_schedule(kind, ranks, micro_batches, chunks).pipeline_order
    return [[str(each) for each in order[rank] if each is not None and each.is_compute_op] for rank in range(ranks)]


def _our_order(schedule: PipelineSchedule) -> list[list[str]]:
    return [[f"{each.stage}{LETTERS[each.name]}{each.micro_batch}" for each in rank] for rank in schedule.ranks]


@pytest.mark.parametrize(
    ("kind", "name", "chunks", "at_least"),
    [
        ("ScheduleGPipe", "gpipe", 1, 80),
        ("ScheduleInterleaved1F1B", "interleaved", 2, 50),
        ("ScheduleInterleaved1F1B", "interleaved", 3, 50),
        ("ScheduleInterleavedZeroBubble", "zb-h1", 1, 50),
    ],
)
def test_orders_are_the_same(kind: str, name: str, chunks: int, at_least: int) -> None:
    compared = 0
    for ranks in range(2, 6):
        for micro_batches in range(1, 21):
            try:
                order = _their_order(kind, ranks, micro_batches, chunks)
            except ValueError:  # theirs takes some numbers of micro-batches only
                continue
            several = chunks if name == "interleaved" else None
            assert _our_order(build_schedule(name, ranks=ranks, micro_batches=micro_batches, chunks=several)) == order
            compared += 1
    assert compared >= at_least


def test_1f1b_is_the_same_but_for_a_slip_in_the_list_of_torch() -> None:
    # Forwards of the last rank are listed from 1 in torch 2.12 (they run from 0): F1, B0, F2, B1, ...
    for ranks in range(2, 6):
        for micro_batches in range(ranks, 13):
            order = _their_order("Schedule1F1B", ranks, micro_batches, 1)
            ours = _our_order(build_schedule("1f1b", ranks=ranks, micro_batches=micro_batches))
            assert ours[:-1] == order[:-1]
            last = ranks - 1
            slipped = [
                f"{last}F{int(each.split('F')[1]) - 1}" if "F" in each and f"{last}F0" not in order[-1] else each
                for each in order[-1]
            ]
            assert ours[-1] == slipped


def test_a_schedule_that_torch_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "zb-v.csv"
    _torch_schedule("ScheduleZBVZeroBubble", 4, 12, 2, turning=True)._dump_csv(str(path), format="compute_only")
    schedule = read_schedule(path)
    assert (schedule.name, schedule.stages, schedule.micro_batches, len(schedule.ranks)) == ("zb-v", 8, 12, 4)
    # A V: stages 3 and 4 share a rank, and so do 0 and 7. Qi et al., ICLR 2024: no more bubble than 1F1B's of 3 (F + B).
    assert {each.stage for each in schedule.ranks[0]} == {0, 7}
    busy = 12 * 2 * 3
    assert timeline(schedule).length - busy <= 3 * 3


def test_what_torch_adds_to_a_schedule_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "with-communication.csv"
    schedule = _torch_schedule("ScheduleInterleaved1F1B", 2, 4, 2)
    rows = schedule.pipeline_order_with_comms
    path.write_text("\n".join(",".join(map(str, rows[rank])) for rank in range(2)))
    assert "SEND_F" in path.read_text()
    assert read_schedule(path).ranks == build_schedule("interleaved", ranks=2, micro_batches=4).ranks

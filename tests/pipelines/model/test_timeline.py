"""Bubbles and memory of schedules, against what their papers derive, and pictures of them."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from testbed.pipeline_timeline import UNITS, drawn, timeline
from testbed.small_pipelines import ONE_BY_ONE
from wastenot.core.errors import BadInputError
from wastenot.pipelines.model.schedule import Instruction, PipelineSchedule
from wastenot.pipelines.model.schedules import build_schedule

SOME = [(ranks, micro_batches) for ranks in range(1, 9) for micro_batches in (ranks, 2 * ranks, 5 * ranks)]
ratios = st.floats(0.2, 5.0)


@given(st.integers(1, 8), st.integers(1, 24), ratios, ratios)
def test_gpipe_and_1f1b_wait_for_one_forward_and_backward_of_each_other_rank(
    ranks: int, micro_batches: int, forward: float, backward: float
) -> None:
    for name in ("gpipe", "1f1b"):
        line = timeline(
            build_schedule(name, ranks=ranks, micro_batches=micro_batches),
            UNITS | {"forward": forward, "backward": backward},
        )
        # Narayanan et al., SC 2021, §2.2.1: (p - 1)/m, for any number of micro-batches.
        np.testing.assert_allclose(line.waiting, (ranks - 1) / micro_batches, rtol=1e-9)


@pytest.mark.parametrize(("ranks", "micro_batches"), SOME)
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_interleaving_divides_the_bubble_by_the_chunks(ranks: int, micro_batches: int, chunks: int) -> None:
    line = timeline(build_schedule("interleaved", ranks=ranks, micro_batches=micro_batches, chunks=chunks))
    np.testing.assert_allclose(line.waiting, (ranks - 1) / micro_batches / chunks, rtol=1e-9, atol=1e-12)


def test_interleaving_with_one_chunk_takes_as_long_as_1f1b() -> None:
    for ranks, micro_batches in SOME:
        one, other = (
            timeline(build_schedule(name, ranks=ranks, micro_batches=micro_batches, chunks=1)).length
            for name in ("interleaved", "1f1b")
        )
        assert one == other


@pytest.mark.parametrize(("ranks", "micro_batches"), [each for each in SOME if each[1] > each[0]])
def test_zero_bubble_waits_for_a_forward_and_a_backward_less_the_gradients_of_weights(
    ranks: int, micro_batches: int
) -> None:
    # Qi et al., ICLR 2024, table 1: (p - 1)(T_F + T_B - T_W), in the memory of p micro-batches; theirs has T_F = T_B = T_W.
    for times in ((1.0, 1.0, 1.0), (1.0, 1.1, 0.9)):
        units = dict(zip(("forward", "backward_input", "backward_weight"), times, strict=True))
        line = timeline(build_schedule("zb-h1", ranks=ranks, micro_batches=micro_batches), units)
        forward, inputs, weights = times
        expected = micro_batches * sum(times) + (ranks - 1) * (forward + inputs - weights)
        assert line.length == pytest.approx(expected, rel=1e-9)
        assert max(line.held) == line.held[0] == min(ranks, micro_batches)


def test_a_micro_batch_is_let_go_of_once() -> None:
    order = [("forward", 0), ("backward", 0), ("forward", 1), ("forward", 2), ("backward", 1), ("backward", 2)]
    rank = tuple(Instruction(name, 0, micro_batch) for name, micro_batch in order)
    assert timeline(PipelineSchedule("own", stages=1, micro_batches=3, ranks=(rank,))).held == [2]


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 7, 20])
def test_micro_batches_held_at_a_time(ranks: int, micro_batches: int) -> None:
    def held(name: str, chunks: int | None = None) -> list[int]:
        return timeline(build_schedule(name, ranks=ranks, micro_batches=micro_batches, chunks=chunks)).held

    assert held("gpipe") == [micro_batches] * ranks
    as_stages_are_left = [min(ranks - stage, micro_batches) for stage in range(ranks)]
    assert held("1f1b") == held("early-recomputation") == as_stages_are_left
    assert held("zb-h1") == [min(ranks, micro_batches)] * ranks
    if micro_batches % ranks == 0:
        # Narayanan et al.: 1 + (p - 1)/(p v) times the p micro-batches of 1F1B, in units of v chunks each.
        for chunks in (2, 3):
            assert max(held("interleaved", chunks)) <= min(ranks * chunks + ranks - 1, micro_batches * chunks)


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 8, 24])
def test_recomputing_early_takes_it_off_the_way_of_gradients(ranks: int, micro_batches: int) -> None:
    early = timeline(build_schedule("early-recomputation", ranks=ranks, micro_batches=micro_batches))
    inside = timeline(build_schedule("1f1b", ranks=ranks, micro_batches=micro_batches), UNITS | {"backward": 3.0})
    # All but one of the recomputations on the way of the last gradient back to stage 0 run before it comes.
    assert early.length <= inside.length - (ranks - 1)
    instructions = early.schedule.instructions
    begins = dict(zip(instructions, early.start.tolist(), strict=True))
    early_ones = [each for each in instructions if each.name == "recomputation"]
    assert len(early_ones) == (ranks - 1) * micro_batches
    if micro_batches == 1:
        last = {each.stage: begins[each] + 1.0 for each in early_ones}
        assert all(
            begins[each] > last[each.stage] for each in instructions if each.name == "backward" and each.stage < ranks - 2
        )


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_picture_shows_each_instruction_where_it_runs(name: str) -> None:
    line = timeline(build_schedule(name, ranks=3, micro_batches=4))
    assert drawn(line) == drawn(line, 2)  # as wide as F0 and the like
    rows = drawn(line, 3).splitlines()
    assert [row[:8] for row in rows] == ["rank 0  ", "rank 1  ", "rank 2  "]
    letters = {"forward": "F", "backward": "B", "recomputation": "R", "backward_input": "I", "backward_weight": "W"}
    for each, begin, rank in zip(line.schedule.instructions, line.start, line.schedule.rank, strict=True):
        column = 8 + 3 * round(float(begin))
        shown = letters[each.name]
        assert rows[rank][column : column + 2] == f"{shown.lower() if each.stage >= 3 else shown}{each.micro_batch}"


def test_a_picture_that_is_too_wide_is_refused() -> None:
    with pytest.raises(BadInputError, match="draw fewer micro-batches"):
        drawn(timeline(build_schedule("1f1b", ranks=2, micro_batches=1000)))

"""Schedules by name: valid for any numbers, and of the shapes that their papers give."""

import pytest

from testbed.small_pipelines import ONE_BY_ONE
from wastenot.core.errors import BadInputError
from wastenot.pipelines.model.schedules import build_schedule


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_schedules_are_complete_and_run_to_the_end(name: str) -> None:
    for ranks in range(1, 8):
        for micro_batches in range(1, 20):
            for chunks in (1, 2, 3, 4) if name == "interleaved" else (None,):
                schedule = build_schedule(name, ranks=ranks, micro_batches=micro_batches, chunks=chunks)
                assert schedule.stages == ranks * (chunks or 1)
                schedule.edges()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "1f1c"}, "schedule '1f1c': unknown; did you mean '1f1b'? There are: gpipe, 1f1b, early-recomputation, "),
        ({"ranks": 0}, "ranks 0: must be at least 1"),
        ({"micro_batches": -1}, "micro_batches -1: must be at least 1"),
        ({"chunks": 2}, "chunks 2: schedule 1f1b has one stage per rank; 'interleaved' has several"),
        ({"micro_batches": 10**9}, "micro_batches 1000000000: on 4 ranks these are more than 1,000,000 instructions"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError) as error:
        build_schedule(**{"name": "1f1b", "ranks": 4, "micro_batches": 8} | arguments)  # type: ignore[arg-type]
    assert str(error.value).startswith(message)

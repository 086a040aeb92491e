import numpy as np
import pytest

from wastenot.jobs.judge.compare import POLICIES, best_pair, compare, usual_recurrences
from wastenot.jobs.judge.made import made_jobs


class _Steps:
    def __init__(self) -> None:
        self.steps, self.done = 0, 0

    def begin(self, steps: int, done: int = 0) -> None:
        self.steps = steps

    def step(self, what: str) -> None:
        self.done += 1

    def say(self, message: str) -> None: ...


@pytest.mark.parametrize("processes", [1, 2])
def test_policies_side_by_side(processes: int) -> None:
    jobs, progress = made_jobs(range(2), families=("smooth",)), _Steps()
    found = list(compare(jobs, list(POLICIES), range(2), recurrences=20, processes=processes, progress=progress))
    assert [each.trace.terms.name for each in found] == [job.terms.name for job in jobs]
    assert progress.done == progress.steps == 2 * len(POLICIES) * 2
    for each in found:
        by = {result.policy: result for result in each.results}
        assert list(by) == list(POLICIES)
        assert by["wastenot"].regret.shape == (2, 20)
        assert by["oracle"].choice == best_pair(each.trace)
        assert by["default"].energy == 1.0
        assert by["oracle"].mean < by["default"].mean  # it may be a little below 0: few runs, which were lucky


def test_it_is_the_same_with_more_processes_and_with_other_policies_beside() -> None:
    jobs = made_jobs(range(1), families=("noisy",))
    alone = next(compare(jobs, ["wastenot"], [3], recurrences=15))
    beside = next(compare(jobs, ["oracle", "wastenot"], [3], recurrences=15, processes=2))
    assert np.array_equal(alone.results[0].regret, beside.results[1].regret)
    assert alone.results[0].error == float("inf")


def test_recurrences_may_overlap() -> None:
    jobs = made_jobs(range(1), families=("smooth",))
    one_by_one = next(compare(jobs, ["wastenot"], [0]))
    overlapping = next(compare(jobs, ["wastenot"], [0], load=3.0))
    assert one_by_one.recurrences == usual_recurrences(jobs[0]) == one_by_one.results[0].regret.shape[1]
    assert overlapping.results[0].regret.shape == one_by_one.results[0].regret.shape
    assert not np.array_equal(overlapping.results[0].regret, one_by_one.results[0].regret)

"""Order of execution, and what runs before what."""

from collections import Counter

import pytest

from wastenot.workloads.build import build_workload
from wastenot.workloads.order import Step, changes, order_of_steps, predecessors, stretches

LAYERS = [Step(1, None, "embedding"), Step(3, "layer", "forward"), Step(3, "layer", "forward"), Step(2, None, "loss")]


def test_a_layer_alternates_and_the_rest_one_by_one():
    assert order_of_steps(LAYERS) == (0, 1, 2, 1, 2, 1, 2, 3, 3)


def test_the_first_of_a_layer_comes_after_its_last_and_a_kernel_that_repeats_after_itself():
    assert predecessors(LAYERS) == (3, 2, 1, 2)  # loss: once after the layer, once after itself; the earlier one counts
    assert predecessors([Step(1), Step(5), Step(1)]) == (2, 1, 1)
    assert predecessors([Step(4)]) == (0,)


def test_changes_close_the_circle():
    order = order_of_steps(LAYERS)
    assert changes(LAYERS) == Counter(zip((order[-1], *order), order, strict=False))
    assert changes([Step(3)]) == {(0, 0): 3} and changes([]) == {}
    assert sorted(stretches(order)) == [(0, 1, 1, 1), (1, 2, 1, 3), (2, 1, 1, 2), (2, 3, 2, 1), (3, 0, 1, 1)]
    assert stretches((0, 0, 0)) == [] and stretches(()) == []
    assert sorted(stretches((0, 1, 1, 0))) == [(0, 1, 2, 1), (1, 0, 2, 1)]  # the wrap-around joins the first and the last


@pytest.mark.parametrize("model", ["gpt3-small", "llama-8b"])
def test_in_a_model_each_kernel_follows_the_one_before_it(model):
    kernels = build_workload(model).kernels
    before = predecessors(kernels)
    usual = sum(earlier == index - 1 for index, earlier in enumerate(before))
    assert usual >= len(kernels) - 5
    first = next(index for index, kernel in enumerate(kernels) if kernel.block and kernel.pass_name == "forward")
    last = max(index for index, kernel in enumerate(kernels) if kernel.block and kernel.pass_name == "forward")
    assert before[first] == last

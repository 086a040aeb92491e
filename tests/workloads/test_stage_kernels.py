"""Kernels of stages: each kernel of the model once, wherever the model is cut."""

from collections import Counter

import pytest

from wastenot.core.errors import BadInputError
from wastenot.workloads.build import build_workload
from wastenot.workloads.pipeline_shape import pipeline_shape
from wastenot.workloads.stages import check_partition, check_stages, layers_of, stage_work, update_work


@pytest.fixture(params=["gpt3-xl", "llama-8b"])
def workload(request: pytest.FixtureRequest):
    return build_workload(request.param, pipeline_shape(request.param, 4))


def _runs(works) -> Counter[int]:
    return Counter(kernel for work in works for kernel in work.order)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_stages_together_run_each_kernel_as_often_as_the_model(workload, split, stages):
    layers = layers_of(workload.kernels)
    partition = [layers - stages + 1, *[1] * (stages - 1)]
    works = [*stage_work(workload.kernels, partition, split_backward=split).values()]
    runs = _runs([*works, *update_work(workload.kernels, partition)])
    outer = {"adamw_embedding": 2 if stages > 1 else 1}  # the table is in the first stage and in the last
    assert runs == {index: outer.get(each.name, each.count) for index, each in enumerate(workload.kernels)}


def test_one_stage_runs_everything_in_the_models_order(workload):
    layers = layers_of(workload.kernels)
    work = stage_work(workload.kernels, [layers])
    for key in ("forward", "backward"):
        first = list(dict.fromkeys(work[0, key].order))
        assert first == sorted(first)


def test_recomputation_runs_the_layers_forward_again_and_nothing_twice():
    workload = build_workload("gpt3-xl", pipeline_shape("gpt3-xl", 4))
    names = [each.name for each in workload.kernels]
    full = stage_work(workload.kernels, [6, 18], recomputation="full")
    runs = Counter(names[each] for each in full[0, "backward"].order)
    assert runs["up_gemm"] == 6
    assert runs["gelu_again"] == 0, "the forward that runs again makes it"
    assert full[0, "backward"].layers == 12
    early = stage_work(workload.kernels, [6, 18], recomputation="early")
    assert Counter(early[1, "recomputation"].order) == Counter(
        {names.index(each.name): 18 for each in workload.kernels if each.pass_name == "forward"}
    )


def test_weight_gradients_wait_apart_from_what_the_stage_before_needs():
    workload = build_workload("llama-8b", pipeline_shape("llama-8b", 4))
    names = [each.name for each in workload.kernels]
    work = stage_work(workload.kernels, [8, 24], split_backward=True)
    weight = {names[each] for each in work[1, "backward_weight"].order}
    assert weight == {name for name in names if "dweight" in name}
    assert "logits_dinput_gemm" in {names[each] for each in work[1, "backward_input"].order}


def test_a_stage_of_no_layers_still_embeds():
    workload = build_workload("gpt3-xl", pipeline_shape("gpt3-xl", 4))
    work = stage_work(workload.kernels, [0, 24])
    assert [workload.kernels[each].name for each in work[0, "forward"].order] == ["wte_wpe", "layernorm_first"]


@pytest.mark.parametrize(
    ("partition", "says"),
    [
        ((6, 6), "has 2 stages, but there are 3"),
        ((6, 6, 6), "has 18 layers, but the model has 24"),
        ((12, 0, 12), "no layers"),
    ],
)
def test_a_partition_that_does_not_fit_is_refused(partition, says):
    with pytest.raises(BadInputError, match=says):
        check_partition(partition, 3, 24)


@pytest.mark.parametrize("stages", [0, 25])
def test_a_model_has_at_most_as_many_stages_as_layers(stages):
    with pytest.raises(BadInputError, match="must be from 1 to 24, since the model has 24 layers"):
        check_stages(stages, 24)


def test_a_workload_that_does_not_train_has_no_stages():
    with pytest.raises(BadInputError, match="training workload"):
        layers_of(build_workload("llama-8b", phase="decode").kernels)


def test_large_models_share_stages_between_gpus():
    assert pipeline_shape("gpt3-xl", 4).tensor_parallel == 1
    big = pipeline_shape("gpt3-175b", 8)
    assert (big.tensor_parallel, big.sequence_parallel, big.batch, big.sequence) == (8, True, 1, 2048)
    assert pipeline_shape("gpt3-175b", 8, tensor_parallel=4).tensor_parallel == 4
    with pytest.raises(BadInputError, match="gpt3-xl"):
        pipeline_shape("gpt3-xxl", 4)

"""The verbs on workloads, as a user runs them."""

import json

import pytest

import wastenot as wn
from testbed.golden import assert_as_agreed
from wastenot.workloads.build import build_workload

JSON_VERBS = {
    "workloads": ("workloads",),
    "workload_training": ("workload", "gpt3-xl", "--device", "sim:rtx-3080-ti"),
    "workload_decode": ("workload", "llama-8b", "--phase", "decode", "--tensor-parallel", "2", "--attention", "flash"),
}


@pytest.mark.parametrize("name", JSON_VERBS)
def test_json_is_one_document_as_it_was_agreed(wastenot, name):
    assert_as_agreed(wastenot(*JSON_VERBS[name], "--json"), name)


def test_options_reach_the_workload(wastenot):
    arguments = (
        "--batch", "8", "--sequence", "512", "--tensor-parallel", "4", "--sequence-parallel", "--dtype", "fp16",
        "--attention", "flash", "--optimizer", "adamw",
    )  # fmt: skip
    document = json.loads(wastenot("workload", "gpt3-small", *arguments, "--json").out)
    assert document["workload"] == "gpt3-small-batch8-seq512-tp4sp-fp16-flash-adamw"
    assert document["device"] is None and {kernel["bound"] for kernel in document["kernels"]} == {None}
    total = sum(kernel["count"] * kernel["flops"] for kernel in document["kernels"])
    assert document["flops"] == pytest.approx(total)


def test_kernels_for_people(wastenot):
    text = wastenot("workload", "gpt3-xl", "--device", "h200").out
    for part in (
        "embedding backward", "qkv_gemm", "40960×6144×2048", "640 of 1024×1024×128", "Bias reduce", "compute", "memory",
        "897 calls of 46 kernels", "347.4", "1.32 B parameters", "989.5 TFLOP/s in bf16",
    ):  # fmt: skip
        assert part in text, part
    assert "bound" not in wastenot("workload", "gpt3-xl").out


def test_models_for_people(wastenot):
    text = wastenot("workloads").out
    for part in ("gpt3-small", "125 M", "gpt3-175b", "llama-1b", "70.55 B"):
        assert part in text, part


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["workload"], "NAME"),
        (["workload", "gpt3-xll"], "did you mean 'gpt3-xl'"),
        (["workload", "gpt3-xl", "--batch", "0"], "--batch 0"),
        (["workload", "gpt3-xl", "--batch", "many"], "--batch"),
        (["workload", "gpt3-xl", "--sequence", "-1"], "--sequence -1"),
        (["workload", "gpt3-xl", "--tensor-parallel", "5"], "nearest that does is 4"),
        (["workload", "gpt3-xl", "--sequence-parallel"], "--tensor-parallel"),
        (["workload", "gpt3-xl", "--phase", "train"], "did you mean 'training'"),
        (["workload", "gpt3-xl", "--dtype", "fp61"], "did you mean 'fp16'"),
        (["workload", "gpt3-xl", "--attention", "fused"], "did you mean 'unfused'"),
        (["workload", "gpt3-xl", "--optimizer", "sgd"], "none, adamw"),
        (["workload", "gpt3-xl", "--phase", "prefill", "--optimizer", "adamw"], "training only"),
        (["workload", "gpt3-xl", "--device", "sim:h20"], "did you mean 'h200'"),
        (["workload", "gpt3-xl", "--device", "nvidia:0"], "rtx-3080-ti"),
        (["workloads", "gpt3-xl"], "gpt3-xl"),
    ],
)
def test_nonsense_is_refused_in_one_line(wastenot, arguments, says):
    assert says in wastenot.refuse(*arguments)


def test_a_workload_file_and_a_study_are_shown_as_models_are(wastenot, study):
    wn.write_workload(build_workload("gpt3-small", batch=8), wastenot.folder / "mine.json")
    of_file = json.loads(wastenot("workload", "mine.json", "--device", "h200", "--json").out)
    of_model = json.loads(wastenot("workload", "gpt3-small", "--batch", "8", "--device", "h200", "--json").out)
    assert of_file == of_model and of_file["device"]["device"] == "h200"
    assert "gpt3-small-batch8" in wastenot("workload", "mine.json").out
    text = study("workload", "my.db").out
    assert "tiny" in text and "49 calls of 3 kernels" in text and "FLOPs and bytes of 3 kernels are not known" in text


def test_what_a_file_says_by_itself_cannot_be_changed(wastenot):
    wn.write_workload(build_workload("gpt3-small"), wastenot.folder / "mine.json")
    assert "leave it out" in wastenot.refuse("workload", "mine.json", "--batch", "3")
    assert "is a model" in wastenot.refuse("workload", "gpt3-small", "--workload", "x")
    assert "none.json" in wastenot.refuse("workload", "none.json")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sweep", "gemm", "--device", "sim:h200", "--study", "s.db"], "wastenot profile gemm:4096"),
        (["sweep", "allreduce", "--device", "sim:h200", "--study", "s.db"], "wastenot profile all-reduce:512MB"),
        (["sweep", "gelu", "--device", "sim:h200", "--study", "s.db"], "wastenot profile gpt3-xl:gelu"),
        (["run", "gpt3-xl:softmax"], "wastenot profile gpt3-xl:softmax"),
        (["run", "gpt3xl"], "did you mean 'gpt3-xl'"),
        (["profile", "allreduce", "--device", "sim:h200"], "did you mean 'all-reduce:512MB'"),
        (["profile", "allreduce:1MB", "--device", "sim:h200"], "did you mean 'all-reduce:1MB'"),
        (["profile", "softmax", "--device", "sim:h200"], "did you mean 'gpt3-xl:softmax'"),
        (["swep"], "Did you mean 'sweep'"),
        (["plan", "--stdy", "a.db"], "did you mean --study?"),
        (["plan", "--phase", "decode"], "No such option: --phase (see"),
        (["gpt3-xl"], "did you mean 'wastenot run gpt3-xl'"),
        (["my.db"], "did you mean 'wastenot show --study my.db'"),
    ],
)
def test_a_name_in_the_wrong_place_is_pointed_to_the_right_one(wastenot, arguments, says):
    assert says in wastenot.refuse(*arguments)
    assert not (wastenot.folder / "s.db").exists()

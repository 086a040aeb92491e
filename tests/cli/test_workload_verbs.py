"""The verbs on workloads, as a user runs them."""

import json

import pytest

import wastenot as wn
from testbed.golden import assert_as_agreed
from wastenot.workloads.build import build_workload

JSON_VERBS = {
    "workloads": (
        "kernel",
        "workloads",
    ),
    "workload_training": ("kernel", "workloads", "gpt3-xl", "--device", "sim:rtx-3080-ti"),
    "workload_decode": (
        "kernel",
        "workloads",
        "llama-8b",
        "--phase",
        "decode",
        "--tensor-parallel",
        "2",
        "--attention",
        "flash",
    ),
}


@pytest.mark.parametrize("name", JSON_VERBS)
def test_json_is_one_document_as_it_was_agreed(wastenot, name):
    assert_as_agreed(wastenot(*JSON_VERBS[name], "--json"), name)


def test_options_reach_the_workload(wastenot):
    arguments = (
        "--batch", "8", "--sequence", "512", "--tensor-parallel", "4", "--sequence-parallel", "--dtype", "fp16",
        "--attention", "flash", "--optimizer", "adamw",
    )  # fmt: skip
    document = json.loads(wastenot("kernel", "workloads", "gpt3-small", *arguments, "--json").out)
    assert document["workload"] == "gpt3-small-batch8-seq512-tp4sp-fp16-flash-adamw"
    assert document["device"] is None and {kernel["bound"] for kernel in document["kernels"]} == {None}
    total = sum(kernel["count"] * kernel["flops"] for kernel in document["kernels"])
    assert document["flops"] == pytest.approx(total)


def test_kernels_for_people(wastenot):
    text = wastenot("kernel", "workloads", "gpt3-xl", "--device", "h200").out
    for part in (
        "embedding backward", "qkv_gemm", "40960×6144×2048", "640 of 1024×1024×128", "Bias reduce", "compute", "memory",
        "897 calls of 46 kernels", "347.4", "1.32 B parameters", "989.5 TFLOP/s in bf16",
    ):  # fmt: skip
        assert part in text, part
    assert "bound" not in wastenot("kernel", "workloads", "gpt3-xl").out


def test_models_for_people(wastenot):
    text = wastenot("kernel", "workloads").out
    for part in ("gpt3-small", "125 M", "gpt3-175b", "llama-1b", "70.55 B"):
        assert part in text, part


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "workloads", "--batch", "4"], "--batch: has no effect without a model"),
        (["kernel", "workloads", "gpt3-xll"], "did you mean 'gpt3-xl'"),
        (["kernel", "workloads", "gpt3-xl", "--batch", "0"], "--batch 0"),
        (["kernel", "workloads", "gpt3-xl", "--batch", "many"], "--batch"),
        (["kernel", "workloads", "gpt3-xl", "--sequence", "-1"], "--sequence -1"),
        (["kernel", "workloads", "gpt3-xl", "--tensor-parallel", "5"], "nearest that does is 4"),
        (["kernel", "workloads", "gpt3-xl", "--sequence-parallel"], "--tensor-parallel"),
        (["kernel", "workloads", "gpt3-xl", "--phase", "train"], "did you mean 'training'"),
        (["kernel", "workloads", "gpt3-xl", "--dtype", "fp61"], "did you mean 'fp16'"),
        (["kernel", "workloads", "gpt3-xl", "--attention", "fused"], "did you mean 'unfused'"),
        (["kernel", "workloads", "gpt3-xl", "--optimizer", "sgd"], "none, adamw"),
        (["kernel", "workloads", "gpt3-xl", "--phase", "prefill", "--optimizer", "adamw"], "training only"),
        (["kernel", "workloads", "gpt3-xl", "--device", "sim:h20"], "did you mean 'h200'"),
        (["kernel", "workloads", "gpt3-xl", "--device", "nvidia:0"], "rtx-3080-ti"),
    ],
)
def test_nonsense_is_refused_in_one_line(wastenot, arguments, says):
    assert says in wastenot.refuse(*arguments)


def test_a_workload_file_and_a_study_are_shown_as_models_are(wastenot, study):
    wn.write_workload(build_workload("gpt3-small", batch=8), wastenot.folder / "mine.json")
    of_file = json.loads(wastenot("kernel", "workloads", "mine.json", "--device", "h200", "--json").out)
    of_model = json.loads(wastenot("kernel", "workloads", "gpt3-small", "--batch", "8", "--device", "h200", "--json").out)
    assert of_file == of_model and of_file["device"]["device"] == "h200"
    assert "gpt3-small-batch8" in wastenot("kernel", "workloads", "mine.json").out
    text = study("kernel", "workloads", "my.db").out
    assert "tiny" in text and "49 calls of 3 kernels" in text and "FLOPs and bytes of 3 kernels are not known" in text


def test_what_a_file_says_by_itself_cannot_be_changed(wastenot):
    wn.write_workload(build_workload("gpt3-small"), wastenot.folder / "mine.json")
    assert "leave it out" in wastenot.refuse("kernel", "workloads", "mine.json", "--batch", "3")
    assert "is a model" in wastenot.refuse("kernel", "workloads", "gpt3-small", "--workload", "x")
    assert "none.json" in wastenot.refuse("kernel", "workloads", "none.json")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "sweep", "gemm", "--device", "sim:h200", "--study", "s.db"], "wastenot profile run gemm:4096"),
        (
            ["kernel", "sweep", "allreduce", "--device", "sim:h200", "--study", "s.db"],
            "wastenot profile run all-reduce:512MB",
        ),
        (["kernel", "sweep", "gelu", "--device", "sim:h200", "--study", "s.db"], "wastenot profile run gpt3-xl:gelu"),
        (["kernel", "run", "gpt3-xl:softmax"], "wastenot profile run gpt3-xl:softmax"),
        (["kernel", "run", "gpt3xl"], "did you mean 'gpt3-xl'"),
        (["profile", "run", "allreduce", "--device", "sim:h200"], "did you mean 'all-reduce:512MB'"),
        (["profile", "run", "allreduce:1MB", "--device", "sim:h200"], "did you mean 'all-reduce:1MB'"),
        (["profile", "run", "softmax", "--device", "sim:h200"], "did you mean 'gpt3-xl:softmax'"),
        (["swep"], "did you mean 'wastenot kernel sweep'"),
        (["shwo"], "did you mean 'wastenot show'"),
        (["kernel", "plan", "--stdy", "a.db"], "did you mean --study?"),
        (["kernel", "plan", "--phase", "decode"], "No such option: --phase (see"),
        (["gpt3-xl"], "did you mean 'wastenot kernel run gpt3-xl'"),
        (["my.db"], "did you mean 'wastenot show my.db'"),
    ],
)
def test_a_name_in_the_wrong_place_is_pointed_to_the_right_one(wastenot, arguments, says):
    assert says in wastenot.refuse(*arguments)
    assert not (wastenot.folder / "s.db").exists()

"""A real vLLM 0.26 on an H100: the composed profile is as far off its steps as the documentation says, and no nearer."""

import json
import lzma

import numpy as np
import pytest

from benchmarks.h200.vllm_windows import RECORD, SECOND, by_traffic, errors
from wastenot.serving.model.step_records import read_step_records


@pytest.fixture(scope="module")
def record():
    return json.loads(RECORD.read_text())


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "steps.jsonl"
    path.write_bytes(lzma.decompress((RECORD.parent / "steps.jsonl.xz").read_bytes()))
    return path


@pytest.mark.parametrize(
    ("kind", "mean", "worst"),
    [
        ("decode", (0.056, 0.033), (0.089, 0.058)),
        ("prefill", (0.127, 0.111), (0.465, 0.261)),
        ("mixed", (0.012, 0.057), (0.027, 0.120)),
    ],
)
def test_windows_are_as_far_off_as_documented(record, kind, mean, worst):
    off = np.abs([each for each, window in zip(errors(record), record["windows"], strict=True) if window["name"] == kind])
    assert off.mean(axis=0) == pytest.approx(mean, abs=0.001)
    assert off.max(axis=0) == pytest.approx(worst, abs=0.001)


def test_the_plug_in_reads_this_version(steps):
    found = read_step_records(steps)
    assert (found.engine, found.model, found.left_out) == ("vllm 0.26.0", "llama-8b", 34)
    assert len(found) == 12_992


def test_scheduled_ahead_a_prompt_delays_the_output_of_the_step_before(steps):
    """So the time of a step with prompts is partly in the record before it."""
    found = read_step_records(steps)
    decodes, prompts = found.decode_tokens > 0, found.prefill_tokens > 1000
    before = np.flatnonzero(decodes[:-1] & (found.prefill_tokens[:-1] == 0) & prompts[1:] & decodes[1:])
    usual = np.flatnonzero(decodes[:-1] & (found.prefill_tokens[:-1] == 0) & (found.prefill_tokens[1:] == 0))
    assert np.median(found.time_s[before]) > 3.0 * np.median(found.time_s[usual])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "before", "after", "worst"),
    [(RECORD, (0.072, 0.068), (0.029, 0.025), (0.104, 0.074)), (SECOND, (0.081, 0.082), (0.048, 0.043), (0.117, 0.089))],
    ids=["first", "second"],
)
def test_windows_corrected_by_traffic_are_as_far_off_as_documented(where, before, after, worst):
    record = json.loads(where.read_text())
    found = by_traffic(where.parent / "steps.jsonl.xz", record)
    assert 0.030 < found.launch_s < 0.034 and 0.012 < found.graph_launch_s < 0.015
    assert all(each.after_mean < each.before_mean for each in found.off)
    own = np.abs(errors(record))
    off = np.abs(errors(record, found.profile.engine()))
    assert own.mean(axis=0) == pytest.approx(before, abs=0.001)
    assert off.mean(axis=0) == pytest.approx(after, abs=0.001)
    assert off.max(axis=0) == pytest.approx(worst, abs=0.001)

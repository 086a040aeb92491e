"""What servers say of themselves, and what cannot be."""

import math
from pathlib import Path

import pytest

from wastenot.core.errors import ServerError
from wastenot.serving.bench.scraping import read_metrics
from wastenot.serving.bench.server_metrics import LatencyCounts, counts_of, reading_of_page, samples

RECORDED = Path(__file__).parents[1] / "recorded"
PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="a, \\"b\\"} c"} 12.0
vllm:num_requests_running{engine="1",model_name="a, \\"b\\"} c"} 20.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:num_requests_waiting{engine="1"} 2.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0
vllm:prompt_tokens_total{engine="0"} 100.0
vllm:prompt_tokens_total{engine="1"} 50.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5"} 9.0 # {trace_id="x"} 0.3
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 1.0
"""


def test_a_page_of_two_engines():
    reading = reading_of_page(PAGE)
    assert (reading.running, reading.waiting, reading.engines) == (20.0, 3.0, 2)
    assert (reading.cache_used, reading.cache_tokens, reading.prompt_tokens) == (0.5, 16_000.0, 150.0)
    assert reading.ttft == LatencyCounts((0.1, 0.5, math.inf), (4.0, 10.0, 11.0))
    assert reading.tbt is None and reading.output_tokens is None


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ],
)
def test_older_names_are_read_where_the_newer_are_missing(new, old):
    lines = ["vllm:num_requests_running 1", "vllm:num_requests_waiting 0"]
    value = ['{le="1"} 3', '{le="+Inf"} 4'] if new.endswith("seconds") else [" 0.5"]
    suffix = "_bucket" if new.endswith("seconds") else ""
    pages = ["\n".join([*lines, *(f"{name}{suffix}{each}" for each in value)]) for name in (new, old)]
    readings = [reading_of_page(page) for page in pages]
    assert readings[0] == readings[1] and (readings[0].tbt or readings[0].cache_used)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (PAGE.replace("12.0", "NaN"), "num_requests_running is nan"),
        (PAGE.replace("12.0", "-1"), "num_requests_running is -1"),
        (PAGE.replace("12.0", "+Inf"), "num_requests_running is inf"),
        (PAGE.replace("12.0", "1e300"), "num_requests_running is 1e.300"),
        (PAGE.replace("num_requests_waiting", "other"), "no metric of requests that are waiting"),
        ("", "no metric of requests that are running"),
        ("<html>busy</html>", "no metric of requests that are running"),
    ],
)
def test_nonsense_is_refused(page, says):
    with pytest.raises(ServerError, match=says):
        reading_of_page(page)


@pytest.mark.parametrize("wrong", ['{le="x"} 3', " 3", '{le="0.7"} NaN', '{le="0.7"} 1'])
def test_a_histogram_that_is_none_is_not_known(wrong):
    lines = ['a_bucket{le="0.5"} 2', f"a_bucket{wrong}", 'a_bucket{le="+Inf"} 4']
    assert counts_of(samples("\n".join(lines))) is None


def test_quantiles_of_what_passed_between_two_readings():
    then = LatencyCounts((0.1, 0.2, 0.4, math.inf), (50.0, 60.0, 60.0, 60.0))
    now = LatencyCounts((0.1, 0.2, 0.4, math.inf), (50.0, 110.0, 158.0, 160.0))
    passed = now.since(then)
    assert passed == LatencyCounts((0.1, 0.2, 0.4, math.inf), (0.0, 50.0, 98.0, 100.0))
    assert passed.quantile(0.25) == pytest.approx(0.15)
    assert passed.quantile(0.74) == pytest.approx(0.3)
    assert passed.quantile(0.98) == pytest.approx(0.4)
    assert passed.quantile(0.99) == math.inf
    assert now.since(now).quantile(0.5) is None
    assert then.since(now) is None  # began anew
    assert now.since(LatencyCounts((0.1, math.inf), (0.0, 0.0))) is None


def test_counters_that_fall_or_vanish_tell_another_server():
    before = reading_of_page(PAGE)
    assert not before.began_anew(before)
    assert reading_of_page(PAGE.replace("100.0", "10.0")).began_anew(before)
    assert reading_of_page(PAGE.replace("10.0\n", "9.0\n")).began_anew(before)
    assert reading_of_page(PAGE.replace("prompt_tokens_total", "other")).began_anew(before)


# ---- pages of real servers ---------------------------------------------------------------------------------------------


def test_vllm_0_32():
    reading = reading_of_page((RECORDED / "vllm-0.32.0.metrics").read_text())
    assert (reading.running, reading.waiting, reading.engines, reading.cache_used) == (0.0, 0.0, 1, 0.0)
    assert (reading.cache_tokens, reading.prompt_tokens, reading.output_tokens) == (524_288.0, 451_856.0, 43_696.0)
    assert (reading.ttft.total, reading.tbt.total, reading.prompts.total) == (990.0, 42_706.0, 990.0)
    assert reading.tbt.total == reading.output_tokens - reading.ttft.total
    assert 0.004 < reading.tbt.quantile(0.5) < 0.02 and reading.prompts.quantile(0.99) <= 2000.0


@pytest.mark.parametrize("token_times", ["inter_token_latency_seconds", "time_per_output_token_seconds"])
def test_sglang_by_its_documented_names(token_times):
    """The names and labels of its page on production metrics, and an older name of the time between tokens."""
    label = '{engine_type="unified",model_name="m",tp_rank="0"}'
    lines = [f"sglang:{name}{label} {value}" for name, value in (
        ("num_running_reqs", 162.0), ("num_queue_reqs", 28.0), ("token_usage", 0.28), ("prompt_tokens_total", 8.1e6),
        ("generation_tokens_total", 7.5e6),
    )]  # fmt: skip
    for name in ("time_to_first_token_seconds", token_times, "prompt_tokens_histogram"):
        lines += [f'sglang:{name}_bucket{{le="{le}",model_name="m"}} {count}' for le, count in (("0.1", 6), ("+Inf", 10))]
    reading = reading_of_page("\n".join(lines))
    assert (reading.running, reading.waiting, reading.cache_used) == (162.0, 28.0, 0.28)
    assert (reading.prompt_tokens, reading.output_tokens) == (8.1e6, 7.5e6)
    assert reading.ttft.total == reading.tbt.total == reading.prompts.total == 10.0


def sglang(*, ranks=({"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"},), priorities=()):
    """A page with the names, labels and ranges that SGLang's metrics_collector.py gives them (commit 016d860)."""
    every, page = {"engine_type": "unified", "model_name": "m"}, []

    def say(name, labels, value):
        said = ",".join(f'{key}="{text}"' for key, text in labels.items())
        page.append(f"sglang:{name}{{{said}}} {value}")

    for rank in ranks:
        of = {**every, **rank, **({"priority": ""} if priorities else {})}
        gauges = {
            "num_running_reqs": 12.0, "num_queue_reqs": 5.0, "num_grammar_queue_reqs": 0.0, "token_usage": 0.5,
            "full_token_usage": 0.5, "max_total_num_tokens": 400_000.0, "decode_sum_seq_lens": 24_000.0,
            "num_retracted_reqs": 1.0, "num_paused_reqs": 0.0, "num_prefill_inflight_queue_reqs": 0.0,
            "num_retracted_requests_total": 7.0, "num_retracted_input_tokens_total": 900.0,
        }  # fmt: skip
        for name, value in gauges.items():
            say(name, of, value)
        for priority in priorities:
            say("num_running_reqs", {**of, "priority": priority}, 6.0)
            say("num_queue_reqs", {**of, "priority": priority}, 2.5)
    for stream in ("true", "false"):
        streams = {**every, "is_streaming": stream}
        say("prompt_tokens_total", streams, 1000.0)
        say("generation_tokens_total", streams, 300.0)
        for edge, count in (("0.1", 2), ("0.2", 4), ("+Inf", 5)):
            say("time_to_first_token_seconds_bucket", {**streams, "le": edge}, count)
    for source, value in (("device", 400.0), ("host", 100.0)):
        say("cached_tokens_total", {**every, "cache_source": source}, value)
    for name in ("inter_token_latency_seconds", "prompt_tokens_histogram", "uncached_prompt_tokens_histogram"):
        for edge, count in (("0.002", 100), ("+Inf", 590)):
            say(f"{name}_bucket", {**every, "le": edge}, count)
    return "\n".join(page)


def test_sglang_as_its_source_has_it():
    reading = reading_of_page(sglang())
    assert (reading.running, reading.waiting, reading.engines, reading.cache_used) == (12.0, 5.0, 1, 0.5)
    assert (reading.prompt_tokens, reading.output_tokens, reading.cache_tokens) == (2000.0, 600.0, 400_000.0)
    assert reading.ttft == LatencyCounts((0.1, 0.2, math.inf), (4.0, 8.0, 10.0))
    assert reading.tbt.total == reading.prompts.total == 590.0
    found = read_metrics(sglang())
    assert found["preemptions"] == ("sglang:num_retracted_requests_total", 7.0)
    assert found["cached_tokens"] == ("sglang:cached_tokens_total", 500.0)


def test_retractions_that_are_not_counted_are_not_known():
    """The gauge is of the last moments only."""
    page = "\n".join(line for line in sglang().splitlines() if "num_retracted_requests" not in line)
    assert "num_retracted_reqs" in page and "preemptions" not in read_metrics(page)


def rank(tensor, pipeline=0, **more):
    return {"tp_rank": str(tensor), "pp_rank": str(pipeline), "moe_ep_rank": str(tensor)} | more


@pytest.mark.parametrize("kept", [False, True], ids=["served", "kept by Prometheus"])
@pytest.mark.parametrize(
    ("more", "engines"),
    [
        ({"priorities": ("0", "10")}, 1),
        ({"ranks": [rank(0), rank(1), rank(0, 1), rank(1, 1)]}, 1),
        ({"ranks": [rank(0, dp_rank="0"), rank(4, dp_rank="1")]}, 2),
        ({"ranks": [rank(each, dp_rank=str(each // 2)) for each in range(4)], "priorities": ("0", "10")}, 2),
    ],
)
def test_what_sglang_says_more_than_once_counts_once(more, engines, kept):
    page = sglang(**more).replace(',priority=""', "") if kept else sglang(**more)
    reading = reading_of_page(page)
    assert (reading.running, reading.waiting, reading.engines) == (12.0, 5.0 * engines, engines)
    assert (reading.cache_used, reading.cache_tokens) == (0.5, 400_000.0)
    assert read_metrics(page)["preemptions"] == ("sglang:num_retracted_requests_total", 7.0 * engines)


def test_a_priority_that_is_a_label_of_every_series():
    page = sglang(ranks=[rank(0, priority="high")])
    assert reading_of_page(page).running == 12.0

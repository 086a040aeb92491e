"""What servers say of themselves, in the names that each has."""

import pytest

from wastenot.serving.bench.scraping import Scraped, read_metrics

PAGES = {
    "vLLM": (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="m"} 30.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 34.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 2.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.6\n'
        'vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06\n',
        {"running": 64.0, "waiting": 2.0, "cache_used": 0.5, "output_tokens": 1.5e6},
    ),
    "SGLang": (
        'sglang:num_running_reqs{model_name="m"} 12.0\nsglang:num_queue_reqs{model_name="m"} 0.0\n'
        'sglang:token_usage{model_name="m"} 0.28\nsglang:prompt_tokens_total{model_name="m"} 8.1e+06\n',
        {"running": 12.0, "waiting": 0.0, "cache_used": 0.28, "prompt_tokens": 8.1e6},
    ),
    "TensorRT-LLM": (
        'trtllm_num_requests_running{engine_type="pytorch"} 7\ntrtllm_kv_cache_utilization 0.1 1700000000\n',
        {"running": 7.0, "cache_used": 0.1},
    ),
    "Triton": (
        'nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 3\n'
        'nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 9\n',
        {"running": 9.0, "waiting": 3.0},
    ),
}


@pytest.mark.parametrize("server", PAGES)
def test_metrics_are_read_in_the_names_of(server: str) -> None:
    page, expected = PAGES[server]
    assert {quantity: value for quantity, (_, value) in read_metrics(page).items()} == pytest.approx(expected)


@pytest.mark.parametrize("page", ["", "[]", '[{"iter": 3}]', "<html>no</html>", "vllm:num_requests_running nothing"])
def test_a_page_without_them_has_none(page: str) -> None:
    assert read_metrics(page) == {}


def test_means_and_rises_are_of_the_window() -> None:
    scraped = Scraped(
        [0.0, 1.0, 2.0, 3.0, 4.0],
        [{"running": float(i * i), "output_tokens": 100.0 * i} for i in range(5)],
    )
    assert scraped.mean("running", 0.5, 3.5) == pytest.approx(14.0 / 3.0)
    assert scraped.rise("output_tokens", 0.5, 3.5) == (1.0, 3.0, 200.0)
    assert scraped.mean("waiting", 0.0, 4.0) is None
    assert scraped.rise("output_tokens", 2.5, 3.5) is None  # one sample tells no rise


def test_a_counter_that_began_anew_tells_no_rise() -> None:
    scraped = Scraped([0.0, 1.0, 2.0], [{"output_tokens": 5.0}, {"output_tokens": 9.0}, {"output_tokens": 1.0}])
    assert scraped.rise("output_tokens", 0.0, 2.0) is None

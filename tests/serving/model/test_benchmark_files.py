"""Operating points of InferenceX and AIPerf, in the forms that both write."""

import json

import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.benchmark_files import read_server_table

INFERENCE_X = {
    "hw": "h200-nv", "tp": 8, "ep": 1, "dp_attention": "false", "conc": 64, "model": "openai/gpt-oss-120b",
    "framework": "vllm", "precision": "fp4", "isl": 1024, "osl": 1024, "tput_per_gpu": 900.0, "output_tput_per_gpu": 450.0,
    "mean_ttft": 0.21, "median_ttft": 0.2, "p99_ttft": 0.6, "median_tpot": 0.017, "median_itl": 0.016, "p99_itl": 0.03,
    "median_e2el": 17.0, "power_valid": 1, "avg_power_w": 500.0, "joules_per_output_token": 1.11,
}  # fmt: skip


def _gpu(index):
    return {"gpu_index": index, "gpu_name": "NVIDIA H100 80GB HBM3", "gpu_uuid": f"GPU-{index}", "metrics": {}}


AIPERF = {
    "schema_version": "1.4", "aiperf_version": "0.13.0",
    "output_token_throughput": {"unit": "tokens/sec", "avg": 5000.0},
    "inter_token_latency": {"unit": "ms", "avg": 25.0, "p50": 24.0, "p90": 28.0, "p95": 29.0, "p99": 33.0},
    "time_to_first_token": {"unit": "ms", "avg": 150.0, "p50": 142.0, "p99": 195.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "total_osl": {"unit": "tokens", "avg": 600_000.0},
    "nvidia_total_gpu_energy": {"unit": "J", "avg": 120_000.0},
    "nvidia_total_gpu_power": {"unit": "W", "avg": 1_000.0},
    "telemetry_data": {"endpoints": {"localhost:9400": {"gpus": {"gpu_0": _gpu(0), "gpu_1": _gpu(1)}}}},
    "input_config": {"models": {"items": [{"name": "llama3-8b"}]}, "phases": [{"name": "profiling", "concurrency": 128}]},
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    def write(document):
        path = tmp_path / "result.json"
        path.write_text(json.dumps(document))
        return path

    return write


def test_inference_x_gives_all_gpus_together(written):
    (point,) = read_server_table(written(INFERENCE_X))
    assert (point.model, point.gpu, point.gpus, point.max_running) == ("openai/gpt-oss-120b", "H200", 8, 64)
    assert (point.tokens_per_s, point.power_w, point.energy_per_token_j) == (3600.0, 4000.0, 1.11)
    assert (point.itl.p50_s, point.itl.p99_s, point.ttft.mean_s, point.end_to_end.p50_s) == (0.016, 0.03, 0.21, 17.0)
    assert (point.output_tokens, point.evidence) == (1024.0, "measured")


def test_power_that_inference_x_itself_doubts_is_left_out(written):
    (point,) = read_server_table(written(INFERENCE_X | {"power_valid": 0}))
    assert (point.energy_per_token_j, point.power_w) == (None, None)
    assert "check" in point.notes[0]


def test_a_list_of_runs_and_gpus_for_prefill_alone(written):
    apart = INFERENCE_X | {"disagg": True, "num_prefill_gpu": 4, "num_decode_gpu": 8}
    one, other = read_server_table(written([INFERENCE_X, apart]))
    assert (one.gpus, other.gpus) == (8, 12)


def test_aiperf_divides_energy_by_tokens(written):
    (point,) = read_server_table(written(AIPERF))
    assert (point.model, point.gpu, point.gpus, point.max_running) == ("llama3-8b", "H100", 2, 128)
    assert (point.energy_per_token_j, point.power_w, point.tokens_per_s) == (0.2, 1000.0, 5000.0)
    assert point.itl.p99_s == pytest.approx(0.033)
    assert point.is_stable


def test_a_run_that_aiperf_did_not_complete_is_not_relied_on(written):
    (point,) = read_server_table(written(AIPERF | {"is_complete": False, "incomplete_reason": "record stall"}))
    assert not point.is_stable
    assert "record stall" in point.why_unstable


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (AIPERF | {"telemetry_data": None}, "--gpu-telemetry"),
        (AIPERF | {"input_config": {}}, "names no model"),
        (AIPERF | {"output_token_throughput": {"unit": "requests/sec", "avg": 1.0}}, "expected tokens/sec"),
        (AIPERF | {"nvidia_total_gpu_energy": {"unit": "J", "avg": -1.0}}, "not a positive number"),
        (AIPERF | {"telemetry_data": {"endpoints": {"a": {"gpus": [1]}}}}, "GPUs"),
        (INFERENCE_X | {"conc": "many"}, "conc 'many'"),
        (INFERENCE_X | {"output_tput_per_gpu": None}, "output_tput_per_gpu"),
        (INFERENCE_X | {"hw": 7}, "hw 7"),
        ([], "no configuration"),
        ({"rows": 1}, "ML.ENERGY"),
    ],
)
def test_what_a_file_lacks_is_said(written, document, reason):
    with pytest.raises(BadInputError, match=reason):
        read_server_table(written(document))


def test_both_are_imported_and_chosen_from(written, wastenot):
    for document in (INFERENCE_X, AIPERF):
        assert wastenot("study", "import", str(written(document)), "--study", "s.db").code == 0
    chosen = wastenot("serve", "recommend", "s.db", "--itl", "50ms", "--task", "AIPerf", "--json")
    assert chosen.code == 0, chosen.err
    assert json.loads(chosen.out)["recommendations"][0]["gpus"] == 2

"""Records of an engine's steps: written beside it, without ever holding it up, and by what vLLM tells its loggers."""

import importlib
import json
import sys
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from wastenot.serving.bench.step_log import StepLog
from wastenot.serving.model.step_records import read_step_records

HEAD = {"schema": "wastenot.steps/1", "engine": "vllm 0", "model": "m", "gpus": 1}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_are_written_after_a_head(tmp_path):
    log = StepLog(tmp_path / "steps.jsonl", HEAD, clock_mhz=lambda: 1500.0)
    for number in range(100):
        log.put({"n": number})
    log.close()
    head, *rows = lines(tmp_path / "steps.jsonl")
    assert head == {**HEAD, "dropped": 0} and [each["n"] for each in rows] == list(range(100))
    assert {each["core_mhz"] for each in rows} == {1500.0}


def test_a_full_file_makes_way_and_two_are_kept(tmp_path):
    log = StepLog(tmp_path / "steps.jsonl", HEAD, most_bytes=1000)
    for number in range(2000):
        log.put({"n": number})
    log.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["steps.jsonl", "steps.jsonl.1"]
    assert all(each.stat().st_size < 1100 for each in tmp_path.iterdir())
    kept = [each["n"] for name in ("steps.jsonl.1", "steps.jsonl") for each in lines(tmp_path / name)[1:]]
    assert kept == list(range(2000 - len(kept), 2000))


def test_what_cannot_be_written_holds_nobody_up(tmp_path):
    log = StepLog(tmp_path / "gone" / "steps.jsonl", HEAD)
    began_s = time.perf_counter()
    for number in range(20_000):
        log.put({"n": number})
    assert time.perf_counter() - began_s < 5.0
    assert log.dropped >= 20_000 - 10_000
    log.close(0.1)


def test_a_clock_that_cannot_be_read_is_left_out(tmp_path):
    log = StepLog(tmp_path / "steps.jsonl", HEAD, clock_mhz=lambda: 1 / 0)
    log.put({"n": 1})
    log.close()
    assert lines(tmp_path / "steps.jsonl")[1:] == [{"n": 1}]


# ---- the plug-in of vLLM -------------------------------------------------------------------------------------------

CONFIG = SimpleNamespace(
    cache_config=SimpleNamespace(num_gpu_blocks=1000, block_size=16),
    model_config=SimpleNamespace(served_model_name="tiny", model="/models/tiny"),
    parallel_config=SimpleNamespace(world_size=1),
    scheduler_config=SimpleNamespace(max_num_batched_tokens=2048, max_num_seqs=16),
    observability_config=SimpleNamespace(enable_logging_iteration_details=True),
)


def scheduler(running=2, **more):
    return SimpleNamespace(num_running_reqs=running, num_waiting_reqs=1, kv_cache_usage=0.5, **more)


def iteration(gaps=(), first=(), finished=()):
    return SimpleNamespace(
        inter_token_latencies_iter=list(gaps), time_to_first_tokens_iter=list(first), finished_requests=list(finished),
        num_generation_tokens=len(gaps) + len(first),
    )  # fmt: skip


def details(**more):
    found = {"num_ctx_tokens": 300, "num_ctx_requests": 1, "num_generation_tokens": 2, "num_generation_requests": 2}
    return SimpleNamespace(**{**found, "elapsed_ms": 12.0, "is_dummy": False, **more})


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    loggers = ModuleType("vllm.v1.metrics.loggers")
    loggers.StatLoggerBase = object
    packages = {name: ModuleType(name) for name in ("vllm", "vllm.v1", "vllm.v1.metrics")}
    packages["vllm"].__version__ = "0.32.0"
    for name, module in {**packages, "vllm.v1.metrics.loggers": loggers}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "wastenot.serving.bench.vllm_steps", raising=False)
    monkeypatch.setenv("WASTENOT_STEPS", str(tmp_path / "steps.jsonl"))
    yield importlib.import_module("wastenot.serving.bench.vllm_steps")
    sys.modules.pop("wastenot.serving.bench.vllm_steps", None)


def test_steps_with_details(plugin, tmp_path):
    logger = plugin.StepLogger(CONFIG)
    logger.record(scheduler(iteration_details=details()), iteration(gaps=[0.01, 0.02, 0.03]), engine_idx=0)
    logger.record(scheduler(iteration_details=details(is_dummy=True)), iteration())
    logger.record(None, iteration())
    logger._log.close()
    records = read_step_records(tmp_path / "steps.jsonl")
    assert (records.model, records.engine, records.gpus, len(records)) == ("tiny", "vllm 0.32.0", 1, 1)
    assert (records.prefill_tokens[0], records.decode_tokens[0], records.time_s[0]) == (300.0, 2.0, 0.02)
    assert records.context[0] == 4000.0
    assert lines(tmp_path / "steps.jsonl")[0]["cache_tokens"] == 16_000


@pytest.mark.parametrize(
    ("running", "found", "kept"),
    [
        (2, iteration(gaps=[0.01, 0.03]), 0.02),
        (1, iteration(gaps=[0.01, 0.03], finished=["one"]), 0.02),
        (3, iteration(gaps=[0.01, 0.03]), None),  # one of three made no token: a prompt may have been prefilled
        (2, iteration(gaps=[0.01], first=[0.2]), None),
        (2, None, None),
    ],
)
def test_without_details_only_steps_that_surely_decode_alone(plugin, running, found, kept):
    record = plugin.step_record(scheduler(running), found, 16_000.0)
    assert (None if record is None else record["step_s"]) == kept
    assert record is None or (record["prefill_tokens"], record["decode_tokens"]) == (0, 2)


def test_statistics_of_another_version_end_the_records_and_no_more(plugin, tmp_path, caplog):
    logger = plugin.StepLogger(CONFIG)
    logger.record(SimpleNamespace(), iteration())
    logger.record(scheduler(iteration_details=details()), iteration(gaps=[0.01]))
    logger.log_engine_initialized()
    assert len(caplog.records) == 1 and "no more steps are recorded: AttributeError" in caplog.text
    assert not (tmp_path / "steps.jsonl").exists()


@pytest.mark.parametrize("nonsense", ["much", "nan", "inf", "-1", "0"])
def test_a_size_that_is_none_is_said_once_and_steps_are_recorded(plugin, monkeypatch, tmp_path, caplog, nonsense):
    monkeypatch.setenv("WASTENOT_STEPS_MB", nonsense)
    logger = plugin.StepLogger(CONFIG)
    for _ in range(3):
        logger.record(scheduler(iteration_details=details()), iteration(gaps=[0.01]))
    logger._log.close()
    assert [each.getMessage() for each in caplog.records] == [
        f"WASTENOT_STEPS_MB={nonsense}: not a size in megabytes; 67 is used"
    ]
    assert len(read_step_records(tmp_path / "steps.jsonl")) == 3


def test_a_device_that_is_none_is_said_and_steps_are_recorded_without_a_clock(plugin, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("WASTENOT_STEPS_DEVICE", "sim:nothing")
    logger = plugin.StepLogger(CONFIG)
    logger.record(scheduler(iteration_details=details()), iteration(gaps=[0.01]))
    logger._log.close()
    assert "WASTENOT_STEPS_DEVICE=sim:nothing: steps are recorded without a clock" in caplog.text
    assert np.isnan(read_step_records(tmp_path / "steps.jsonl").core_mhz).all()


def test_nothing_is_done_unless_asked_for(plugin, monkeypatch, tmp_path):
    monkeypatch.delenv("WASTENOT_STEPS")
    logger = plugin.StepLogger(CONFIG)
    logger.record(scheduler(iteration_details=details()), iteration(gaps=[0.01]))
    assert logger._log is None and not list(tmp_path.iterdir())

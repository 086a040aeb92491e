"""Operating points of servers as other benchmarks write them, told apart by what their files hold.

- ML.ENERGY's leaderboard, CSV or JSON (:mod:`wastenot.serving.model.ml_energy`).
- InferenceX (formerly InferenceMAX): ``agg_*.json`` of a run, or a list of them: throughputs of each GPU, latencies in
  seconds, and where power was read ``avg_power_w`` of a GPU and ``joules_per_output_token`` of all.
- AIPerf: ``profile_export_aiperf.json``, with GPU telemetry for the GPUs and their energy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.core.vendors import VENDORS
from wastenot.serving.model.ml_energy import SOURCE, positive_number, read_ml_energy, text_of, text_of_file, whole_number
from wastenot.serving.tables.records import Percentiles, ServingPoint

_INFERENCE_X = "InferenceX: "
PUBLISHED = (SOURCE, _INFERENCE_X)
"""How the sources of points begin that others measured and published."""
_MODEL = re.compile(r"\b[A-Z]+\d+\w*")  # H100 of "NVIDIA H100 80GB HBM3"
_TO_S, _TO_J = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6}, {"J": 1.0, "mJ": 1e-3, "MJ": 1e6}


def read_server_table(path: str | Path) -> tuple[ServingPoint, ...]:
    """The points of a file of any of these benchmarks, in its order.

    Raises:
        BadInputError: the file cannot be read, is of none of them, or lacks what a point needs.
    """
    text = text_of_file(path)
    if text.lstrip()[:1] in {"{", "["}:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"{path}: is not JSON: {error}") from error
        listed = document if isinstance(document, list) else [document]
        if listed and all(isinstance(each, dict) and {"hw", "conc"} <= each.keys() for each in listed):
            several = len(listed) > 1
            return tuple(
                _of_inference_x(row, f"{path}: run {index}" if several else str(path), Path(path).name)
                for index, row in enumerate(listed, 1)
            )
        if isinstance(document, dict) and {"aiperf_version", "output_token_throughput"} & document.keys():
            return (_of_aiperf(document, str(path)),)
    return read_ml_energy(path)


def _of_inference_x(row: Mapping[str, Any], where: str, name: str) -> ServingPoint:
    tensor_parallel = whole_number(row, "tp", where, 0) or whole_number(row, "decode_tp", where)
    shares = [whole_number(row, f"num_{part}_gpu", where, 0) for part in ("prefill", "decode")]
    apart = row.get("disagg") in (True, "true")  # prefill and decode on GPUs of their own
    gpus = sum(shares) if apart else max(*shares, tensor_parallel)
    output_tokens = positive_number(row, "osl", where)
    throughput, energy_j = positive_number(row, "output_tput_per_gpu", where), None
    if throughput is None:
        raise BadInputError(f"{where}: needs output_tput_per_gpu, tokens per second of each GPU")
    notes, power_w = [], positive_number(row, "avg_power_w", where)
    if row.get("power_valid", 1) in (1, True):
        energy_j = positive_number(row, "joules_per_output_token", where)
    else:
        power_w, notes = None, ["its own check of the power readings failed: energy left out"]
    if apart:
        notes.append("prefill and decode on GPUs of their own")
    task = " → ".join(f"{row[key]} tokens" for key in ("isl", "osl") if row.get(key)) or "InferenceX"
    tail = "itl" if "median_itl" in row else "tpot"
    return ServingPoint(
        model=text_of(row, "model", where),
        gpu=text_of(row, "hw", where).partition("-")[0].upper(),
        gpus=gpus,
        task=task,
        max_running=whole_number(row, "conc", where),
        mean_running=None,
        energy_per_token_j=energy_j,
        power_w=None if power_w is None else power_w * gpus,
        tokens_per_s=throughput * gpus,
        output_tokens=output_tokens,
        itl=_in_seconds(row, tail, where),
        ttft=_in_seconds(row, "ttft", where),
        end_to_end=_in_seconds(row, "e2el", where),
        tensor_parallel=tensor_parallel,
        expert_parallel=whole_number(row, "ep", where, 1),
        precision=str(row.get("precision") or ""),
        source=f"{_INFERENCE_X}{name}",
        notes=tuple(notes),
    )


def _in_seconds(row: Mapping[str, Any], latency: str, where: str) -> Percentiles:
    return Percentiles(
        *(positive_number(row, f"{part}_{latency}", where) for part in ("mean", "median", "p90", "p95", "p99"))
    )


def _of_aiperf(document: Mapping[str, Any], where: str) -> ServingPoint:
    config = document.get("input_config")
    models = [each.get("name") for each in _found(config, "items") if isinstance(each, dict)]
    models += [each for each in _found(config, "model_names") if isinstance(each, str)]
    if not models or not isinstance(models[0], str):
        raise BadInputError(f"{where}: its input_config names no model; give the file as AIPerf wrote it")
    running = next((each for each in _found(config, "concurrency") if isinstance(each, int) and each > 0), None)
    gpus = list(_found(document.get("telemetry_data"), "gpu_name"))
    if not gpus or not all(isinstance(each, str) for each in gpus):
        raise BadInputError(f"{where}: says nothing of the server's GPUs; measure with 'aiperf profile --gpu-telemetry'")
    if running is None:
        raise BadInputError(f"{where}: has no concurrency; measure with 'aiperf profile --concurrency N'")
    rate = _mean(document, "output_token_throughput", {"tokens/sec": 1.0}, where)
    if rate is None:
        raise BadInputError(f"{where}: has no output_token_throughput; give the file as AIPerf wrote it")
    energy_j = tokens = power_w = None
    for prefix in ("", *(f"{vendor.name}_" for vendor in VENDORS)):
        energy_j = energy_j or _mean(document, f"{prefix}total_gpu_energy", _TO_J, where)
        power_w = power_w or _mean(document, f"{prefix}total_gpu_power", {"W": 1.0}, where)
    for total in ("total_osl", "total_output_tokens"):
        tokens = tokens or _mean(document, total, {"tokens": 1.0}, where)
    notes = () if document.get("is_complete") is not False else (f"incomplete: {document.get('incomplete_reason')}",)
    return ServingPoint(
        model=models[0],
        gpu=next(iter(_MODEL.findall(gpus[0])), gpus[0]),
        gpus=len(gpus),
        task="AIPerf",
        max_running=running,
        mean_running=None,
        energy_per_token_j=None if energy_j is None or tokens is None else energy_j / tokens,
        power_w=power_w,
        tokens_per_s=rate,
        output_tokens=_mean(document, "output_sequence_length", {"tokens": 1.0}, where),
        itl=_percentiles(document, "inter_token_latency", where),
        ttft=_percentiles(document, "time_to_first_token", where),
        end_to_end=_percentiles(document, "request_latency", where),
        tensor_parallel=len(gpus),
        source=f"AIPerf: {Path(where).name}",
        why_unstable=notes[0] if notes else "",
        notes=notes,
    )


def _found(value: Any, key: str, depth: int = 6) -> Iterator[Any]:
    """Values under a key at any depth, the elements of those that are lists."""
    if depth and isinstance(value, Mapping):
        for each, inner in value.items():
            if each == key:
                yield from inner if isinstance(inner, list) else [inner]
            else:
                yield from _found(inner, key, depth - 1)
    elif depth and isinstance(value, list):
        for inner in value:
            yield from _found(inner, key, depth - 1)


def _scaled(document: Mapping[str, Any], metric: str, part: str, units: Mapping[str, float], where: str) -> float | None:
    """A part of a metric in base units; ``None`` where it is not there."""
    found = document.get(metric)
    if not isinstance(found, dict) or found.get(part) is None:
        return None
    if found.get("unit") not in units:
        raise BadInputError(f"{where}: {metric} is in {found.get('unit')!r:.40}, expected {' or '.join(units)}")
    number = positive_number(found, part, f"{where}: {metric}")
    return None if number is None else number * units[found["unit"]]


def _mean(document: Mapping[str, Any], metric: str, units: Mapping[str, float], where: str) -> float | None:
    return _scaled(document, metric, "avg", units, where)


def _percentiles(document: Mapping[str, Any], metric: str, where: str) -> Percentiles:
    return Percentiles(*(_scaled(document, metric, part, _TO_S, where) for part in ("avg", "p50", "p90", "p95", "p99")))

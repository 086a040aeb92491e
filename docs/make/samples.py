"""The samples that are installed with the package: ``python -m docs.make.samples`` makes all that are simulated anew."""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import wastenot as wn
from benchmarks.kept import ROOT
from testbed.job_traces import POWER, TRAIN
from wastenot.cli.main import run as main
from wastenot.core.samples import FOLDER
from wastenot.core.setting import Setting
from wastenot.pipelines.model.profile import listed_ways
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.operating_points import operating_points
from wastenot.serving.model.profile_file import read_engine

_PROFILES = {name: ROOT / "data" / "serving" / f"{name}-sim-h200.json" for name in ("llama-8b", "llama-70b")}
_DIGITS = 5


def engine() -> str:
    """Llama 3 8B on a simulated H200: the repository's profile at fewer clocks."""
    document = json.loads(_PROFILES["llama-8b"].read_text())
    tables = document["engines"][0]["tables"]
    settings = tables["settings"]
    kept = [i for i, each in enumerate(settings) if each["core_mhz"] in (None, 960, 1200, 1380, 1500, 1680, 1860, 1980)]
    for name, values in tables.items():
        if isinstance(values, list) and len(values) == len(settings):
            tables[name] = [_rounded(values[i]) for i in kept]
    return json.dumps(document, separators=(",", ":")) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def requests() -> str:
    """Ten minutes of random requests, two a second, as long as those of conversations."""
    drawn = poisson(2.0, 600.0, LogNormal(800, 1.0, most=4000), LogNormal(150, 0.8, most=1000), seed=2026)
    columns = (drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens)
    rows = (f"{at_s:.3f},{prompt:.0f},{output:.0f}\n" for at_s, prompt, output in zip(*columns, strict=True))
    return "arrival_s,prompt_tokens,output_tokens\n" + "".join(rows)


def leaderboard() -> str:
    """Servers of two models by GPUs and batch size, at the driver's own clocks."""
    text = (
        "task,model_id,gpu_model,num_gpus,tensor_parallel,max_num_seqs,energy_per_token_joules,median_itl_ms,"
        "avg_power_watts,output_throughput_tokens_per_sec,avg_output_len,origin\n"
    )
    for model, path in _PROFILES.items():
        for point in operating_points(read_engine(path), context=1024.0, batches=(8, 16, 32, 64, 96, 128, 192, 256)):
            if point.setting == Setting():
                text += (
                    f"chat,{model},H200,{point.gpus},{point.gpus},{point.batch:.0f},{point.energy_per_token_j:.{_DIGITS}g},"
                    f"{1e3 * point.latency_s:.{_DIGITS}g},{point.power_w:.{_DIGITS}g},"
                    f"{point.batch / point.latency_s:.{_DIGITS}g},200,simulated\n"
                )
    return text


def steps() -> str:
    """Single steps of one engine at five clocks."""
    tables = read_engine(_PROFILES["llama-8b"]).engine().tables
    text = "phase,sequences,tokens,context,core_mhz,time_s,power_w,origin\n"
    for clock in (960, 1200, 1440, 1680, 1980):
        at = tables.settings.index(Setting(clock))
        for batch, context in product((1, 8, 64, 256), (512, 2048)):
            cell = at, list(tables.batches).index(batch), list(tables.context_tokens).index(context)
            text += _step(f"decode,{batch},1,{context},{clock}", tables.decode_time_s[cell], tables.decode_energy_j[cell])
        for tokens, past in product((128, 512, 2048), (0, 2048)):
            cell = at, list(tables.prefill_tokens).index(tokens), list(tables.past_tokens).index(past)
            text += _step(f"prefill,1,{tokens},{past},{clock}", tables.prefill_time_s[cell], tables.prefill_energy_j[cell])
        text += f"idle,,,,{clock},,{tables.idle_power_w[at]:.4g},simulated\n"
    return text


def _step(what: str, time_s: float, energy_j: float) -> str:
    return f"{what},{time_s:.{_DIGITS}g},{energy_j / time_s:.{_DIGITS}g},simulated\n"


def sweep() -> str:
    """The kernels of GPT-3 Small at a few core clocks of a simulated RTX 3080 Ti."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "sweep.csv"
        study = f"{folder}/study.db"
        wn.sweep("gpt3-small", device="sim:rtx-3080-ti", study=study, clocks=wn.Grid(core_step_mhz=210))
        main(["study", "export", str(whole), "--study", study])
        with whole.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["memory_mhz"] in ("", "9501")]
    names = ("kernel", "count", "core_mhz", "memory_mhz", "time_s", "energy_j", "pass", "block")
    text = ",".join(names) + "\n"
    for row in {(row["kernel"], row["core_mhz"]): row for row in rows}.values():  # without repeats
        if row["core_mhz"] in ("", "2100", "1890", "1680", "1470", "1260", "1050"):
            short = {key: f"{float(row[key]):.{_DIGITS}g}" for key in ("time_s", "energy_j")}
            text += ",".join((row | short)[name] for name in names) + "\n"
    return text


def profile() -> str:
    """Four stages of GPT-3 175B on simulated H200s, forward and backward at each clock."""
    found = wn.pipeline("gpt3-175b", stages=4, micro_batches=8, device="sim:h200").profile
    text = "stage,instruction,frequency,time,energy,origin\n"
    for (stage, name), ways in sorted(found.ways.items()):
        for time_s, energy_j, label in listed_ways(ways):
            if label.core_mhz is not None:
                text += f"{stage},{name},{label.core_mhz:g},{time_s:.{_DIGITS}g},{energy_j:.{_DIGITS}g},simulated\n"
    return text


def grid() -> str:
    """A made-up day of a grid with much solar power."""
    night, day = (310, 300, 295, 290, 300, 330, 370, 390), (360, 300, 250, 210, 190, 185, 195, 230, 290, 370)
    grams = (*night, *day, 430, 450, 430, 400, 360, 330)
    return "time,g_per_kwh\n" + "".join(f"{hour:02}:00,{each}\n" for hour, each in enumerate(grams))


_MADE: dict[str, Callable[[], str]] = {
    "engine.json": engine,
    "requests.csv": requests,
    "leaderboard.csv": leaderboard,
    "steps.csv": steps,
    "sweep.csv": sweep,
    "profile.csv": profile,
    "grid.csv": grid,
    "summary_train.csv": lambda: TRAIN,
    "summary_power.csv": lambda: POWER,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or _MADE:
        (FOLDER / name).write_text(_MADE[name]())

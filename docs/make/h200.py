"""What was measured on H200s, from data/h200."""

from __future__ import annotations

import csv
from typing import Any

import altair as alt
import numpy as np

from benchmarks.bench_pipeline_h200 import configurations, held_out_errors
from benchmarks.kept import DATA
from docs.make.page import Page, filled, png, read_json, signed, table
from presets.h200_data import read_all
from presets.h200_errors import errors_at_auto, time_ratio
from wastenot.devices.simulated.preset import find_preset
from wastenot.study.sweep_file import read_sweep
from wastenot.workloads.build import build_workload

H200 = DATA / "h200"
LATEST = "gpt3-xl-4"


Trials = dict[str, dict[str, str]]


def trials_of(run: str) -> Trials:
    """The measurements of a run by kernel."""
    with (H200 / f"{run}-trials.csv").open(newline="") as stream:
        return {row["kernel"]: row for row in csv.DictReader(stream)}


def rows() -> list[dict[str, Any]]:
    """The kernels of the latest run, in order of execution."""
    trials = trials_of(LATEST)
    found = []
    for kernel in build_workload("gpt3-xl").kernels:
        trial = trials[kernel.name]
        time_s, energy_j = float(trial["time_s"]), float(trial["energy_j"])
        found.append({
            "kernel": kernel.name, "count": kernel.count, "time": time_s * 1e6, "power": energy_j / time_s,
            "memory": float(trial["memory_power_w"]), "core": float(trial["core_mhz"]),
            "held": float(trial["throttled_share"]), "energy": kernel.count * energy_j,
        })  # fmt: skip
    return found


def iteration(run: str, workload: str = "gpt3-xl") -> tuple[float, float]:
    """Time and energy of an iteration: the sum over its kernels."""
    sweep = read_sweep(H200 / f"{run}.csv")
    counts = np.array([kernel.count for kernel in sweep.kernels])[sweep.kernel_index]
    return float(counts @ sweep.time_s), float(counts @ sweep.energy_j)


def watts() -> str:
    """Where the watts go in the latest run."""
    time_s, energy_j = iteration(LATEST)
    gemms = [row for row in rows() if "gemm" in row["kernel"]]
    others = [row for row in rows() if "gemm" not in row["kernel"] and row["time"] > 10.0]
    usual = [row for row in others if row["core"] >= 1800 and 515 <= row["power"] <= 700]
    return filled(
        f"The kernels of one iteration of GPT-3 XL training (batch 40 × 1,024 tokens, bf16, run 4) take {1e3 * time_s:.0f} ms "
        f"and {energy_j:.0f} J, {energy_j / time_s:.0f} W on average. GEMMs are held at {range_of(gemms, 'power')} W and "
        f"{range_of(gemms, 'core')} MHz, although 1,980 MHz are allowed: requesting the highest clock gains them nothing. "
        f"Of the {len(others)} other kernels of more than 10 µs, {len(usual)} run at 1,800 to 1,980 MHz and 515 to 700 W. "
        "How much of their speed they owe to the high clock, these runs cannot tell."
    )


def range_of(kernels: list[dict[str, Any]], what: str) -> str:
    """From the lowest to the highest value."""
    values = [row[what] for row in kernels]
    return f"{min(values):,.0f} to {max(values):,.0f}"


def never_fitted() -> str:
    """What sim:h200 says of operations that nothing was fitted to."""
    preset = find_preset("h200")
    operations = [one for one in read_all() if one.held]
    errors = errors_at_auto(preset, operations)
    found = []
    groups = {"matrix products": ("gemm",), "attention": ("attention",), "its gradients": ("attention_backward",)}
    by_name = {name: [one for one in errors if one.measured.kernel.op in ops] for name, ops in groups.items()}
    for name, of in (by_name | {"all": errors}).items():
        ratios = [ratio for error in of if (ratio := time_ratio(preset, error.measured)) is not None]
        by_clock = [100.0 * abs(said / measured - 1.0) for said, measured in ratios]
        time, power = ([100.0 * abs(getattr(error, what)) for error in of] for what in ("time", "power"))
        found.append([
            name, f"{len(of)}", f"{np.mean(time):.1f} %, {max(time):.0f} %", f"{np.mean(power):.1f} %, {max(power):.0f} %",
            f"{np.median(by_clock):.1f} %, {max(by_clock):.0f} % ({len(by_clock)})",
        ])  # fmt: skip
    heads = (
        "operations | number | time at auto: mean, largest error | power | time at 1.50 GHz against 1.975: median, largest"
    )
    return table(heads, found)


_STEPS = {"gpt2": "GPT-2 (124M)", "gpt2-compiled": "GPT-2, `torch.compile`", "llama": "Llama 7B, eight layers"}
_WAYS = {"on": "iteration and passes", "layers": "each layer's too"}


def apply_overhead() -> str:
    """What markers cost a step, and how soon they are seen."""
    found = []
    measured = read_json(H200 / "apply" / "overhead.json")
    for job, facts in measured["jobs"].items():
        for way, cost in facts["overhead"]["arms"].items():
            if way not in _WAYS:
                continue
            change, delay = cost["gpu_time_change"], facts[f"delay_{way}"]
            low, high = (signed(100 * change[end], 2, " %") for end in ("low", "high"))
            found.append([
                f"{_STEPS[job]}, {1e3 * facts['overhead']['step_gpu_s']:.0f} ms", _WAYS[way], f"{cost['markers_a_step']:.0f}",
                f"{signed(100 * change['mean'], 2, ' %')} ({low} to {high})",
                f"{1e6 * delay['median_s']:.0f} µs", f"{1e6 * delay['p99_s']:.0f} µs",
            ])  # fmt: skip
    return table("step | markers | a step | GPU time of a step (95 %) | seen after, median | 99 %", found)


def pipeline() -> str:
    """How far iterations of a real pipeline are from those of its graph, and what waiting takes."""
    every = configurations()
    without = [100 * each.error(0.0) for each in every]
    errors, fitted = held_out_errors(every)
    ranks = read_json(H200 / "pipeline" / "two-stages.json")["ranks"]
    drawn = {
        how: [rank["waiting"][f"{how} {turn}"]["mean_w"] for rank in ranks for turn in range(3)]
        for how in ("receiving", "idle")
    }
    return filled(
        f"In {len(every)} configurations of 6 to 10 layers and 4 to 16 micro-batches, the graph of instructions is "
        f"{signed(min(without), 2)} to {signed(max(without), 2)} % off the iteration's median time without communication. With one "
        f"time for communication ({1e3 * min(fitted):.2f} to {1e3 * max(fitted):.2f} ms), fitted on a half of the configurations, the "
        f"error of the others is {100 * float(np.abs(errors).mean()):.2f} % in the mean and {100 * float(np.abs(errors).max()):.2f} % "
        f"at most. While its stream waits in a receive a card draws {min(drawn['receiving']):.0f} to {max(drawn['receiving']):.0f} W, "
        f"and with nothing to do {min(drawn['idle']):.0f} to {max(drawn['idle']):.0f} W, both at 1,980 MHz."
    )


def job() -> str:
    """A recurring training job: what each batch size costs, and what learning that cost."""
    record = read_json(H200 / "jobs" / "gpt-on-the-standard-library.json")
    terms = record["terms"]

    def price(run: dict[str, Any]) -> float:
        return float(terms["eta"] * run["energy_j"] + (1.0 - terms["eta"]) * terms["max_power_w"] * run["time_s"])

    done = [run for run in record["judged"] + record["runs"] if run["outcome"] == "reached"]
    sizes = {run["batch_size"] for run in done}
    means = {size: float(np.mean([price(run) for run in done if run["batch_size"] == size])) for size in sizes}
    best, default = min(means, key=means.__getitem__), terms["default"]
    count = max(run["recurrence"] for run in record["runs"]) + 1
    spent = np.bincount([run["recurrence"] for run in record["runs"]], [price(run) for run in record["runs"]])
    regret = spent / means[best] - 1.0
    first = int(np.flatnonzero([run["batch_size"] != best for run in record["runs"]])[-1]) + 1
    recurrences = record["runs"][first - 1]["recurrence"] + 1
    words = (
        f"{count} recurrences in {len(record['runs'])} runs: from recurrence {recurrences + 1} on every run took {best}. The first "
        f"{recurrences} cost {regret[:recurrences].sum():.1f} runs of {best} more than as many of these would have, the other "
        f"{count - recurrences} {abs(regret[recurrences:].sum()):.1f} {'more' if regret[recurrences:].sum() > 0 else 'less'}, which is "
        f"chance; always the default, {default}, would have cost {count * (means[default] / means[best] - 1.0):.0f} more. All in all "
        f"the job cost {100.0 * (1.0 - spent.sum() / count / means[default]):.0f} % less than with the default."
    )
    return filled(words, 120)


def kernel_chart() -> bytes:
    """Power, its memory part and the core clock of the kernels of the latest run."""
    kernels = rows()
    base = alt.Chart(alt.Data(values=kernels)).encode(y=alt.Y("kernel:N", sort=None, title=None))
    total = base.mark_bar(color="#9ecae9").encode(x=alt.X("power:Q", title="power at the default clocks, W (dark: memory)"))
    memory = base.mark_bar(color="#4c78a8").encode(x="memory:Q")
    limit = alt.Chart(alt.Data(values=[{"x": 700}])).mark_rule(strokeDash=[4, 3]).encode(x="x:Q")
    clock = base.mark_point(color="#e45756", filled=True, size=40).encode(
        x=alt.X("core:Q", title="core clock, MHz", scale=alt.Scale(domain=[1200, 2000]))
    )
    chart = alt.hconcat(
        alt.layer(total, memory, limit).properties(width=420),
        clock.properties(width=240).encode(y=alt.Y("kernel:N", sort=None, axis=None)),
    ).properties(title="GPT-3 XL training on an H200 at the default clocks, measured 2026-11-21; dashed: the power limit")
    return png(chart)


PAGES = (
    Page(
        "h200",
        {
            "watts": watts, "never-fitted": never_fitted, "apply-overhead": apply_overhead, "pipeline": pipeline,
            "job": job,
        },
        {"h200-kernels.png": kernel_chart},
    ),
)  # fmt: skip

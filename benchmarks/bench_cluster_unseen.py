"""Traffic that no policy of a cluster was shaped on: who keeps the deadlines of every class, and what is saved.

    all GPUs     an instance on every GPU at the default clocks, requests to the instance with fewest; of the degrees the one
                 that does best in hindsight
    best-static  instances, degrees and clocks that never change, in hindsight
    DynamoLLM    with its emergencies
    ours         told ten minutes of each trace, as DynamoLLM is
    best clock   an instance on every GPU, all at the one clock that does best in hindsight
    by metrics   the same instances, each at the clock that serve control chooses: what it adds alone

Sixteen shapes on two services, each drawn with a seed that was used for nothing else: a real hour whose copies come
together, bursty days, on and off, ramps, spikes, rushes, long prompts … Ours must keep 99 % of each class wherever all GPUs
do. Ours was shaped with seeds 1 to 9, and a draw that was to judge it showed a fault; those that judge it now were drawn
once, after its last change. The others, which did not change, were judged on an earlier draw, and clocks by metrics, which
are chosen for each instance once a second, on a third with two instances a service; where these missed a class or saved
little, ten more draws of the shape, added up, tell chance from fault. Everything is simulated.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.serving_loads import PROFILES, conversation
from benchmarks.verdict import Verdict, run_alone
from testbed.binomial import least_hits
from testbed.cluster_loads import load_of, result_of
from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.processes import shared_out
from wastenot.serving.cluster.classes import COUNT, NAMES, class_of
from wastenot.serving.cluster.controllers.fixed import Fixed, all_on
from wastenot.serving.cluster.model import Cluster
from wastenot.serving.cluster.run_record import RunRecord, record_of
from wastenot.serving.cluster.runs import runs_of, simulated
from wastenot.serving.cluster.scenario import Scenario, parse_scenario
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.requests import Requests

KEPT = DATA / "serving" / "cluster-unseen.json"
SHARE = 0.99
OURS, CONTROL = "parking", "all-on-by-metrics"
DRAWS: Mapping[int, tuple[str, ...]] = {425_770: ("best-static", "dynamollm"), 918_273: (OURS,), 602_214: (CONTROL,)}
"""Seeds of the traces, each drawn once, and who is judged on them; seeds 1 to 9 and 731,902 shaped ours."""
POOLED = (
    ("llama-8b on 2 GPUs", "ramp down"), ("llama-70b on 16 GPUs", "long prompts"), ("llama-70b on 16 GPUs", "Mooncake-like"),
)  # fmt: skip
POOLED_SEEDS = range(7001, 7011)
"""Service and shape of traces that are judged together, and the seeds of their draws, used for nothing else."""
IDLE_W, OFF_W = 120.0, 80.0
"""Of an H200 with a process and nothing to do, parked or not, and of one without a process; measured (``data/h200``)."""


SERVICES = {
    "llama-8b": (8 * 17e3, f'engines = "{PROFILES}/llama-8b-sim-h200.json"\nhosts = 1', 35.0),
    "llama-70b": (
        32 * 1.2e3,
        f'engines = "{PROFILES}/llama-70b-sim-h200.json"\nhosts = 4\ndegrees = [4, 8]\nstep_tokens = 1024',
        420.0,
    ),
    "llama-8b on 2 GPUs": (
        2 * 17e3, f'engines = "{PROFILES}/llama-8b-sim-h200.json"\nhosts = 1\ngpus_per_host = 2', 35.0
    ),
    "llama-70b on 16 GPUs": (
        16 * 1.2e3, f'engines = "{PROFILES}/llama-70b-sim-h200.json"\nhosts = 2\ndegrees = [8]\nstep_tokens = 1024', 420.0
    ),
}  # fmt: skip
"""About what all GPUs can take, in tokens of prompts per second; lines of a scenario; seconds that an instance starts."""

KNOWN_S, LASTS_S = 600.0, 2100.0
"""Of a trace: ten minutes that are known, and 25 that judge."""
REPLICATED = "replicated hour"
CHAT, LONG, CODE = ((700.0, 0.9, 130.0, 0.8), (3000.0, 0.5, 150.0, 0.7), (1900.0, 0.8, 20.0, 0.9))
MOONCAKE, REASONING = (6500.0, 0.8, 180.0, 0.8), (250.0, 0.9, 700.0, 0.7)
"""Log-normal lengths of prompts and answers: median and sigma of each. Mooncake's are like those of its conversations."""
OUTPUT_WORK = 4.0
"""Work of an answer's token, in tokens of prompts: by which loads of other lengths are made about as heavy."""

Lengths = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """A trace to draw.

    Attributes:
        load: of each second, of what all GPUs can take; shape (seconds,).
        lengths: of its requests.
        later: of those that come in its second half, where they are others.
        burstiness: coefficient of variation of the gaps.
        batch: requests that come together.
    """

    load: FloatArray
    lengths: Lengths = CHAT
    later: Lengths | None = None
    burstiness: float = 1.0
    batch: int = 1


def _seconds() -> FloatArray:
    return np.arange(LASTS_S)


def _level(random: np.random.Generator, low: float = 0.25, high: float = 0.5) -> FloatArray:
    return np.full(int(LASTS_S), random.uniform(low, high))


def _wandering(random: np.random.Generator, sigma: float, fades_s: float) -> FloatArray:
    """The exponential of a process that returns to 0 within a time."""
    stays = np.exp(-1 / fades_s)
    values = np.zeros(int(LASTS_S))
    for second in range(1, len(values)):
        values[second] = stays * values[second - 1] + sigma * np.sqrt(1 - stays**2) * random.standard_normal()
    return np.asarray(np.exp(values - sigma**2 / 2))


def _on_off(random: np.random.Generator) -> FloatArray:
    period_s, on = random.uniform(60, 400), random.uniform(0.3, 0.6)
    phase = (_seconds() / period_s + random.uniform()) % 1.0
    return np.where(phase < on, random.uniform(0.5, 0.65), random.uniform(0.05, 0.2))


def _ramp(random: np.random.Generator, *, up: bool) -> FloatArray:
    begin, end = random.uniform(0.08, 0.15), random.uniform(0.5, 0.65)
    line = np.interp(_seconds(), (600.0, random.uniform(1200.0, LASTS_S)), (begin, end))
    return line if up else np.asarray(begin + end - line)


def _spikes(random: np.random.Generator) -> FloatArray:
    load = _level(random, 0.12, 0.25)
    for begin_s in random.uniform(300.0, LASTS_S - 100.0, 7):
        there = (_seconds() >= begin_s) & (_seconds() < begin_s + random.uniform(15.0, 90.0))
        load[there] = random.uniform(0.45, 0.65)
    return load


def _rush(random: np.random.Generator) -> FloatArray:
    return np.where(_seconds() < random.uniform(800.0, 1500.0), random.uniform(0.06, 0.15), random.uniform(0.5, 0.65))


def _waves(random: np.random.Generator) -> FloatArray:
    slow, fast = (np.sin(2 * np.pi * (_seconds() / random.uniform(*span) + random.uniform())) for span in _PERIODS_S)
    return np.clip(0.35 * (1 + 0.4 * slow + 0.25 * fast), 0.05, 0.65)


_PERIODS_S = ((500.0, 1500.0), (60.0, 200.0))


def _day(random: np.random.Generator) -> FloatArray:
    """A working day within the trace: low, a steep morning, a dip at noon, a slow evening."""
    hours = (0.0, 0.25, 0.4, 0.5, 0.58, 0.75, 1.0)
    heights = np.array((0.3, 0.2, 0.9, 1.0, 0.8, 1.0, 0.4)) * random.uniform(0.85, 1.15, 7)
    return np.asarray(random.uniform(0.4, 0.5) * np.interp(_seconds() / LASTS_S, hours, heights))


SHAPES: Mapping[str, Callable[[np.random.Generator], Unseen]] = {
    "bursty day": lambda random: Unseen(_day(random), burstiness=random.uniform(2.0, 4.0)),
    "on and off": lambda random: Unseen(_on_off(random)),
    "ramp up": lambda random: Unseen(_ramp(random, up=True)),
    "ramp down": lambda random: Unseen(_ramp(random, up=False), burstiness=random.uniform(1.0, 2.0)),
    "spikes": lambda random: Unseen(_spikes(random)),
    "rush": lambda random: Unseen(_rush(random)),
    "waves": lambda random: Unseen(_waves(random)),
    "wandering": lambda random: Unseen(np.clip(0.3 * _wandering(random, 0.4, random.uniform(60, 300)), 0.03, 0.65)),
    "heavy bursts": lambda random: Unseen(_level(random, 0.2, 0.4), burstiness=random.uniform(3.0, 6.0)),
    "batches": lambda random: Unseen(_level(random, 0.2, 0.4), batch=int(random.integers(4, 16))),
    "long prompts": lambda random: Unseen(_level(random) * _wandering(random, 0.15, 120.0), LONG),
    "code": lambda random: Unseen(_level(random) * _wandering(random, 0.2, 120.0), CODE),
    "Mooncake-like": lambda random: Unseen(_level(random, 0.2, 0.4), MOONCAKE, burstiness=random.uniform(1.0, 1.5)),
    "long answers": lambda random: Unseen(_level(random) * _wandering(random, 0.15, 300.0), REASONING),
    "lengths change": lambda random: Unseen(_level(random, 0.2, 0.45), CHAT, LONG if random.uniform() < 0.5 else CODE),
}
"""By what they are called; a real hour whose copies come together is the other one (:func:`replicated`)."""


def unseen(shape: str, seed: int, work_per_s: float, most_prompt: int = 8192, most_output: int = 2048) -> Requests:
    """A trace of a shape.

    Args:
        shape: one of :data:`SHAPES`.
        seed: of all that is drawn.
        work_per_s: that all GPUs can take, in tokens of prompts.
        most_prompt: tokens of a prompt.
        most_output: tokens of an answer.
    """
    random = np.random.default_rng([seed, *shape.encode()])
    drawn = SHAPES[shape](random)
    halves = drawn.lengths, drawn.later or drawn.lengths
    late = _seconds() >= LASTS_S / 2
    work = np.array([m * np.exp(s**2 / 2) + OUTPUT_WORK * n * np.exp(t**2 / 2) for m, s, n, t in halves])
    rate = np.clip(drawn.load, 0.0, 0.7) * work_per_s / work[late.astype(int)] / drawn.batch
    expected = np.concatenate([[0.0], np.cumsum(rate)])
    shape_of_gaps = drawn.burstiness**-2
    gaps = random.gamma(shape_of_gaps, 1 / shape_of_gaps, int(expected[-1] * 1.2 + 400))
    at = np.cumsum(gaps) - 20.0 * random.uniform()  # time runs as requests are expected
    at = at[(at >= 0) & (at < expected[-1])]
    arrival = np.repeat(np.interp(at, expected, np.arange(len(expected))), drawn.batch)
    later = (arrival >= LASTS_S / 2).astype(int)
    m, s, n, t = (np.array(each)[later] for each in zip(*halves, strict=True))
    prompt = np.clip(np.rint(m * np.exp(s * random.standard_normal(len(arrival)))), 1, most_prompt)
    output = np.clip(np.rint(n * np.exp(t * random.standard_normal(len(arrival)))), 1, most_output)
    return Requests(arrival, prompt.astype(np.intp), output.astype(np.intp))


def replicated(requests: Requests, seed: int, work_per_s: float) -> Requests:
    """Copies of a part of a real hour that come together, so that its bursts add up.

    Args:
        requests: the hour.
        seed: of where it begins, and how much it is.
        work_per_s: that all GPUs can take, in tokens of prompts.
    """
    random = np.random.default_rng([seed, 0])
    part = requests.part(begin_s := random.uniform(0.0, 3590.0 - LASTS_S), begin_s + LASTS_S)
    work = float((part.prompt_tokens + OUTPUT_WORK * part.output_tokens).sum()) / LASTS_S
    copies = max(round(random.uniform(0.3, 0.45) * work_per_s / work), 1)
    arrival = np.repeat(part.arrival_s, copies) + random.uniform(0.0, 1.0, copies * len(part))
    order = np.argsort(arrival, kind="stable")
    each = np.repeat(np.arange(len(part)), copies)[order]
    return Requests(arrival[order], part.prompt_tokens[each], part.output_tokens[each])


def row_of_run(by_class: FloatArray, counts: FloatArray, energy_j: float, *, warned: bool | None = None) -> dict[str, Any]:
    """The class with the least, whether it is so few that a policy which keeps 99 % does worse once in a thousand times."""
    there = np.flatnonzero(counts > 0)
    surely = any(round(by_class[each] * counts[each]) < least_hits(int(counts[each]), SHARE) for each in there)
    least = int(there[by_class[there].argmin()])
    good = bool(by_class[least] >= SHARE)
    found = {"worst": round(float(by_class[least]), 5), "class": NAMES[least], "keeps": good, "energy_j": round(energy_j)}
    return found | {"surely_less": bool(surely)} | ({} if warned is None else {"warned": warned})


def of_record(record: RunRecord) -> dict[str, Any]:
    """Of a policy's run, and whether it warned before it."""
    arrivals, warned = np.array(record.timeline.arrivals), record.beforehand and record.beforehand.warns
    by_class = np.array([np.nan if each is None else each for each in record.by_class])
    return row_of_run(by_class, arrivals.sum(axis=0), record.energy_j, warned=warned)


def best_of(there: Scenario, plans: Iterable[Fixed]) -> dict[str, Any]:
    """The plan that does best: of those that keep 99 %, the cheapest."""
    load, found = load_of(there, there.parts.traffic[0], 0), []
    number = class_of(load.requests.prompt_tokens, load.requests.output_tokens)
    counts = np.bincount(number, minlength=COUNT).astype(float)
    for plan in plans:
        served = simulate_cluster(load.requests, there.cluster, plan, router=there.router)
        result = result_of(served, load.requests, there.cluster)
        found.append(row_of_run(result.by_class, counts, result.energy_j))
    return max(found, key=lambda each: (each["keeps"], -each["energy_j"] if each["keeps"] else each["worst"]))


def all_gpus(cluster: Cluster) -> list[Fixed]:
    """Every GPU at the default clocks, with instances of each degree."""
    return [all_on(cluster, layout) for layout in range(len(cluster.layouts))]


def at_each_clock(cluster: Cluster) -> list[Fixed]:
    """Every GPU in instances of the highest degree, all at one clock."""
    plan = all_gpus(cluster)[-1]
    settings = range(len(cluster.layouts[-1].tables.settings))
    return [replace(plan, placed=tuple(replace(each, setting=setting) for each in plan.placed)) for setting in settings]


def scenario(service: str, shape: str, seed: int, folder: Path, policies: Sequence[str] = (OURS,)) -> Scenario:
    """As a user would write it."""
    work_per_s, cluster, start_s = SERVICES[service]
    drawn = replicated(conversation(), seed, work_per_s) if shape == REPLICATED else unseen(shape, seed, work_per_s)
    rows = zip(drawn.arrival_s - drawn.arrival_s[0], drawn.prompt_tokens, drawn.output_tokens, strict=True)
    lines = ["arrival_s,prompt_tokens,output_tokens", *(f"{at:.6f},{prompt},{output}" for at, prompt, output in rows)]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    text = f"""
[cluster]
{cluster}
idle_power_w = {IDLE_W}
[cluster.changes]
start_s = {start_s}
off_power_w = {OFF_W}
[[traffic]]
name = "{service}, {shape}"
kind = "trace"
file = "trace.csv"
history_s = {KNOWN_S}
[run]
policies = {json.dumps(policies)}
"""
    return parse_scenario(text.encode(), folder / "unseen.toml")


def judged(service: str, shape: str, seed: int) -> dict[str, Any]:
    """All on one trace, by their names; ``None`` for a static plan or clock where none keeps the deadlines."""
    with tempfile.TemporaryDirectory() as folder:
        there = scenario(service, shape, seed, Path(folder), DRAWS[seed])
        found: dict[str, Any] = {"service": service, "shape": shape, "all GPUs": best_of(there, all_gpus(there.cluster))}
        if CONTROL in DRAWS[seed]:
            best = best_of(there, at_each_clock(there.cluster))
            found["best clock"] = best if best["keeps"] else None
        for run in runs_of(there):
            try:
                found[run.policy] = of_record(record_of(simulated(there, run)))
            except BadInputError:
                found[run.policy] = None
    return found


def counted(service: str, shape: str, seed: int) -> dict[str, Any]:
    """Requests of each class on one trace; by metrics, at the default and the lowest clocks those kept, and the energy."""
    with tempfile.TemporaryDirectory() as folder:
        there = scenario(service, shape, seed, Path(folder), (CONTROL,))
        record = record_of(simulated(there, runs_of(there)[0]))
        plans = at_each_clock(there.cluster)
        requests = load_of(there, there.parts.traffic[0], 0).requests
        runs = {CONTROL: (np.array([each or 0.0 for each in record.by_class]), record.energy_j)}
        for name, plan in (("default clocks", plans[-1]), ("lowest clock", plans[0])):
            result = result_of(simulate_cluster(requests, there.cluster, plan, router=there.router), requests, there.cluster)
            runs[name] = np.nan_to_num(result.by_class), result.energy_j
    counts = np.bincount(class_of(requests.prompt_tokens, requests.output_tokens), minlength=COUNT)
    kept = {name: [*np.rint(by_class * counts).astype(int).tolist(), round(each)] for name, (by_class, each) in runs.items()}
    return {"requests": counts.tolist(), **kept}


def pooled(verdict: Verdict) -> list[dict[str, Any]]:
    """Each of :data:`POOLED`, its draws added up: where the default clocks keep a class, so must clocks by metrics."""
    rows = []
    for service, shape in POOLED:
        draws = [((service, shape, seed), (service, shape, seed)) for seed in POOLED_SEEDS]
        found = [each for _, each in shared_out(os.cpu_count() or 1, counted, draws)]
        row = {name: np.sum([each[name] for each in found], axis=0) for name in found[0]}
        counts = np.maximum(row["requests"], 1)
        kept = row["default clocks"][:COUNT] >= SHARE * counts
        less = int((kept & (row[CONTROL][:COUNT] < SHARE * counts)).sum())
        for name, each in row.items():
            print(f"    {service}, {shape}: {name} {each.tolist()}", flush=True)
        verdict.at_most(f"of the classes of {shape} that the default clocks keep, those that {CONTROL} does not", less, 0)
        rows.append({"service": service, "shape": shape, "draws": len(draws), **{k: v.tolist() for k, v in row.items()}})
    return rows


def line_of(found: dict[str, Any]) -> str:
    """One line of a table."""
    first, texts = found["all GPUs"]["energy_j"], [f"{found['service']:9s} {found['shape']:14s}"]
    for name, run in found.items():
        if isinstance(run, dict):
            mark = "" if run["keeps"] else " (surely less)" if run["surely_less"] else " (less)"
            mark += ", warned" if run.get("warned") else ""
            texts.append(f"{name} {run['worst']:.2%} {run['class']}{mark}, {1 - run['energy_j'] / first:.1%}")
    return "; ".join(texts)


def traces_of(policies: Sequence[str], shapes: Sequence[str]) -> list[tuple[str, str]]:
    """Service and shape of each trace: every one of both; of small services, which take turns, one."""
    large, small = list(SERVICES)[:2], list(SERVICES)[2:]
    if CONTROL in policies:
        return [(small[place % 2], shape) for place, shape in enumerate(shapes)]
    return [(service, shape) for service in large for shape in shapes]


def main(verdict: Verdict, *shapes: str) -> None:
    """Judge ours, and show the others, on every shape or on some."""
    draws = []
    for seed, policies in DRAWS.items():
        traces = traces_of(policies, shapes or (REPLICATED, *SHAPES))
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        print(f"  seed {seed}")
        for trace, found in shared_out(os.cpu_count() or 1, judged, ((each, (*each, seed)) for each in traces)):
            rows[trace] = found
            print(f"    {line_of(found)}", flush=True)
        draws.append({"seed": seed, "traces": [rows[each] for each in traces]})
        if policies[0] in (OURS, CONTROL):
            judge(verdict, policies[0], list(rows.values()))
    if not shapes:
        keep(KEPT, {"share": SHARE, "draws": draws, "pooled": pooled(verdict)})


def judge(verdict: Verdict, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """One of ours must keep what all GPUs keep; `parking` also warns of what it does not keep."""
    can = [each for each in rows if each["all GPUs"]["keeps"]]
    less = [each[name] for each in rows if not each[name]["keeps"]]
    print(f"  all GPUs keep {SHARE:.0%} of each class on {len(can)} of {len(rows)} traces")
    verdict.at_most(f"of these, traces on which {name} does not", sum(not each[name]["keeps"] for each in can), 0)
    if name == OURS:
        verdict.at_most("traces that ours does not keep without a warning", sum(not each["warned"] for each in less), 0)
        warned = sum(each[OURS]["warned"] for each in rows if each[OURS]["keeps"])
        print(f"  it warned of {warned} of the {len(rows) - len(less)} that it keeps")


if __name__ == "__main__":
    run_alone(main, *sys.argv[1:])

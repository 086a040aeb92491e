"""What markers and hooks cost a training step on a real GPU, and how soon they are seen.

    PYTHONPATH=src:. WASTENOT_READ_ONLY=1 python -m benchmarks.h200.bench_apply_overhead --out apply.json    # 5 minutes

Reads only. Steps of GPT-2 and of eight layers of a 7B Llama run in blocks with markers off, on, and on with each layer's;
every round has a block of each in random order, and changes are means over rounds of what a block took against the round's
block without. A marker's delay is from the moment by the GPU's clock, related to the host's by round trips, until the thread
sees it. ``--device cpu --tiny`` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["WASTENOT_READ_ONLY"] = "1"

import numpy as np
import torch

from benchmarks.h200.apply_jobs import Job, made_up_plan, make_job, own_name
from benchmarks.h200.blocking_markers import BlockingMarkers
from benchmarks.h200.callback_markers import CallbackMarkers
from benchmarks.h200.card_state import card_state, clocks_now, counted_changes
from wastenot.control.hooks import Hooks
from wastenot.control.markers import Markers

_SETTLE = 2  # steps after a switch that are not counted
_TRIPS = 200
_EVERYTHING = [
    "embedding", "embedding_backward", *(f"{part}:{turn}" for part in ("forward", "backward") for turn in range(99)),
]  # fmt: skip
_T95 = {20: 2.086, 25: 2.060, 4: 2.776, 3: 3.182, 2: 4.303, 1: 12.71}


class Arm:
    """One way to run the steps, which is attached and detached."""

    def __init__(self, name: str, job: Job, on_gpu: bool) -> None:
        self.name, self._job = name, job
        self._torch = torch if on_gpu else None
        self._markers: Any = None
        self._hooks: Hooks | None = None
        self.seen = 0

    def attach(self) -> None:
        """Hooks on, as in a program under ``wastenot apply``."""
        if self.name == "off":
            return
        self._markers = markers_of(self.name, self._saw, self._torch)
        self._hooks = Hooks(self._markers.record, torch, wanted=_EVERYTHING if "layers" in self.name else ())
        self._hooks.watch(self._job.model, optimizers=[self._job.optimizer])

    def detach(self) -> None:
        """Hooks and thread gone."""
        if self._hooks is not None:
            self._hooks.detach()
            self._markers.close()
        self._hooks = self._markers = None

    def _saw(self, names: tuple[str, ...], at_s: float) -> None:
        self.seen += len(names)


def markers_of(arm: str, saw: Any, library: Any) -> Any:
    """Markers as the product's, or in one of the ways to compare with."""
    ways = {"callback": CallbackMarkers, "interrupt": BlockingMarkers}
    return ways.get(arm, Markers)(saw, library)


def interval(values: np.ndarray) -> dict[str, float]:
    """Mean with its 95 % interval."""
    mean, n = float(values.mean()), len(values)
    from_table = _T95.get(n - 1)
    t = from_table if from_table is not None else 1.96 + 2.4 / max(n - 1, 1)
    half = t * float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return {"mean": mean, "low": mean - half, "high": mean + half}


def wait(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def block_times(job: Job, steps: int, on_gpu: bool) -> tuple[float, float]:
    """GPU and wall time of a step, the mean over a block."""
    for _ in range(_SETTLE):
        job.step()
    wait(on_gpu)
    if on_gpu:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
    began_s = time.perf_counter()
    for _ in range(steps):
        job.step()
    if on_gpu:
        end.record()
    wait(on_gpu)
    wall_s = (time.perf_counter() - began_s) / steps
    return (1e-3 * begin.elapsed_time(end) / steps if on_gpu else wall_s), wall_s


def overhead(job: Job, arms: list[str], rounds: int, steps: int, on_gpu: bool, rng: random.Random) -> dict[str, Any]:
    """Changes of GPU and wall time of a step under each arm against ``off``."""
    made = {name: Arm(name, job, on_gpu) for name in arms}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in rng.sample(arms, len(arms)):
            made[name].attach()
            times[name].append(block_times(job, steps, on_gpu))
            made[name].detach()
    off = np.array(times["off"])
    result: dict[str, Any] = {
        "rounds": rounds, "steps_a_block": steps,
        "step_gpu_s": float(off[:, 0].mean()), "step_wall_s": float(off[:, 1].mean()),
        "arms": {},
    }  # fmt: skip
    for name in arms:
        if name == "off":
            continue
        change = np.log(np.array(times[name]) / off)
        result["arms"][name] = {
            "gpu_time_change": interval(change[:, 0]),
            "wall_time_change": interval(change[:, 1]),
            "markers_a_step": made[name].seen / (rounds * (steps + _SETTLE)),
            "times_s": times[name],
        }
        gpu, wall = result["arms"][name]["gpu_time_change"], result["arms"][name]["wall_time_change"]
        print(
            f"{job.name:14s} {name:10s} GPU {gpu['mean']:+.3%} ({gpu['low']:+.3%} to {gpu['high']:+.3%})   "
            f"wall {wall['mean']:+.3%} ({wall['low']:+.3%} to {wall['high']:+.3%})   "
            f"{result['arms'][name]['markers_a_step']:.0f} markers in {1e3 * result['step_gpu_s']:.1f} ms",
            flush=True,
        )
    result["off_times_s"] = times["off"]
    return result


class HostClock:
    """Relates the GPU's clock, by events, to ``time.monotonic``."""

    def __init__(self) -> None:
        from wastenot.devices.torch.event_clock import EventClock

        self._clock = EventClock(lambda: torch.cuda.Event(enable_timing=True), torch.cuda.Stream(), time.monotonic)
        self.error_s = 0.0

    def best_trip(self) -> tuple[float, float]:
        """(GPU's, host's) of one moment."""
        trips = [self._clock.round_trip() for _ in range(_TRIPS)]
        times = [(trip.after_s - trip.before_s, trip) for trip in trips]
        spent_s, best = min(times, key=lambda pair: pair[0])
        self.error_s = max(self.error_s, 0.5 * spent_s)
        return best.gpu_s, 0.5 * (best.before_s + best.after_s)

    def moments(self, events: list[Any]) -> np.ndarray:
        """The GPU's."""
        return self._clock.moments(events)


def delays(job: Job, arm: str, steps: int) -> dict[str, Any]:
    """How long after the GPU has reached a marker the thread sees it."""
    clock = HostClock()
    seen: list[float] = []
    timed: list[Any] = []

    def saw(names: tuple[str, ...], at_s: float) -> None:
        seen.append(at_s)

    markers = markers_of(arm, saw, torch)

    def record(*names: str) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        timed.append(event)
        markers.record(*names)

    hooks = Hooks(record, torch, wanted=_EVERYTHING if "layers" in arm else ())
    late: list[np.ndarray] = []
    for _ in range(steps // 20):
        hooks.watch(job.model, optimizers=[job.optimizer])
        for _ in range(_SETTLE):
            job.step()
        torch.cuda.synchronize()
        time.sleep(0.01)
        seen.clear(), timed.clear()
        gpu_0, host_0 = clock.best_trip()
        for _ in range(20):
            job.step()
        torch.cuda.synchronize()
        time.sleep(0.01)
        hooks.detach()
        gpu_s = clock.moments(timed)
        gpu_1, host_1 = clock.best_trip()
        rate = (host_1 - host_0) / (gpu_1 - gpu_0)
        if len(seen) != len(timed):
            raise RuntimeError(f"{len(timed)} markers were recorded, {len(seen)} seen")
        late.append(np.array(seen) - (host_0 + rate * (gpu_s - gpu_0)))
    markers.close()
    all_s = np.concatenate(late)
    found = {
        "markers": len(all_s),
        "median_s": float(np.median(all_s)),
        "p90_s": float(np.quantile(all_s, 0.9)),
        "p99_s": float(np.quantile(all_s, 0.99)),
        "largest_s": float(all_s.max()),
        "smallest_s": float(all_s.min()),
        "clock_error_s": clock.error_s,
    }
    print(
        f"{job.name:14s} {arm:10s} seen after {1e6 * found['median_s']:.0f} µs (median), {1e6 * found['p90_s']:.0f} (p90), "
        f"{1e6 * found['p99_s']:.0f} (p99); clocks agree within {1e6 * found['clock_error_s']:.0f} µs; n = {len(all_s)}",
        flush=True,
    )
    return found


def in_a_graph(job: Job, steps: int) -> dict[str, Any]:
    """Markers of a small step that is replayed as one CUDA graph."""
    seen: list[str] = []
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU()) for _ in range(8))
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    rows = torch.randn(4096, 2048, device="cuda")
    markers = Markers(lambda names, at_s: seen.extend(names), torch)
    hooks = Hooks(markers.record, torch)
    hooks.watch(model, optimizers=[optimizer])

    def step() -> None:
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    time.sleep(0.05)
    seen.clear()
    for _ in range(steps):
        graph.replay()
        torch.cuda.synchronize()
        time.sleep(0.002)
    time.sleep(0.05)
    hooks.detach()
    markers.close()
    found = {"replays": steps, "seen": {name: seen.count(name) for name in dict.fromkeys(seen)}, "first": seen[:12]}
    print(f"CUDA graph of a whole step: {found}", flush=True)
    return found


def dry_run(job: Job, steps: int, on_gpu: bool) -> dict[str, Any]:
    """Steps under ``wn.apply(..., dry_run=True)``: what is followed, and whether anything changes on the card."""
    import wastenot as wn

    step_gpu_s, _ = block_times(job, 5, on_gpu)
    with tempfile.TemporaryDirectory() as folder:
        plan = made_up_plan(step_gpu_s, Path(folder) / "rows.csv", job.name, own_name() if on_gpu else "sim:h200")
    before, now = (card_state(), clocks_now()) if on_gpu else ({}, {})
    with wn.apply(plan, dry_run=True) as applied:
        applied.watch(job.model, job.optimizer)
        times = block_times(job, steps, on_gpu)
        status = applied.status()
    after = card_state() if on_gpu else {}
    found = {
        "steps": steps, "iteration": status.iteration, "marker": status.marker,
        "events": [one.text for one in status.events], "energy_j": status.gpus[0].energy_j,
        "step_gpu_s": times[0], "step_wall_s": times[1], "step_gpu_s_before": step_gpu_s,
        "state_before": before, "state_after": after, "unchanged": before == after, "clocks_before": now,
        "clocks_after": clocks_now() if on_gpu else {},
    }  # fmt: skip
    print(
        f"dry run: {steps} steps, iteration {status.iteration} seen, state {'the same' if before == after else 'DIFFERENT'}"
    )
    return found


def provenance(on_gpu: bool) -> dict[str, Any]:
    import transformers

    found: dict[str, Any] = {
        "command": shlex.join([sys.executable, "-m", "benchmarks.h200.bench_apply_overhead", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
        "cpu_count": os.cpu_count(), "kernel": platform.release(),
    }  # fmt: skip
    if on_gpu:
        import pynvml as nvml  # type: ignore[import-untyped,unused-ignore]

        nvml.nvmlInit()
        found |= {
            "gpu": torch.cuda.get_device_name(), "uuid": str(torch.cuda.get_device_properties(0).uuid),
            "driver": nvml.nvmlSystemGetDriverVersion(), "cuda": torch.version.cuda,
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=10, help="of a block")
    parser.add_argument("--jobs", default="gpt2,llama,gpt2-compiled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    on_gpu, rng = asked.device == "cuda", random.Random(asked.seed)
    began_s = time.monotonic()
    result: dict[str, Any] = {"schema": "wastenot.bench-apply-overhead/1", **provenance(on_gpu), "jobs": {}}

    def keep() -> None:
        result["seconds"] = time.monotonic() - began_s
        asked.out.write_text(json.dumps(result, indent=1) + "\n")

    def section(name: str, run: Callable[[], Any], of: dict[str, Any]) -> None:
        """A part that fails is said so, and does not cost the others."""
        try:
            of[name] = run()
        except Exception as error:
            of[name] = {"failed": f"{type(error).__name__}: {error}"}
            print(f"{name}: {of[name]['failed']}", flush=True)
        keep()

    if on_gpu:
        result["state_before"] = card_state()
    with counted_changes() if on_gpu else _nothing_counted() as changes:
        for name in asked.jobs.split(","):
            job = make_job(name, asked.device, tiny=asked.tiny)
            found = result["jobs"][name] = job.facts()
            if on_gpu:
                found["clocks_before"] = clocks_now()
            arms = ["off", "on"] if name.endswith("compiled") else ["off", "on", "layers"]
            arms += ["interrupt"] if on_gpu and name == "gpt2" else []
            run = (job, arms, asked.rounds, asked.steps, on_gpu, rng)
            section("overhead", lambda run=run: overhead(*run), found)
            if on_gpu:
                for arm in arms[1:]:
                    section(f"delay_{arm}", lambda job=job, arm=arm: delays(job, arm, 60), found)
                found["clocks_after"] = clocks_now()
            if name == "gpt2":
                section("dry_run", lambda job=job: dry_run(job, 200 if on_gpu else 20, on_gpu), result)
            if on_gpu and name == "gpt2":
                section("graph", lambda job=job: in_a_graph(job, 50), result)
                # Last, as a function of the host may wait for Python's lock while a thread that has it waits for the GPU.
                section("delay_callback", lambda job=job: delays(job, "callback", 60), found)
                few = (job, ["off", "callback"], 10, asked.steps, on_gpu, rng)
                section("overhead_callback", lambda few=few: overhead(*few), found)
            del job
            if on_gpu:
                torch.cuda.empty_cache()
    if on_gpu:
        result["state_after"] = card_state()
        result["changing_calls"] = changes
        same = result["state_before"] == result["state_after"]
        print(f"card's state before and after: {'the same' if same else 'DIFFERENT'}; calls that change it: {len(changes)}")
    keep()
    print(f"{result['seconds']:.0f} s, {asked.out}")


class _nothing_counted:  # noqa: N801
    def __enter__(self) -> list[str]:
        return []

    def __exit__(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    main()

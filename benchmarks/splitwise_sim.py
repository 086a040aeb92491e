"""Requests a second of splitwise-sim (Patel et al., ISCA'24) and of ours, on the same requests and as many instances.

    python -m benchmarks.splitwise_sim CHECKOUT PYTHON      a checkout of github.com/Mutinifni/splitwise-sim, and a Python
                                                            that has what its requirements.txt names

Both run Llama-2 70B on 40 machines of 8 GPUs, one instance each, and send requests to the shortest queue. Wall time of whole
commands, the best of two, reading the trace and writing results included; ours with energy, clocks and a timeline, which
splitwise-sim does not have. What is compared is speed; their step times are other tables.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.kept import ROOT, keep
from testbed.cluster_loads import result_of
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.controllers.fixed import Fixed, Placed
from wastenot.serving.cluster.model import ChangeTimes, Cluster
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests

KEPT = ROOT / "data" / "serving" / "cluster-speed-beside.json"
INSTANCES, RATE_PER_S, LASTS_S = 40, 70.0, 300.0
FIELDS = ("request_id", "request_type", "application_id", "arrival_timestamp", "batch_size", "prompt_size", "token_size")


def load() -> Requests:
    """Five minutes of a conversation service."""
    return poisson(RATE_PER_S, LASTS_S, LogNormal(1000, 0.8, 7000), LogNormal(130, 0.8, 1000), seed=1)


def theirs_s(checkout: Path, python: Path, requests: Requests) -> float:
    """Wall time of their command."""
    trace = checkout / "traces" / "beside.csv"
    with trace.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(FIELDS)
        for number, (at_s, prompt, output) in enumerate(
            zip(requests.arrival_s, requests.prompt_tokens, requests.output_tokens, strict=True)
        ):
            rows.writerow([number, 2, 0, f"{at_s:.6f}", 1, prompt, output])
    command = [
        str(python), "run.py", "cluster=half_half", "cluster.servers.0.count=0", f"cluster.servers.1.count={INSTANCES}",
        "applications.0.scheduler=token_jsq", "start_state=baseline", "performance_model=db", "trace.filename=beside",
        "debug=False", "seed=0",
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    begun = time.perf_counter()
    subprocess.run(command, cwd=checkout, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def ours() -> None:
    """Our run, as a command of its own."""
    requests = load()
    engine = next(
        each for each in read_engine(ROOT / "data" / "serving" / "llama-70b-sim-h200.json").engines if each.gpus == 8
    )
    cluster = Cluster((engine,), INSTANCES, ChangeTimes((0.0,)))
    plan = Fixed("", (Placed(0, 0, INSTANCES),), ((0,),) * COUNT)
    result = result_of(simulate_cluster(requests, cluster, plan), requests, cluster)
    with tempfile.TemporaryFile("w") as file:
        json.dump({"energy_j": result.energy_j, "by_class": result.by_class.tolist()}, file)


def ours_s() -> float:
    """Wall time of our command."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "from benchmarks.splitwise_sim import ours; ours()"], check=True, cwd=ROOT)
    return time.perf_counter() - begun


def main(checkout: str, python: str) -> None:
    """Print and keep both."""
    requests = load()
    ours_s()  # compiles, once on a machine
    their_s = min(theirs_s(Path(checkout), Path(python).absolute(), requests) for _ in range(2))
    our_s = min(ours_s() for _ in range(2))
    print(f"  {len(requests):,} requests, {INSTANCES} instances: splitwise-sim {their_s:.1f} s, ours {our_s:.2f} s, "
          f"{len(requests) / their_s:,.0f} and {len(requests) / our_s:,.0f} requests a second")  # fmt: skip
    seconds = {"splitwise_sim_s": round(their_s, 2), "ours_s": round(our_s, 3)}
    keep(KEPT, {"requests": len(requests), "instances": INSTANCES} | seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])

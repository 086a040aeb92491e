"""Perseus' solver (lowtime) on a profile.

    python benchmarks/lowtime_process.py PROFILE STAGES MICRO_BATCHES UNIT_S WAITING_W OUT.npz

A process of its own, with a Python that has lowtime and need not have wastenot. PROFILE is a CSV file
``stage,instruction,frequency,time,energy``. The steps are those of Zeus' example of it: effective energy against quantised
time, Pareto options, an exponential fit each, 1F1B, then one quantum less at a time. OUT holds for each iteration of its
solver the quantised time, the claimed cost, CPU seconds since it began, and the clock of every instruction.
"""

from __future__ import annotations

import csv
import importlib.metadata
import logging
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
from lowtime.cost_model import ExponentialModel
from lowtime.graph_utils import DependencyResolver, add_sink_node, add_source_node
from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec
from lowtime.perseus.instruction import Backward, Forward, Instruction, backward_dep, forward_dep
from lowtime.perseus.schedule import Synchronous1F1B
from lowtime.solver import PhillipsDessouky

FEW = 3  # options or fewer: Zeus' example then filters with some slack
SLACK = 0.95
SOURCE, SINK, FIRST = 0, 1, 2


def specs_of(profile: Path, unit_s: float, waiting_w: float) -> dict[tuple[int, str], OperationSpec]:
    """Options and fitted costs of each stage's instructions."""
    options: dict[tuple[int, str], list[ExecutionOption]] = defaultdict(list)
    with profile.open(newline="") as stream:
        for row in csv.DictReader(stream):
            option = ExecutionOption(float(row["time"]), unit_s, float(row["energy"]), int(float(row["frequency"])))
            option.cost -= waiting_w * option.quant_time * unit_s
            options[int(row["stage"]), row["instruction"]].append(option)
    specs = {}
    for key, each in options.items():
        candidates = CandidateExecutionOptions(each)
        if len(candidates.options) <= FEW:
            candidates = CandidateExecutionOptions(each, noise_factor=SLACK)
        specs[key] = OperationSpec(candidates, ExponentialModel(candidates, search_strategy="best"))
    return specs


def graph_of(specs: dict[tuple[int, str], OperationSpec], stages: int, micro_batches: int) -> nx.DiGraph:
    """1F1B with lowtime's own schedule and rules of dependency."""
    graph = nx.DiGraph(source_node=SOURCE, sink_node=SINK)
    ranks = []
    for stage in range(stages):
        own = {Forward: specs[stage, "forward"], Backward: specs[stage, "backward"]}
        ranks.append(list(Synchronous1F1B(stages, micro_batches, stage, own)))
    node = {}
    for instruction in (each for rank in ranks for each in rank):
        node[id(instruction)] = FIRST + len(node)
        graph.add_node(node[id(instruction)], op=instruction)
    resolver = DependencyResolver([forward_dep, backward_dep], Instruction)
    for rank, below in zip(ranks, [*ranks[1:], []], strict=True):
        for one, other in pairwise(rank):
            graph.add_edge(node[id(one)], node[id(other)])
        for pairs in (((a, b) for a in rank for b in below), ((b, a) for a in rank for b in below)):
            for one, other in pairs:
                if resolver.is_dependent(one, other):
                    graph.add_edge(node[id(one)], node[id(other)])
    add_source_node(graph, SOURCE)
    add_sink_node(graph, SINK)
    return graph


def main() -> None:
    profile, stages, micro_batches, unit_s, waiting_w, out = (
        Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), Path(sys.argv[6])
    )  # fmt: skip
    logging.disable(logging.INFO)
    began = time.process_time()
    specs = specs_of(profile, unit_s, waiting_w)
    fitted = time.process_time()
    graph = graph_of(specs, stages, micro_batches)
    built = time.process_time()
    operations = [data["op"] for node, data in sorted(graph.nodes(data=True)) if node >= FIRST]
    times, costs, cpu, clocks = [], [], [], []

    def keep() -> None:
        np.savez_compressed(
            out,
            quantised_s=np.array(times) * unit_s, cost_j=np.array(costs), cpu_s=np.array(cpu),
            clocks_mhz=np.array(clocks, dtype=np.uint16),
            stage=np.array([each.stage_id for each in operations]),
            backward=np.array([isinstance(each, Backward) for each in operations]),
            micro_batch=np.array([each.micro_batch_id for each in operations]),
            fit_cpu_s=fitted - began, graph_cpu_s=built - fitted, wall_s=time.perf_counter() - wall,
            version=importlib.metadata.version("lowtime"), python=sys.version.split()[0],
        )  # fmt: skip

    wall, start = time.perf_counter(), time.process_time()
    for result in PhillipsDessouky(graph).run():
        times.append(result.quant_time)
        costs.append(float(result.cost))
        cpu.append(time.process_time() - start)
        clocks.append([each.assigned_knob for each in operations])
        if not len(times) % 500:
            keep()
            print(len(times), result.real_time, f"{cpu[-1]:.0f} s of CPU", flush=True)
    keep()


if __name__ == "__main__":
    main()

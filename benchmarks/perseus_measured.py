"""The plans of Perseus that were measured on four A100 PCIe (GPT-3 XL, 1F1B, 128 micro-batches), as arrays.

A rank's list of clocks has an entry for each step of its engine, and which step is not written down. Inferred: 1F1B in which
a send is joined with the receive that follows it, a load before each forward of the first and last rank, and three steps at
the end. That gives 518, 520, 518 and 516 entries, which are the lengths found, and it is the only one of the layouts tried
(:func:`shifted_correlation`) in which all clocks change just at forwards and backwards.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.pipelines.model.schedules import one_forward_one_backward

FILE = "perseus/gpt3-xl-a100-pcie-measured-plans.json.xz"
NAMES = ("forward", "backward")
RANKS, MICRO_BATCHES = 4, 128
ENDING = ("reduce", "reduce", "optimizer")


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """All plans as they ran; the first iteration, a warm-up, is left out.

    Attributes:
        clock_mhz: of each instruction; shape (plans, ranks, 2, micro-batches).
        time_s: of each instruction, mean over iterations; likewise.
        entries: clocks of all steps as in the file, for each plan and rank.
        iteration_s: mean over iterations and ranks; shape (plans,).
        iteration_j: of each rank, mean over iterations; shape (plans, ranks).
        within_j: standard deviation of the energy of all ranks from one iteration to the next, over all plans.
    """

    clock_mhz: FloatArray
    time_s: FloatArray
    entries: tuple[tuple[IndexArray, ...], ...]
    iteration_s: FloatArray
    iteration_j: FloatArray
    within_j: float

    @property
    def energy_j(self) -> FloatArray:
        """Of all ranks; shape (plans,)."""
        return np.asarray(self.iteration_j.sum(axis=1))


def read_measured(folder: Path) -> Measured:
    """Reads the file below the folder of data."""
    with lzma.open(folder / FILE) as stream:
        plans = json.load(stream)
    layouts = [list(layout(rank)) for rank in range(RANKS)]
    entries = tuple(tuple(np.array(rank["core_mhz"], dtype=np.intp) for rank in plan["ranks"]) for plan in plans)
    clock = np.full((len(plans), RANKS, 2, MICRO_BATCHES), np.nan)
    for index, plan in enumerate(entries):
        for rank, clocks in enumerate(plan):
            if len(clocks) != len(layouts[rank]):
                raise ValueError(f"plan {index}, rank {rank}: {len(clocks)} entries, not {len(layouts[rank])}")
            for step, mhz in zip(layouts[rank], clocks.tolist(), strict=True):
                if isinstance(step, tuple):
                    clock[index, rank, NAMES.index(step[0]), step[1]] = mhz
    energy = np.array([[rank["iteration_j"][1:] for rank in plan["ranks"]] for plan in plans])
    return Measured(
        clock,
        np.array([[[rank[f"{name}_s"] for name in NAMES] for rank in plan["ranks"]] for plan in plans]),
        entries,
        np.array([np.mean([rank["iteration_s"][1:] for rank in plan["ranks"]]) for plan in plans]),
        energy.mean(axis=2),
        float(np.sqrt(energy.sum(axis=1).var(axis=1, ddof=1).mean())),
    )


def layout(rank: int) -> Iterator[str | tuple[str, int]]:
    """The steps of a rank: (instruction, micro-batch), or the name of another step."""
    sending = ""
    for each in one_forward_one_backward(RANKS, MICRO_BATCHES).ranks[rank]:
        forward = each.name == "forward"
        receiving = "receive" if (rank > 0 if forward else rank < RANKS - 1) else ""
        opposite = sending == ("backward" if forward else "forward")
        if sending and receiving and opposite:
            yield "send and receive"
        else:
            if sending:
                yield "send"
            if receiving:
                yield receiving
        if forward and rank in (0, RANKS - 1):
            yield "load"
        yield each.name, each.micro_batch
        sending = each.name if (rank < RANKS - 1 if forward else rank > 0) else ""
    if sending:
        yield "send"
    yield from ENDING


def changes(measured: Measured) -> tuple[int, int]:
    """How often a clock changes from one step to the next in all lists, and how often at a forward or backward."""
    layouts = [list(layout(rank)) for rank in range(RANKS)]
    count = at_instruction = 0
    for plan in measured.entries:
        for rank, clocks in enumerate(plan):
            for place in np.flatnonzero(np.diff(clocks)) + 1:
                count += 1
                at_instruction += isinstance(layouts[rank][int(place)], tuple)
    return count, at_instruction


def shifted_correlation(measured: Measured, shift: int) -> float:
    """Correlation of measured times with the slowness of the clock so many entries off, mean over ranks and instructions.

    The slowness is 1 over the clock. Plans at the highest clock throughout are left out: they fit any layout.
    """
    found = []
    varied = [index for index, plan in enumerate(measured.entries) if len({int(c) for rank in plan for c in rank}) > 1]
    for rank in range(RANKS):
        steps = list(layout(rank))
        for kind, name in enumerate(NAMES):
            places = {step[1]: place for place, step in enumerate(steps) if isinstance(step, tuple) and step[0] == name}
            at = np.array([places[micro_batch] for micro_batch in range(MICRO_BATCHES)]) + shift
            inside = (at >= 0) & (at < len(steps))
            slow = np.concatenate([1.0 / measured.entries[plan][rank][at[inside]] for plan in varied])
            taken = np.concatenate([measured.time_s[plan, rank, kind][inside] for plan in varied])
            found.append(np.corrcoef(slow, taken)[0, 1])
    return float(np.mean(found))

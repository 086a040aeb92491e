"""The states that a kernel's energy may be taken in, and how a study keeps them apart: as workloads of their own.

``gpt3-xl`` holds energies of kernels back to back in steady power (FinGraV's SSP), ``gpt3-xl@sse`` those of the first
execution at full speed (its SSE), and ``gpt3-xl@context`` those of kernels each after the one that runs before it. A label
rather than a column: every verb that reads a workload reads any of them, and a file of one cannot be mixed with another.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Literal, get_args

from wastenot.errors import BadInputError
from wastenot.study.columns import shown

State = Literal["ssp", "sse", "context"]

STATES: tuple[State, ...] = get_args(State)
STATE_WORDS: dict[State, str] = {
    "ssp": "each kernel back to back, in steady power",
    "sse": "each kernel's first execution at full speed",
    "context": "each kernel after the one that runs before it",
}
_HOW = {"ssp": "", "sse": " --at sse", "context": " --in-context"}


def labelled(workload: str, state: State) -> str:
    """The name that a study knows a state of a workload by."""
    name, _ = parted(workload)
    return name if state == "ssp" else f"{name}@{state}"


def parted(label: str) -> tuple[str, State]:
    """The workload and the state of a label."""
    name, mark, state = label.rpartition("@")
    for known in STATES[1:]:
        if mark and name and state == known:
            return name, known
    return label, "ssp"


def choose_workload(wanted: str | None, state: State | None, names: Sequence[str], study: str) -> str:
    """The one of a study's workloads that is meant.

    Args:
        wanted: its name; may be left out where the study holds one, in however many states.
        state: of its energies; by default what the name says.
        names: that the study holds.
        study: how messages name it.

    Raises:
        BadInputError: there is no such workload, it was not measured in that state, or there are several and none is named.
    """
    listed = ", ".join(map(shown, names))
    if wanted is None:
        held = list(dict.fromkeys(parted(name)[0] for name in names))
        if len(held) > 1:
            raise BadInputError(f"{study}: workload: holds {len(held)}: {listed}; name one: --workload NAME")
        wanted = names[0] if state is None and held[0] not in names else held[0]
    if state is not None:
        label = labelled(wanted, state)
        if label not in names and parted(wanted)[0] in {parted(name)[0] for name in names}:
            name = parted(wanted)[0]
            raise BadInputError(
                f"{study}: workload {shown(name)}: was not measured with {STATE_WORDS[state]}; "
                f"measure it: wastenot sweep {name} --device DEVICE --study {study}{_HOW[state]}"
            )
        wanted = label
    if wanted in names:
        return wanted
    nearest = get_close_matches(wanted, names, n=1)
    suggestion = f"did you mean {shown(nearest[0])}? " if nearest else ""
    raise BadInputError(f"{study}: workload: there is no {shown(wanted)}; {suggestion}It holds {listed}")

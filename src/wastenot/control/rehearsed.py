"""A rehearsal: a program of the user's runs here, and its clocks are requested of simulated GPUs.

    real         the program, its iterations and passes, which of them hooks see, and what is requested when
    simulated    the GPUs: they run nothing of the program, so that they only answer requests and draw their idle power

So nothing is compared and nothing is saved. What is learned is whether the program would be followed on a GPU.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from statistics import median

from wastenot.control.hooks import Seen
from wastenot.control.marker import ITERATION
from wastenot.control.status import Rehearsal, Status
from wastenot.core.wording import counted

_REMEMBERED = 100  # iterations
_SEVERAL = 2  # iterations, after which a pass that has not come is missing


class Rehearsed:
    """Takes note of what a program reaches.

    Args:
        planned: markers that the plan expects, in their order.
        changing: those of them at which the plan changes clocks.
        gpus: how many there are.
    """

    def __init__(self, planned: Iterable[str] = (ITERATION,), changing: Collection[str] = (), gpus: int = 1) -> None:
        self._planned, self._changing = tuple(dict.fromkeys(planned)), frozenset(changing)
        self._reached: Counter[str] = Counter()
        self._iterations = [0] * gpus
        self._began_s: float | None = None
        self._took_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._layers: int | None = None
        self._another: str | None = None

    def reached(self, name: str, gpu: int, at_s: float, *, begins: bool) -> None:
        """The program has reached a marker.

        Args:
            name: of it.
            gpu: index of the GPU that would have reached it.
            at_s: when.
            begins: whether an iteration begins there.
        """
        self._reached[name] += 1
        if not begins:
            return
        self._iterations[gpu] += 1
        if gpu == 0:
            if self._began_s is not None:
                self._took_s.append(at_s - self._began_s)
            self._began_s = at_s

    def saw(self, seen: Seen, another: str | None) -> None:
        """Hooks have seen the model.

        Args:
            seen: of it.
            another: why it is not the plan's; ``None`` where it may be.
        """
        self._layers, self._another = seen.layers, another

    def refused(self, why: str) -> None:
        """What the program runs is not the plan's."""
        self._another = why

    def so_far(self, requests: int) -> Rehearsal:
        """What is known now, with how often clocks were requested."""
        enough = max(self._iterations) >= _SEVERAL
        missing = tuple(name for name in self._planned if enough and name not in self._reached)
        unreached = next((name for name in missing if name in self._changing), None)
        never = None if unreached is None else f"it never reaches '{unreached}', at which the plan changes clocks"
        return Rehearsal(
            iterations=tuple(self._iterations),
            iteration_s=median(self._took_s) if self._took_s else None,
            passes={name: count for name, count in self._reached.items() if name != ITERATION and ":" not in name},
            layers=self._layers,
            missing=missing,
            requests=requests,
            refusal=self._another or never,
        )


def rehearsal_lines(status: Status) -> Iterator[str]:
    """What a rehearsal showed, a sentence or two a line; nothing where it was none."""
    rehearsal = status.rehearsal
    if rehearsal is None:
        return
    gpus = ", ".join(gpu.device for gpu in status.gpus)
    yield (
        f"this was a rehearsal: your program ran here, and nothing of it on {gpus}. Iterations, passes and requested clocks "
        "are real; clocks in effect and power are simulated, those of an idle GPU. Savings were not measured"
    )
    yield f"the hooks saw {seen_text(rehearsal)}"
    if status.tuning is not None:
        yield f"{counted(status.tuning.tried, 'setting')} tried, and none compared with another"
    if rehearsal.missing:
        yield f"never seen: {missing_text(rehearsal)}. {by_hand(status)}"
    if rehearsal.refusal is not None:
        yield f"on a real GPU this plan would be refused: {rehearsal.refusal}"


def seen_text(rehearsal: Rehearsal) -> str:
    """Iterations, passes and layers: ``38 iterations of 21 ms (median of the latest, with wastenot); forward 38, …``."""
    several = " and ".join(f"{count:,}" for count in rehearsal.iterations)
    text = counted(rehearsal.iterations[0], "iteration") if len(rehearsal.iterations) == 1 else f"{several} iterations"
    if rehearsal.iteration_s is not None:
        text += f" of {1e3 * rehearsal.iteration_s:.3g} ms (median of the latest, with wastenot)"
    if rehearsal.passes:
        text += "; passes: " + ", ".join(f"{name} {count:,}" for name, count in rehearsal.passes.items())
    if rehearsal.layers is not None:
        text += f"; {counted(rehearsal.layers, 'layer') if rehearsal.layers else 'no layers'}"
    return f"{text}; clocks were requested {rehearsal.requests:,} times"


def missing_text(rehearsal: Rehearsal) -> str:
    """Markers that were never seen, such as ``loss and 3 layers' turns (forward:2, …)``."""
    turns = [name for name in rehearsal.missing if ":" in name]
    passes = ", ".join(name for name in rehearsal.missing if ":" not in name)
    if not turns:
        return passes
    several = f"{turns[0]}, …" if len(turns) > 1 else turns[0]
    return f"{passes}{' and ' if passes else ''}{counted(len(turns), 'turn')} of layers ({several})"


def by_hand(status: Status) -> str:
    """What to do about markers that were never seen."""
    assert status.rehearsal is not None
    name = status.rehearsal.missing[0]
    if status.pipeline is not None:
        return f'Mark it in the program: applied.instruction("{name}", micro_batch) (docs/pipelines-recipes.md)'
    call = "applied.iteration()" if name == ITERATION else f'applied.phase("{name}")'
    return (
        "In the program, within wn.apply(...) as applied, name the model: applied.watch(model, optimizer); or mark all "
        f"passes by hand: {call} (docs/tutorials/rehearse.md)"
    )

"""The load that ``wastenot serve bench`` keeps on a server: which requests, and how many at once or in a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.terminal import quantities
from wastenot.terminal.options import parse_counts

if TYPE_CHECKING:
    from wastenot.serving.bench.loads import LoadPlan
    from wastenot.serving.model.requests import Requests

_BATCHES = "1,4,16,64"
_MOST_TOKENS = 10_000_000  # of a prompt or an answer, on average; no model takes as many


@dataclass(frozen=True, slots=True)
class ServerLoadOptions:
    """Which requests are sent to a server, and when."""

    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="N,...", help=f"Requests to keep running, one point each; {_BATCHES} by default."),
    ] = None
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", metavar="R,...", help="Requests that arrive in a second, one point each; own: as a trace has them."
        ),
    ] = None
    prompt_tokens: Annotated[float, typer.Option("--prompt-tokens", metavar="N", help="Mean length of made-up prompts.")] = (
        512.0
    )
    output_tokens: Annotated[float, typer.Option("--output-tokens", metavar="N", help="Mean length of answers.")] = 128.0
    spread: Annotated[
        float,
        typer.Option(
            "--spread", metavar="X", parser=quantities.relative, help="How much lengths vary: standard deviation over mean."
        ),
    ] = 0.0
    requests: Annotated[
        Path | None,
        typer.Option("--requests", metavar="FILE.jsonl", help="Send these: a 'prompt' or 'messages' on each line."),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Lengths of a trace, as CSV or JSON lines; with --rate its arrivals."),
    ] = None
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out lines of the trace that are wrong, and sort the others.")
    ] = False

    def read(self, seed: int) -> ServerLoad:
        """The load.

        Raises:
            BadInputError: a file cannot be read, or a number makes no sense.
        """
        from wastenot.serving.bench.load_requests import Lengths
        from wastenot.serving.bench.loads import load_of_file, load_of_lengths, load_of_trace

        trace = None if self.trace is None else _read_trace(self.trace, self.lenient)
        rates = _rates(self.rate, trace)
        batches = parse_counts("--batch", self.batch or _BATCHES) if self.batch is not None or not rates else ()
        if self.requests is not None:
            plan = load_of_file(self.requests, seed=seed)
        elif self.trace is not None and trace is not None:
            plan = load_of_trace(self.trace.name, trace)
        else:
            for flag, mean in (("--prompt-tokens", self.prompt_tokens), ("--output-tokens", self.output_tokens)):
                if not 1.0 <= mean <= _MOST_TOKENS:
                    raise BadInputError(f"{flag} {mean:g}: must be from 1 to {_MOST_TOKENS:,}")
            prompt, output = Lengths(self.prompt_tokens, self.spread), Lengths(self.output_tokens, self.spread)
            plan = load_of_lengths(prompt, output, seed=seed)
        return ServerLoad(plan, batches, rates)


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What is asked of a server.

    Attributes:
        plan: the requests.
        batches: numbers of requests to keep running.
        rates_per_s: at which requests arrive.
    """

    plan: LoadPlan
    batches: tuple[int, ...]
    rates_per_s: tuple[float, ...]


def _read_trace(path: Path, lenient: bool) -> Requests:
    from wastenot.serving.model.traces import read_trace
    from wastenot.terminal.output import say

    read = read_trace(path, lenient=lenient)
    if read.left_out:
        say(f"{counted(len(read.left_out), 'line')} left out, first {read.left_out[0]}")
    if read.moved:
        say(f"{path}: {counted(read.moved, 'request')} moved, in the order of their arrivals")
    return read.requests


def _rates(text: str | None, trace: Requests | None) -> tuple[float, ...]:
    if text is None:
        return ()
    if text == "own":
        if trace is None or len(trace) < 2 or not trace.arrival_s[-1] > trace.arrival_s[0]:
            raise BadInputError("--rate own: needs a trace whose requests come one after another: --trace FILE")
        return (float((len(trace) - 1) / (trace.arrival_s[-1] - trace.arrival_s[0])),)
    try:
        rates = tuple(float(item) for item in text.split(","))
    except ValueError:
        rates = (0.0,)
    if not all(0.0 < each < float("inf") for each in rates):
        raise BadInputError(f"--rate {text}: write requests a second separated by commas, such as 0.5,1,2")
    return rates

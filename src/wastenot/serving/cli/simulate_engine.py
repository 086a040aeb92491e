"""``wastenot serve simulate`` of one engine: policies that steer its clock, beside each other on a trace."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from wastenot.core.errors import BadInputError
from wastenot.pages.formatting import duration, percent
from wastenot.serving.cli.server_load import read_requests
from wastenot.terminal import quantities
from wastenot.terminal.option import option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.serving.model.deadlines import Deadlines
    from wastenot.serving.model.engine import SchedulerName
    from wastenot.serving.model.steering import PolicyName, Steering


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How one engine is simulated on a trace."""

    trace: Annotated[Path | None, option("Requests as CSV or JSON lines: times, prompt and output tokens.", "FILE")] = None
    load: Annotated[
        float | None,
        option(
            "Rescale the trace to this share of the load that the maximum clock sustains, such as 50%.",
            "X",
            parser=quantities.share,
        ),
    ] = None
    rate: Annotated[float | None, option("Rescale the trace to X requests/s instead.", "X")] = None
    first: Annotated[float | None, option("Use only the first TIME of the trace.", "TIME", parser=quantities.budget)] = None
    gpus: Annotated[int | None, option("Parallel degree of the engine; by default the lowest in the file.", "N")] = None
    step_tokens: Annotated[
        int | None, option("Most new tokens of a step; by default what sustains the highest load.", "N", min=1)
    ] = None
    switch_time: Annotated[
        float | None, option("Clock-switch latency; by default the engine's.", "TIME", parser=quantities.seconds)
    ] = None
    ttft: Annotated[str, option("Deadlines of the first token: one, or three by prompt length.", "TIME,...")] = (
        "250ms,400ms,2s"
    )
    tbt: Annotated[
        float, option("Deadline between two tokens.", "TIME", parser=quantities.seconds, show_default="100ms")
    ] = 0.1
    e2e: Annotated[
        float | None, option("Deadline of a whole answer; by default none.", "TIME", parser=quantities.seconds)
    ] = None
    share: Annotated[
        float, option("Share of requests, and of their tokens, that must meet the deadlines.", "X", parser=quantities.share)
    ] = 0.99
    length_error: Annotated[float, option("Error of predicted answer lengths.", "X", parser=quantities.share)] = 0.3
    seed: Annotated[int, option("Seed of the prediction errors.", "N", min=0)] = 0
    lenient: Annotated[bool, option("Leave out invalid lines of the trace, and sort the others.")] = False


def simulate_engine(
    engine: Path,
    asked: EngineOptions,
    policies: list[str] | None,
    *,
    assumed_clocks: bool = False,
    scheduler: SchedulerName | None = None,
) -> Steering:
    """Policies beside each other on one engine and a trace.

    Raises:
        BadInputError: the engine, the trace or an option cannot be used.
    """
    from dataclasses import replace

    from wastenot.core.install import install_line
    from wastenot.serving.model.compiled import COMPILED
    from wastenot.serving.model.profile_file import read_engine
    from wastenot.serving.model.steering import steer
    from wastenot.terminal.output import say
    from wastenot.terminal.progress import shown_progress

    deadlines = deadlines_of(asked.ttft, asked.tbt, asked.e2e, asked.share)
    of = read_engine(engine).engine(asked.gpus)
    if asked.trace is None:
        raise BadInputError("--trace: give the requests that the engine serves, as CSV or JSON lines")
    if asked.switch_time is not None:
        of = replace(of, switch_s=asked.switch_time)
    requests = read_requests(asked.trace, asked.lenient)
    requests = requests if asked.first is None else requests.part(0.0, asked.first)
    if not COMPILED:
        say(f"Numba is not installed, so this takes long: {install_line('serve')}")
    with shown_progress("simulate") as progress:
        found = steer(
            of,
            requests,
            load=asked.load,
            rate_per_s=asked.rate,
            step_tokens=asked.step_tokens,
            policies=cast("list[PolicyName] | None", policies),
            deadlines=deadlines,
            length_error=asked.length_error,
            seed=asked.seed,
            assumed_clocks=assumed_clocks,
            scheduler=scheduler,
            progress=progress,
        )
    return replace(found, source=str(engine), trace=str(asked.trace))


def deadlines_of(ttft: str, tbt: float, e2e: float | None, share: float) -> Deadlines:
    """The deadlines that were asked for.

    Raises:
        BadInputError: they cannot be understood.
    """
    from wastenot.serving.model.deadlines import LITERATURE, Deadlines

    try:
        bounds = tuple(quantities.seconds(part) for part in ttft.split(","))
    except typer.BadParameter as error:
        raise BadInputError(f"--ttft: {error.message}") from None
    below = {1: (), len(LITERATURE.ttft_s): LITERATURE.prompt_below}.get(len(bounds))
    if below is None:
        limits = " and ".join(f"{each:,}" for each in LITERATURE.prompt_below)
        raise BadInputError(f"--ttft {ttft}: give one deadline, or three: for prompts below {limits} tokens and longer ones")
    if not all(0 < bound < inf for bound in (*bounds, tbt, 1.0 if e2e is None else e2e)):
        raise BadInputError("--ttft, --tbt and --e2e must be times above 0, such as 250ms")
    if not 0 < share <= 1:
        raise BadInputError(f"--share {share:g}: must be above 0 and at most 1")
    return Deadlines(bounds, below, tbt, share, e2e)


def steering_text(found: Steering) -> RenderableType:
    """What was found, for a terminal."""
    from wastenot.serving.page.steer_words import notes_on, policies_table
    from wastenot.terminal.tables import Group, Text, rich_table

    engine = found.engine
    head = Text.assemble(
        (engine.model or "engine", "bold"),
        f" on {engine.device or 'an unnamed device'}: {len(found.requests):,} requests of {found.trace}, "
        f"{duration(found.duration_s)} at {found.rate_per_s:.3g} requests/s, {engine.most_step_tokens:,} tokens per step "
        f"(simulated, on {'a ' if engine.tables.evidence == 'forecast' else ''}{engine.tables.evidence} "
        f"{'forecast of steps' if engine.tables.evidence == 'forecast' else 'steps'})",
    )
    table = rich_table(policies_table(found), ("Clock changes", "Mean clock", "Energy per token"))
    notes = notes_on(found)
    if found.capacity is not None:
        notes.append(f"the maximum clock sustains at most {found.capacity.rate_per_s:.3g} requests/s")
    greatest = found.runs[0].result.attainment
    if greatest < found.share:
        notes.append(
            f"note: even at the maximum clock only {percent(greatest, 1)} of the requests meet their deadlines: reduce "
            "the load (--rate, --load) or allow more time (--ttft, --tbt)"
        )
    elif not all(found.attains(run) for run in found.runs):
        lost = "a request" if found.share == 1 else f"more than {percent(1 - found.share, 0)} of the requests"
        notes.append(f"policies that miss the deadlines of {lost} count as saving nothing")
    return Group(head, "", table, "", *(Text(note, style="yellow" if note.startswith("note") else "") for note in notes))

"""``wastenot job replay``: what policies make of recurring training jobs, simulated on traces of them."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.jobs.judge.compare import Choice, Comparison
    from wastenot.jobs.judge.trace import JobKey, JobTrace, TrainingSummaries

_MOST_CURVE = 200  # points of a regret curve in the document
_SHOWN = 12  # jobs or targets in an error


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Which jobs are simulated."""

    job: Annotated[str | None, option("Which job in the files, such as squad/bert; default: the only one.", "NAME")] = None
    target: Annotated[float | None, option("Target value of the metric; default: the only one on record.", "X")] = None
    default: Annotated[int | None, option("Batch size used today, to compare with.", "N")] = None
    max_epochs: Annotated[
        int | None, option("Maximum epochs of a run; default: those of the longest run on record.", "N")
    ] = None
    made_up: Annotated[int | None, option("Instead of files: N synthetic jobs of each of twelve kinds.", "N")] = None

    def traces(self, train: Path | None, power: Path | None) -> tuple[JobTrace, ...]:
        """The jobs of files, or made-up ones.

        Raises:
            BadInputError: a file cannot be used, or an option makes no sense.
        """
        if self.made_up is not None:
            given = (train, self.job, self.target, self.default, self.max_epochs)
            if any(each is not None for each in given):
                raise BadInputError("--made-up: replaces the files and the options about their job; leave those out")
            from wastenot.jobs.judge.made import made_jobs

            return made_jobs(range(self.made_up))
        if train is None or power is None:
            if train is not None and not train.exists():
                raise BadInputError(f"{train}: {os.strerror(errno.ENOENT)}")
            raise BadInputError("give two files, TRAIN.csv and POWER.csv, or --made-up N for synthetic jobs")
        from wastenot.jobs.judge.trace import read_training_summaries

        read = read_training_summaries(train, power)
        key = _job(read, self.job, train)
        known = read.targets(key)
        if self.target is None and len(known) > 1:
            raise BadInputError(f"--target: {key} has runs to several; give one of {_some(f'{each:g}' for each in known)}")
        aim = known[0] if self.target is None else self.target
        if aim not in known:
            raise BadInputError(f"--target {aim:g}: {key} has no runs to it, but to {_some(f'{each:g}' for each in known)}")
        sizes = sorted({size for size, _ in read.speeds[key]} & set(read.epochs[key, aim]))
        if self.default is None:
            raise BadInputError(f"--default: which batch size is used today? one of {', '.join(map(str, sizes))}")
        if self.max_epochs is not None and self.max_epochs < 1:
            raise BadInputError(f"--max-epochs {self.max_epochs}: must be at least 1")
        trace = read.trace(key, aim, self.default, self.max_epochs or read.longest(key), power.stem)
        if trace.best_cost() == float("inf"):
            raise BadInputError(f"{train}: no run of {key} reaches {aim:g} within {trace.terms.max_epochs} epochs")
        return (trace,)


def replay(
    train: Annotated[
        Path | None, argument("Epochs that runs needed, by batch size, in the format that Zeus publishes.", "[TRAIN.csv]")
    ] = None,
    power: Annotated[
        Path | None, argument("Time of an epoch and power, by batch size and power limit.", "[POWER.csv]")
    ] = None,
    *,
    trace_options: TraceOptions,
    eta: Annotated[float, option("Weight of energy against time, 0 (time) to 1 (energy).", "X")] = 0.5,
    recurrences: Annotated[
        int | None, option("How often a job recurs; default: twice for every pair to choose from.", "N")
    ] = None,
    seeds: Annotated[int, option("Simulate each job N times, with seeds 0 to N - 1.", "N")] = 20,
    overlap: Annotated[float | None, option("Let runs overlap: X in flight on average; default: none overlap.", "X")] = None,
    processes: Annotated[int | None, option("Processes that share the work; default: one per core.", "N")] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate recurring training jobs on traces.

    Shows what each policy loses compared with always running the best batch size and setting: the default, a pruning
    grid search, wastenot, and an oracle. Nothing is run or measured.
    """
    from wastenot.jobs.judge.compare import POLICIES, compare
    from wastenot.terminal.output import console, print_json
    from wastenot.terminal.progress import shown_progress

    for name, value in (
        ("--recurrences", recurrences),
        ("--seeds", seeds),
        ("--processes", processes),
        ("--made-up", trace_options.made_up),
    ):
        if value is not None and value < 1:
            raise BadInputError(f"{name} {value}: must be at least 1")
    if not 0.0 <= eta <= 1.0:
        raise BadInputError(f"--eta {eta:g}: must be between 0 (time) and 1 (energy)")
    if overlap is not None and not 0.0 < overlap <= 100.0:
        raise BadInputError(f"--overlap {overlap:g}: must be above 0 and at most 100")
    traces = tuple(trace.with_terms(eta=eta) for trace in trace_options.traces(train, power))
    workers = min(processes or os.cpu_count() or 1, len(traces) * len(POLICIES) * seeds)
    with shown_progress("simulate") as progress:
        found = tuple(
            compare(
                traces,
                tuple(POLICIES),
                range(seeds),
                recurrences=recurrences,
                load=overlap,
                processes=workers,
                progress=progress,
            )
        )
    if as_json:
        print_json("recur", {"eta": eta, "seeds": seeds, "overlap": overlap, "jobs": [_listed(each) for each in found]})
    else:
        console().print(_text(found, eta, seeds, overlap))


def _job(read: TrainingSummaries, name: str | None, train: Path) -> JobKey:
    jobs = read.jobs()
    if not jobs:
        raise BadInputError(f"{train}: none of its jobs is in the other file as well")
    if name is None:
        if len(jobs) > 1:
            raise BadInputError(f"--job: which job? {_some(map(str, jobs))}")
        return jobs[0]
    dataset, _, network = name.partition("/")
    found = [each for each in jobs if str(each) == name or (each.dataset == dataset and each.network.startswith(network))]
    # Jobs that differ in the optimizer alone are told apart by it, behind a second slash.
    found = [each for each in jobs if f"{each}/{each.optimizer}" == name] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInputError(f"--job {name}: which job? {_some(f'{each}/{each.optimizer}' for each in found)}")
    raise BadInputError(f"--job {name}: is not in both files; those in both are: {_some(map(str, jobs))}")


def _some(names: Any) -> str:
    listed = list(dict.fromkeys(names))
    more = f", ... ({len(listed)} altogether)" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def _listed(found: Comparison) -> dict[str, Any]:
    import numpy as np

    at = np.unique(np.linspace(0, found.recurrences - 1, min(found.recurrences, _MOST_CURVE)).round().astype(int))
    terms = found.trace.terms
    return {
        "job": terms.name,
        "batch_sizes": list(terms.batch_sizes),
        "default": terms.default,
        "max_epochs": terms.max_epochs,
        "recurrences": found.recurrences,
        "best": _choice(found.best),
        "policies": [
            {
                "policy": result.policy,
                "regret": result.mean,
                "regret_error": result.error,
                "regret_by_seed": result.regret[:, -1].tolist(),
                "choice": _choice(result.choice),
                "energy_against_default": result.energy,
                "runs": float(np.mean(result.runs)),
                "curve": {"recurrence": (at + 1).tolist(), "regret": result.regret[:, at].mean(axis=0).tolist()},
            }
            for result in found.results
        ],
    }


def _choice(choice: Choice) -> dict[str, Any]:
    from wastenot.core.values import as_values

    return {"batch_size": choice.batch_size, "setting": as_values(choice.setting)}


def _text(found: tuple[Comparison, ...], eta: float, seeds: int, overlap: float | None) -> RenderableType:
    from wastenot.terminal.tables import Group, Paragraph, Text, plain_table

    policies = [result.policy for result in found[0].results]
    table = plain_table(("job",), ("recurrences", *policies, "energy of the choice"), less_important=("recurrences",))
    for each in found:
        cells = [f"{result.mean:.2f}" + (f" ± {result.error:.2f}" if seeds > 1 else "") for result in each.results]
        ours = next(result for result in each.results if result.policy == "wastenot")
        table.add_row(Text(each.trace.terms.name), str(each.recurrences), *cells, f"{ours.energy:.3f}")
    apart = "one after another" if overlap is None else f"{overlap:g} in flight on average"
    above = f"Simulated: {counted(len(found), 'job')}, η = {eta:g}, {counted(seeds, 'seed')}, runs {apart}"
    below = (
        "Regret: cost of all runs beyond that of as many runs at the best batch size and setting, counted in such runs; mean"
        + (" ± standard error" if seeds > 1 else "")
        + ". Energy: of a run with what wastenot finally chooses, compared with the default batch size at the first setting."
    )
    return Group(Text(above, style="bold"), table, Paragraph(Text(below, style="dim")))

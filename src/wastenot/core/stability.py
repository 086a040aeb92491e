"""Which public names may be relied on: those of ``wastenot`` and, after ``serve.``, of ``wn.serve``.

What is *stable* keeps its arguments and results within a minor version, such as all of 0.1; what is *experimental* may
change with any release (``docs/stability.md``). ``docs/api.md`` shows the table, and a test holds every public name to one
place in it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Names:
    """The public names of a subject.

    Attributes:
        stable: keep their arguments and results within a minor version.
        experimental: may change with any release.
    """

    stable: tuple[str, ...] = ()
    experimental: tuple[str, ...] = ()


PUBLIC: Final[Mapping[str, Names]] = {
    "The loop": Names(
        ("open_device", "workload", "sweep", "Grid", "plan", "validate", "transfer", "report"),
        ("Search", "AtAuto", "AtNatural", "refine", "Finalists", "Refinement"),
    ),
    "Frontiers": Names(
        ("frontier", "choice", "tie", "repeat", "sequence", "either", "Frontier"), ("graph", "Graph", "GraphPlan")
    ),
    "Plans": Names(("Objective", "Plan", "read_plan", "compare", "whole_frontier", "difference", "Setting", "AUTO")),
    "Pipelines": Names(
        ("pipeline", "StageOptions", "PipelineGoal", "PlannedPipeline", "PipelinePlan", "read_pipeline_plan"),
        ("straggler", "StragglerClient"),
    ),
    "Switching latency": Names(("measure_latency", "Latency", "read_latency")),
    "Recurring jobs": Names(("job", "JobGoal", "TrainingRun"), ("job_overview", "JobOverview")),
    "Applying plans": Names(("apply", "Applied"), ("tune", "TuneOptions", "TunedJob", "tracker")),
    "Without setting clocks": Names(("measure", "capture", "Captured", "read_workload", "write_workload"), ("forecast",)),
    "LLM servers": Names(
        ("serve_bench", "EngineProfile", "read_engine", "write_engine"),
        (
            *("serve", "serve.bench", "serve.profile", "serve.simulate", "serve.simulate_scenario", "serve.Deadlines"),
            *("serve.recommend", "serve.Bounds", "serve.Only", "serve.Prices", "serve.control", "serve.Rules"),
            "serve.replay",
            *("read_step_tables", "StepTable", "profile_of_steps", "operating_points", "OperatingPoint"),
        ),
    ),
    "Power inside a kernel": Names(("profile", "ProfileOptions", "Profile", "read_profile", "write_profile")),
    "Studies and sweeps": Names(
        ("open_study", "Study", "Sweep", "Kernel", "import_sweep", "export_sweep", "read_sweep", "write_sweep"),
        ("calibrate_sweep",),
    ),
    "Errors": Names(("WastenotError", "BadInputError", "InfeasibleError", "StudyError", "DeviceError", "MissingExtraError")),
}
"""By subject, each name once, in the order in which the API's page shows them."""


def deprecated(
    since: str, removed: str, use: str
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Have a function warn, each time that it is called, that it goes and what replaces it.

    Args:
        since: the first version that warns, such as ``1.2``.
        removed: the first version without it; two minor versions later, or the next major one.
        use: what to call instead.

    Raises:
        ValueError: it would be removed too early.
    """
    first, last = (tuple(int(part) for part in version.split(".")) for version in (since, removed))
    if last < (first[0], first[1] + 2):
        raise ValueError(f"deprecated since {since}, removed in {removed}: less than two minor versions later")

    def mark(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        said = f"`{function.__name__}` is deprecated since wastenot {since} and removed in {removed}: use `{use}`"

        @functools.wraps(function)
        def warned(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            warnings.warn(said, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return warned

    return mark

"""wastenot: finds the energy that a GPU wastes while it trains or serves an LLM, and removes it.

    import wastenot as wn

    wn.import_sweep("sweep.csv", "my.db", device="RTX 3080 Ti")
    sweep = wn.open_study("my.db").read()
    plan = wn.plan(sweep, wn.Objective("waste", max_slowdown=0.02))
    plan.write("plan.json")

The verbs take and return the types that the command line reads and writes. Names are imported when first used, so that
``import wastenot`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wastenot.capturing.session import Captured, capture
    from wastenot.capturing.workload_file import read_workload, write_workload
    from wastenot.errors import BadInputError, InfeasibleError, MissingExtraError, StudyError, WastenotError
    from wastenot.frontiers.algebra import Frontier, choice, either, repeat, sequence, tie
    from wastenot.metering.window import measure
    from wastenot.planning.comparison import compare, whole_frontier
    from wastenot.planning.difference import difference
    from wastenot.planning.objective import Objective
    from wastenot.planning.plan import Plan, read_plan
    from wastenot.planning.planner import frontier, plan
    from wastenot.profiling.profile import profile
    from wastenot.profiling.profile_file import read_profile, write_profile
    from wastenot.profiling.result import Profile
    from wastenot.setting import AUTO, Setting
    from wastenot.study.store import Study, open_study
    from wastenot.study.sweep import Kernel, Sweep
    from wastenot.study.sweep_file import export_sweep, import_sweep, read_sweep, write_sweep
    from wastenot.tuning.calibration.calibrate import calibrate_sweep
    from wastenot.tuning.forecast.forecast import forecast

__all__ = [
    "AUTO",
    "BadInputError",
    "Captured",
    "Frontier",
    "InfeasibleError",
    "Kernel",
    "MissingExtraError",
    "Objective",
    "Plan",
    "Profile",
    "Setting",
    "Study",
    "StudyError",
    "Sweep",
    "WastenotError",
    "calibrate_sweep",
    "capture",
    "choice",
    "compare",
    "difference",
    "either",
    "export_sweep",
    "forecast",
    "frontier",
    "import_sweep",
    "measure",
    "open_study",
    "plan",
    "profile",
    "read_plan",
    "read_profile",
    "read_sweep",
    "read_workload",
    "repeat",
    "sequence",
    "tie",
    "whole_frontier",
    "write_profile",
    "write_sweep",
    "write_workload",
]

_HOME = {
    "capturing.session": ("Captured", "capture"),
    "capturing.workload_file": ("read_workload", "write_workload"),
    "errors": ("BadInputError", "InfeasibleError", "MissingExtraError", "StudyError", "WastenotError"),
    "frontiers.algebra": ("Frontier", "choice", "either", "repeat", "sequence", "tie"),
    "profiling.profile": ("profile",),
    "profiling.profile_file": ("read_profile", "write_profile"),
    "profiling.result": ("Profile",),
    "metering.window": ("measure",),
    "planning.comparison": ("compare", "whole_frontier"),
    "planning.difference": ("difference",),
    "planning.objective": ("Objective",),
    "planning.plan": ("Plan", "read_plan"),
    "planning.planner": ("frontier", "plan"),
    "setting": ("AUTO", "Setting"),
    "study.store": ("Study", "open_study"),
    "study.sweep": ("Kernel", "Sweep"),
    "study.sweep_file": ("export_sweep", "import_sweep", "read_sweep", "write_sweep"),
    "tuning.calibration.calibrate": ("calibrate_sweep",),
    "tuning.forecast.forecast": ("forecast",),
}
_MODULE_OF = {name: f"wastenot.{module}" for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'wastenot' has no attribute '{name}'")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__

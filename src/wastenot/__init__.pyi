"""What is public, and where it stands: the one list, from which names are imported when first used."""

from . import serve as serve
from .control.tracking import tracker as tracker
from .core.errors import (
    BadInputError as BadInputError,
    DeviceError as DeviceError,
    InfeasibleError as InfeasibleError,
    MissingExtraError as MissingExtraError,
    StudyError as StudyError,
    WastenotError as WastenotError,
)
from .core.setting import AUTO as AUTO, Setting as Setting
from .devices.open import open_device as open_device
from .frontiers.algebra import (
    Frontier as Frontier,
    choice as choice,
    either as either,
    repeat as repeat,
    sequence as sequence,
    tie as tie,
)
from .frontiers.graph import Graph as Graph, GraphPlan as GraphPlan, graph as graph
from .jobs.plan.overview import JobOverview as JobOverview, job_overview as job_overview
from .jobs.run.job import JobGoal as JobGoal, job as job
from .jobs.run.training_run import TrainingRun as TrainingRun
from .kernels.calibration.calibrate import calibrate_sweep as calibrate_sweep
from .kernels.forecast.forecast import forecast as forecast
from .kernels.latency.measure import measure_latency as measure_latency
from .kernels.page.page import report as report
from .kernels.run.interleaved import validate as validate
from .kernels.run.refine import Finalists as Finalists
from .kernels.verbs import (
    Refinement as Refinement,
    refine as refine,
    sweep as sweep,
    transfer as transfer,
    workload as workload,
)
from .meters.window import measure as measure
from .pipelines.model.stages import StageOptions as StageOptions
from .pipelines.plan.plan import PipelinePlan as PipelinePlan
from .pipelines.plan.plan_file import read_pipeline_plan as read_pipeline_plan
from .pipelines.plan.planner import PipelineGoal as PipelineGoal, PlannedPipeline as PlannedPipeline
from .pipelines.run.straggler_client import StragglerClient as StragglerClient
from .pipelines.verbs import pipeline as pipeline, straggler as straggler
from .planning.comparison import compare as compare, whole_frontier as whole_frontier
from .planning.difference import difference as difference
from .planning.latency import Latency as Latency, read_latency as read_latency
from .planning.objective import Objective as Objective
from .planning.plan import Plan as Plan
from .planning.plan_file import read_plan as read_plan
from .planning.planner import frontier as frontier, plan as plan
from .profiles.options import ProfileOptions as ProfileOptions
from .profiles.profile import profile as profile
from .profiles.profile_file import read_profile as read_profile, write_profile as write_profile
from .profiles.result import Profile as Profile
from .programs.apply import Applied as Applied, apply as apply
from .programs.tune import TunedJob as TunedJob, TuneOptions as TuneOptions, tune as tune
from .serving.bench.bench import serve_bench as serve_bench
from .serving.model.from_steps import profile_of_steps as profile_of_steps
from .serving.model.operating_points import OperatingPoint as OperatingPoint, operating_points as operating_points
from .serving.model.profile_file import (
    EngineProfile as EngineProfile,
    read_engine as read_engine,
    write_engine as write_engine,
)
from .serving.model.steps_csv import StepTable as StepTable, read_step_tables as read_step_tables
from .study.store import Study as Study, open_study as open_study
from .study.sweep import Kernel as Kernel, Sweep as Sweep
from .study.sweep_file import (
    export_sweep as export_sweep,
    import_sweep as import_sweep,
    read_sweep as read_sweep,
    write_sweep as write_sweep,
)
from .sweeping.grid import AtAuto as AtAuto, AtNatural as AtNatural, Grid as Grid, Search as Search
from .workloads.capturing.capture import Captured as Captured, capture as capture
from .workloads.capturing.workload_file import read_workload as read_workload, write_workload as write_workload

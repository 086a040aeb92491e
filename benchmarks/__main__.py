"""Run all benchmarks, or those named: python -m benchmarks [solver] [scale] [import] [startup] ..."""

from __future__ import annotations

import sys

from benchmarks import (
    bench_apply,
    bench_calibration,
    bench_clocks,
    bench_cluster_policies,
    bench_cluster_routers,
    bench_cluster_speed,
    bench_coverage,
    bench_forecast,
    bench_graph,
    bench_h200,
    bench_h200_fit,
    bench_import,
    bench_iteration,
    bench_job_limits,
    bench_jobs,
    bench_jobs_drift,
    bench_jobs_overlap,
    bench_jobs_speed,
    bench_jobs_warm,
    bench_kills,
    bench_latency,
    bench_measurement,
    bench_natural,
    bench_natural_forecast,
    bench_natural_h200,
    bench_noise,
    bench_pipeline_confidence,
    bench_pipeline_h200,
    bench_pipeline_measured,
    bench_pipeline_run,
    bench_plan,
    bench_profile,
    bench_promise,
    bench_regulator,
    bench_run,
    bench_scale,
    bench_schedule,
    bench_search,
    bench_sensor,
    bench_serve_control,
    bench_serving_attack,
    bench_serving_client,
    bench_serving_fits,
    bench_serving_kernels,
    bench_serving_policies,
    bench_serving_simulator,
    bench_solver,
    bench_startup,
    bench_straggler,
    bench_tune,
)
from benchmarks.verdict import Verdict

BENCHMARKS = {
    "startup": bench_startup,
    "import": bench_import,
    "solver": bench_solver,
    "scale": bench_scale,
    "schedule": bench_schedule,
    "graph": bench_graph,
    "pipeline-h200": bench_pipeline_h200,
    "pipeline-confidence": bench_pipeline_confidence,
    "plan": bench_plan,
    "calibration": bench_calibration,
    "measurement": bench_measurement,
    "clocks": bench_clocks,
    "noise": bench_noise,
    "profile": bench_profile,
    "promise": bench_promise,
    "coverage": bench_coverage,
    "search": bench_search,
    "sensor": bench_sensor,
    "latency": bench_latency,
    "h200": bench_h200,
    "h200-fit": bench_h200_fit,
    "regulator": bench_regulator,
    "forecast": bench_forecast,
    "pipeline-measured": bench_pipeline_measured,
    "pipeline-run": bench_pipeline_run,
    "natural": bench_natural,
    "natural-forecast": bench_natural_forecast,
    "natural-h200": bench_natural_h200,
    "run": bench_run,
    "iteration": bench_iteration,
    "apply": bench_apply,
    "kills": bench_kills,
    "straggler": bench_straggler,
    "tune": bench_tune,
    "serving-fits": bench_serving_fits,
    "jobs": bench_jobs,
    "jobs-overlap": bench_jobs_overlap,
    "jobs-speed": bench_jobs_speed,
    "jobs-drift": bench_jobs_drift,
    "jobs-warm": bench_jobs_warm,
    "job-limits": bench_job_limits,
    "serving-client": bench_serving_client,
    "serving-kernels": bench_serving_kernels,
    "serving-policies": bench_serving_policies,
    "serve-control": bench_serve_control,
    "serving-attack": bench_serving_attack,
    "serving-simulator": bench_serving_simulator,
    "cluster-speed": bench_cluster_speed,
    "cluster-policies": bench_cluster_policies,
    "cluster-routers": bench_cluster_routers,
}


def main() -> None:
    verdict = Verdict()
    for name in sys.argv[1:] or BENCHMARKS:
        print(name, flush=True)
        BENCHMARKS[name].main(verdict)
    sys.exit(f"missed: {', '.join(verdict.missed)}" if verdict.missed else None)


if __name__ == "__main__":
    main()

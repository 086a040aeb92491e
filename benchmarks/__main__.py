"""Run all benchmarks, or those named: python -m benchmarks [search] [plan] [commands] ..."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.verdict import Verdict

NAMES = (
    "commands", "pipeline-h200", "pipeline-confidence", "plan", "profile", "coverage", "search", "sensor",
    "latency", "h200", "h200-fit", "regulator", "forecast", "pipeline-measured", "pipeline-run", "natural-forecast",
    "iteration", "one-cap", "straggler", "ddp", "tune", "proxy", "serving-fits", "jobs", "jobs-overlap", "jobs-changes",
    "job-limits",
    "serving-kernels", "serving-policies", "serve-control", "serve-live", "serving-attack", "cluster-speed",
    "serving-speed", "cluster-forecast", "cluster-policies", "cluster-emergencies", "cluster-unseen", "budget",
    "safety",
)  # fmt: skip


def main() -> None:
    verdict = Verdict()
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            sys.exit(f"no benchmark {name!r}; there are {', '.join(NAMES)}")
        print(name, flush=True)
        import_module(f"benchmarks.bench_{name.replace('-', '_')}").main(verdict)
    verdict.end()


if __name__ == "__main__":
    main()

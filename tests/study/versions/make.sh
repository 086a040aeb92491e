#!/bin/sh
# Makes a study with the code of an earlier commit:   tests/study/versions/make.sh VERSION COMMIT
#
#   version   commit     what it was the first to hold
#   2         380b3fe8   workloads by name, state and granularity; measurements; captured operations
#   3         af2f67a3   sweeps, leases, what a workload was captured on
#   4         ff642eb6   natural clocks
#   5         729c2410   switching latency
#   7         6b892198   jobs, servers
#   8         04e5f476   simulated clusters
#
# No commit wrote version 6, which had jobs and no servers yet; data/h200/jobs/jobs.db.xz is a study of it. vN.csv,
# vN-gpt3-xl.csv and vN-step.csv are what the same code exported. Studies as they were made are never made again.
set -eu
version=$1 commit=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(git -C "$here" rev-parse --show-toplevel)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$root" archive "$commit" src tests/toy.toml | tar x -C "$work"
export PYTHONPATH="$work/src" PYTHONWARNINGS=ignore
cd "$work/tests"
wastenot() { python -m wastenot "$@"; }

cat > small.csv <<'CSV'
kernel,count,core_mhz,memory_mhz,time_s,energy_j,power_limit_w,pass,block,time_se_s,energy_se_j,effective_core_mhz,calls,temperature_c
qkv,24,,,0.5,100.0,,forward,layer,0.001,0.25,1965.1,40,61.5
qkv,24,1200,,0.625,80.1,300,forward,layer,,,1185,32,60
"mlp, wide",12,,,0.1,50.300000000000004,,backward,,,,,,
"mlp, wide",12,1200,,0.30000000000000004,40.7,300,backward,,,,,,
CSV
cat > step.py <<'STEP'
import torch
layer = torch.nn.Linear(64, 64)
def step():
    layer(torch.ones(8, 64)).sum().backward()
STEP
quick="--device sim:toy.toml --study s.db --memory 9501 --warm-up 0.1 --window 0.5"
wastenot sweep gpt3-xl $quick --granularity pass --core 900,1500
wastenot capture step.py:step --out step.json --device cpu
wastenot sweep step.json $quick --core 900,1500
wastenot import small.csv --study s.db --workload imported
wastenot export "$here/v$version.csv" --study s.db --workload imported
wastenot export "$here/v$version-gpt3-xl.csv" --study s.db --workload gpt3-xl
wastenot export "$here/v$version-step.csv" --study s.db --workload step-step
[ "$version" -lt 4 ] || wastenot sweep step.json --device sim:toy.toml --study s.db --clocks natural --seconds-each 1
[ "$version" -lt 5 ] || wastenot latency --device sim:toy.toml --study s.db --time-limit 20s
[ "$version" -lt 7 ] || python - <<'STORES'
from types import SimpleNamespace
from wastenot.setting import Setting
from wastenot.study.serving_records import Percentiles, ServingPoint
try:
    from wastenot.jobs.tables.records import JobTerms, Speed
    from wastenot.jobs.tables.store import JobStore
    from wastenot.serving.tables.store import ServingStore
except ImportError:  # before jobs and serving had rooms of their own
    from wastenot.study.job_records import JobTerms, Speed
    from wastenot.study.job_store import JobStore
    from wastenot.study.serving_store import ServingStore
from wastenot.study.store import open_study

study = open_study("s.db")
terms = JobTerms("nightly", (16, 32, 64), 32, 0.9, max_epochs=20)
with JobStore(study).begin(terms, "H200", lambda _: SimpleNamespace(batch_size=32, why="first"), used=lambda: (9.5, 512.25)) as run:
    run.measured([Speed("H200", 32, Setting(power_limit_w=300.0), 4.75, 54.0, 0.01, 0.02)])
    run.epoch(0.5)
    run.epoch(0.91)
    JobStore(study).used_elsewhere("nightly", 1, "other", 17.5)
    run.end("reached")
point = ServingPoint(
    model="llama", gpu="H200", gpus=2, task="chat", max_running=64, mean_running=61.25, energy_per_token_j=0.279562069098521,
    power_w=600.0061, tokens_per_s=2146.23, output_tokens=310.5, itl=Percentiles(p50_s=0.028), ttft=Percentiles(p99_s=0.8),
    setting=Setting(1410.0, None, 350.0), tensor_parallel=2, source="http://localhost:8000", notes=("a note",),
)
ServingStore(study).add([point], source="a server")
STORES
[ "$version" -lt 8 ] || python - <<'STORES'
try:
    from wastenot.serving.tables.cluster_store import ClusterStore, StoredClusterRun
except ImportError:
    from wastenot.study.cluster_store import ClusterStore, StoredClusterRun
from wastenot.study.store import open_study

record = '{"requests": 12, "energy_j": 1.5, "by_class": [null, 1.0, 0.5], "failed": true}'
ClusterStore(open_study("s.db")).keep(StoredClusterRun("a" * 64, "small", "single-pool", "steady", 3, record))
STORES
xz -9e -c s.db > "$here/v$version.db.xz"

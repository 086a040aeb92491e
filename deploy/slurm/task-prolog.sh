#!/bin/sh
# Slurm TaskProlog: applies the plan that a job has asked for to its tasks, which run unchanged.
#   sbatch --comment=wastenot=llama job.sh     # /etc/wastenot/plans/llama.json, or wastenot=/home/anna/plan.json
# slurm.conf: TaskProlog=/etc/slurm/wastenot/task-prolog.sh (or call it from yours, and pass on what it prints). It runs as the
# job's user before each task. The tasks that see the same GPUs share one `wastenot apply`, which runs beside them:
#   task-prolog.sh ─┬─▶ task-prolog.sh session ──▶ wastenot apply PLAN ──▶ task-prolog.sh wait: until the tasks have ended
#                   └─◀ export WASTENOT_APPLY=...                           └─▶ env
set -u
PATH=${PATH:-}:/usr/local/bin:/usr/bin:/bin
export PATH

case ${1:-} in
  session) # FOLDER PLAN SUMMARY
    wastenot apply "$3" --all --out "$4" -- "$0" wait "$2"
    : >"$2/ended"
    exit 0
    ;;
  wait) # FOLDER
    printf 'export WASTENOT_APPLY=%s\nexport PYTHONPATH=%s\n' "$WASTENOT_APPLY" "$PYTHONPATH" >"$2/new"
    mv "$2/new" "$2/env"
    while for task in "$2"/tasks/*; do kill -0 "${task##*/}" 2>/dev/null && break; done; do sleep 0.2; done
    exit 0
    ;;
esac

job=${WASTENOT_JOBS:-/run/wastenot-jobs}/${SLURM_JOB_ID:-}
gpus=${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-}}
[ -r "$job/plan" ] && [ -n "$gpus" ] && [ -n "${SLURM_TASK_PID:-}" ] || exit 0
[ ! -S "${WASTENOT_APPLY:-}" ] || exit 0 # a step of a batch script that has a session already, on this node

without() {
  echo "print wastenot: this task runs without its plan: $*"
  exit 0
}
case ${SLURMD_TRES_FREQ:-} in
  *gpu:*) without "--gpu-freq would reset the clocks at the end of each step; leave it out" ;;
esac

step=${SLURM_STEP_ID:-batch}
own=$job/$step-$(printf %s "$gpus" | tr -c 'A-Za-z0-9' _)
if ! mkdir -p "$own/tasks" || ! : >"$own/tasks/$SLURM_TASK_PID"; then
  without "$own cannot be written"
fi
if mkdir "$own/begun" 2>/dev/null; then
  summary=$PWD/wastenot-$SLURM_JOB_ID-$step-${SLURM_PROCID:-0}.json
  setsid "$0" session "$own" "$(cat "$job/plan")" "$summary" </dev/null >"$own/log" 2>&1 &
fi
tenths=0
until [ -e "$own/env" ]; do
  [ ! -e "$own/ended" ] || without "$(tail -n 1 "$own/log")"
  [ $tenths -lt 600 ] || without "wastenot apply has not begun within a minute"
  tenths=$((tenths + 1))
  sleep 0.1
done
cat "$own/env"

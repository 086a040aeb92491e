#!/bin/sh
# Slurm TaskEpilog: lets the session of task-prolog.sh write its summary once its last task has ended; what is still running
# when the step is over, Slurm kills, and wastenotd restores the clocks.
# slurm.conf: TaskEpilog=/etc/slurm/wastenot/task-epilog.sh
set -u
PATH=${PATH:-}:/usr/bin:/bin
export PATH

for own in "${WASTENOT_JOBS:-/run/wastenot-jobs}/${SLURM_JOB_ID:-}/${SLURM_STEP_ID:-batch}"-*; do
  [ -e "$own/env" ] || continue
  for task in "$own"/tasks/*; do
    ! kill -0 "${task##*/}" 2>/dev/null || continue 2
  done
  tenths=0
  until [ -e "$own/ended" ] || [ $tenths -ge 100 ]; do
    tenths=$((tenths + 1))
    sleep 0.1
  done
done
exit 0

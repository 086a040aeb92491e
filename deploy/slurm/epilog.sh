#!/bin/sh
# Slurm epilog: takes back what the prolog allowed. Leases that the job still has end, and its GPUs' clocks are restored.
# slurm.conf: Epilog=/etc/slurm/epilog.d/*.sh (or source it from yours). It runs as root on each node of the job.
set -u
PATH=${PATH:-}:/usr/sbin:/usr/bin:/sbin:/bin # Slurm sets none
export PATH

[ -n "${SLURM_JOB_ID:-}" ] || exit 0
rule=${WASTENOT_STATE:-/run/wastenotd}/policy.d/job-$SLURM_JOB_ID.toml
rm -rf "${WASTENOT_JOBS:-/run/wastenot-jobs}/$SLURM_JOB_ID"
if [ -f "$rule" ]; then
  rm -f "$rule"
  systemctl reload wastenotd || true
fi
exit 0 # anything else would drain the node

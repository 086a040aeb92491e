#!/bin/sh
# Slurm prolog: the user of a job may set the clocks of the job's GPUs, for as long as the job runs. Where the job asks for a
# plan, it says so to task-prolog.sh.
# slurm.conf: Prolog=/etc/slurm/prolog.d/*.sh (or source it from yours). It runs as root on each node of the job.
set -u
PATH=${PATH:-}:/usr/sbin:/usr/bin:/sbin:/bin # Slurm sets none
export PATH

bounds=${WASTENOT_JOB_BOUNDS:-/etc/wastenot/job-bounds.toml} # such as core_mhz = [900, 1980]; without it, all of the GPU's
rules=${WASTENOT_STATE:-/run/wastenotd}/policy.d
[ -n "${SLURM_JOB_ID:-}" ] && [ -n "${SLURM_JOB_UID:-}" ] || exit 0
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0 # the job has no GPU

# Indices and ranges such as 0,2-3 become a list in TOML; anything else is not ours to understand.
gpus=$(printf '%s\n' "$SLURM_JOB_GPUS" | tr ',' '\n' | while IFS=- read -r first last; do
  case "$first${last:-0}" in '' | *[!0-9]*) continue ;; esac
  seq -s ', ' "$first" "${last:-$first}"
done | paste -sd ',' -)
[ -n "$gpus" ] || exit 0

umask 077 # the folder of journals and rules is root's alone
mkdir -p "$rules" && chmod 700 "$rules"
new=$rules/.job-$SLURM_JOB_ID
if {
  printf '[[allow]]\nusers = [%s]\ngpus = [%s]\n' "$SLURM_JOB_UID" "$gpus"
  [ ! -r "$bounds" ] || cat "$bounds"
} >"$new" && chmod 644 "$new"; then
  mv "$new" "$rules/job-$SLURM_JOB_ID.toml"
  systemctl reload wastenotd || true # a job runs without it, at the default clocks
fi

# --comment="wastenot=NAME" or "wastenot=/path/to/plan.json"; or --constraint=wastenot, which stands for wastenot=default.
plan=
case "+${SLURM_JOB_CONSTRAINTS:-}+" in *[!A-Za-z0-9_.-]wastenot[!A-Za-z0-9_.-]*) plan=default ;; esac
set -f
for word in ${SLURM_JOB_COMMENT:-}; do
  case $word in wastenot=*) plan=${word#wastenot=} ;; esac
done
case $plan in
  '' | *[!A-Za-z0-9_./-]*) exit 0 ;;
  /*) ;;
  */*) exit 0 ;;
  *) plan=${WASTENOT_PLANS:-/etc/wastenot/plans}/$plan.json ;;
esac
jobs=${WASTENOT_JOBS:-/run/wastenot-jobs}
mkdir -p "$jobs" && chmod 755 "$jobs"
rm -rf "${jobs:?}/$SLURM_JOB_ID" # of a job that was requeued
if mkdir "$jobs/$SLURM_JOB_ID" && printf '%s\n' "$plan" >"$jobs/$SLURM_JOB_ID/plan"; then
  chown -R "$SLURM_JOB_UID" "$jobs/$SLURM_JOB_ID" # last: the user may put links into it from now on
fi
exit 0 # anything else would drain the node

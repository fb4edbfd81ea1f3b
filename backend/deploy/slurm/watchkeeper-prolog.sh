#!/bin/sh
# slurm.conf: Prolog=/etc/slurm/watchkeeper-prolog.sh, beside watchkeeper-ask.sh, and PrologFlags=Alloc so that it runs
# before the job starts. Where a binding exclusion keeps this job from this node it fails: Slurm then drains the node
# ("Prolog error") and requeues the job. With SchedulerParameters=nohold_on_prolog_fail the job is not held.
# While Watchkeeper is away it lets every job through, and the log of slurmd says so.
# Slurm asks that a prolog calls no Slurm command; this one calls curl only.
# Settings of watchkeeper-ask.sh may stand in /etc/default/watchkeeper-slurm.
here=$(dirname "$0")
settings=${WATCHKEEPER_SETTINGS:-/etc/default/watchkeeper-slurm}
if [ -r "$settings" ]; then
    set -a
    . "$settings"
    set +a
fi
why=$("$here/watchkeeper-ask.sh" "${SLURMD_NODENAME:-$(hostname -s)}" "${SLURM_JOB_ID:-}")
[ $? -eq 1 ] || exit 0
echo "$why" >&2
command -v logger >/dev/null && logger -t watchkeeper-prolog -- "job ${SLURM_JOB_ID:-?} is kept away: $why"
exit 1

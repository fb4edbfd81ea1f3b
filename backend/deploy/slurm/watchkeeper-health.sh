#!/bin/sh
# slurm.conf: HealthCheckProgram=/etc/slurm/watchkeeper-health.sh, HealthCheckInterval=60, HealthCheckNodeState=ANY.
# Drains this node while a binding exclusion keeps everybody's work from it, and takes back only a drain of its own:
# one whose reason begins with "watchkeeper:". Another's drain is never touched, nor its reason.
# While Watchkeeper is away nothing changes (exit 0). Settings as for the prolog.
here=$(dirname "$0")
settings=${WATCHKEEPER_SETTINGS:-/etc/default/watchkeeper-slurm}
if [ -r "$settings" ]; then
    set -a
    . "$settings"
    set +a
fi
node=${SLURMD_NODENAME:-$(hostname -s)}
said=$(mktemp) || exit 0
trap 'rm -f "$said"' EXIT
why=$("$here/watchkeeper-ask.sh" "$node" 2>"$said")
excluded=$?
state=$(scontrol -o show node "$node") || exit 0
reason=
case $state in *' Reason='*) reason=${state#*' Reason='} ;; esac
drained=no
case $state in *' State='*DRAIN*' '*) drained=yes ;; esac
ours=no
case $reason in watchkeeper:*) ours=yes ;; esac

if [ "$excluded" -eq 1 ]; then
    # a node that somebody drained already is theirs
    [ $drained = yes ] || scontrol update NodeName="$node" State=DRAIN Reason="$(printf %s "$why" | tr -d '"\\' | cut -c1-200)"
elif [ -s "$said" ]; then
    cat "$said" >&2 # it is away: a drain of ours stands until it says otherwise
elif [ $drained = yes ] && [ $ours = yes ]; then
    scontrol update NodeName="$node" State=RESUME
fi
exit 0

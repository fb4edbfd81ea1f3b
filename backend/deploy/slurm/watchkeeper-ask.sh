#!/bin/sh
# Asks Watchkeeper about one node: watchkeeper-ask.sh NODE [JOB]
#   exit 0: work may go there, or Watchkeeper is away (it fails open, and says so on stderr)
#   exit 1: a binding exclusion keeps this work from the node; stdout says why
#   exit 2: wrong words
# WATCHKEEPER_URL         default http://127.0.0.1:8000
# WATCHKEEPER_TOKEN_FILE  file with a token of scope read, where the server is not on loopback
# WATCHKEEPER_CLUSTER     which cluster, where the server watches several
# WATCHKEEPER_TIMEOUT_S   default 2: a prolog must not wait
# WATCHKEEPER_CA          file with the authority of its certificate, for https
set -u
node=${1:-}
job=${2:-}
[ -n "$node" ] || { echo "usage: $0 NODE [JOB]" >&2; exit 2; }
case $node$job in *[!A-Za-z0-9._+-]*) echo "watchkeeper: no name: $node $job" >&2; exit 2 ;; esac

away() {
    echo "watchkeeper: $1; nothing is known of $node, so it is let through (stale)" >&2
    exit 0
}

url=${WATCHKEEPER_URL:-http://127.0.0.1:8000}/api/v1/nodes/$node?job=$job
[ -n "$job" ] || url=${url%?job=}
[ -z "${WATCHKEEPER_CLUSTER:-}" ] || case $url in
    *\?*) url="$url&cluster=$WATCHKEEPER_CLUSTER" ;;
    *) url="$url?cluster=$WATCHKEEPER_CLUSTER" ;;
esac
set -- -sS -f --max-time "${WATCHKEEPER_TIMEOUT_S:-2}" -H "Accept: application/json"
[ -z "${WATCHKEEPER_CA:-}" ] || set -- "$@" --cacert "$WATCHKEEPER_CA"
if [ -n "${WATCHKEEPER_TOKEN_FILE:-}" ]; then
    [ -r "$WATCHKEEPER_TOKEN_FILE" ] || away "$WATCHKEEPER_TOKEN_FILE cannot be read"
    # by a file, not by the command line, which everybody on the node can see
    answer=$(printf 'header = "Authorization: Bearer %s"\n' "$(cat "$WATCHKEEPER_TOKEN_FILE")" | curl "$@" -K - "$url" 2>&1) ||
        away "no answer from ${WATCHKEEPER_URL:-http://127.0.0.1:8000} ($answer)"
else
    answer=$(curl "$@" "$url" 2>&1) || away "no answer from ${WATCHKEEPER_URL:-http://127.0.0.1:8000} ($answer)"
fi
# inside a reason every quote is escaped, so this can only be the field itself
case $answer in
    *'"binding":true,'*) ;;
    '{"node":'*'"binding":false,'*) exit 0 ;;
    *) away "what answers at ${WATCHKEEPER_URL:-http://127.0.0.1:8000} is no Watchkeeper" ;;
esac
reason=${answer#*'"reasons":["'}
printf 'watchkeeper: %s\n' "${reason%%'"'[],]*}"
exit 1

#!/usr/bin/env bash
# One step of the set-up: step.sh TITLE COMMAND... prints one line with the time that the command took.
# What the command says goes to a log. The end of the log is shown when the step fails, because only then there is
# something to do.
set -uo pipefail

title=$1
shift
log=$(mktemp)
begin=$SECONDS
printf 'kvdrive: %s ...' "$title"
"$@" >"$log" 2>&1 &
command=$!
trap 'kill "$command" 2>/dev/null; printf " stopped after %d s\n" $((SECONDS - begin)); rm -f "$log"; exit 130' INT TERM
if [ -t 1 ]; then # on a terminal the elapsed time is shown while the step runs
  while kill -0 "$command" 2>/dev/null; do
    printf '\rkvdrive: %s ... %d s' "$title" $((SECONDS - begin))
    sleep 0.2
  done
  printf '\rkvdrive: %s ...' "$title"
fi
wait "$command"
status=$?
if [ "$status" -eq 0 ]; then
  printf ' %d s\n' $((SECONDS - begin))
  rm -f "$log"
  exit 0
fi
printf ' failed after %d s\n' $((SECONDS - begin))
tail -n 25 "$log" >&2
echo "kvdrive: this step failed: $title (all that it said: $log)" >&2
exit "$status"

#!/usr/bin/env bash
# One step of the set-up: step.sh TITLE COMMAND... prints one line with the time that the command took, and how far a
# build is ("61 of 120 files", from ninja's "[61/120]") while it runs.
# What the command says goes to a log. The end of the log is shown when the step fails, because only then there is
# something to do.
set -uo pipefail

title=$1
shift
log=$(mktemp)
begin=$SECONDS
said=$begin
every=${KVDRIVE_STEP_SECONDS:-20} # where the output is no terminal, a sign of life comes so often

# "61 of 120 files, " once a build says so.
progress() {
  local last
  last=$(grep -a -o '\[[0-9]*/[0-9]*\]' "$log" | tail -n 1)
  [ -n "$last" ] && last=${last//[\[\]]/} && printf '%s of %s files, ' "${last%/*}" "${last#*/}"
}

printf 'kvdrive: %s ...' "$title"
"$@" >"$log" 2>&1 &
command=$!
trap 'kill "$command" 2>/dev/null; printf " stopped after %d s\n" $((SECONDS - begin)); rm -f "$log"; exit 130' INT TERM
while kill -0 "$command" 2>/dev/null; do
  if [ -t 1 ]; then
    printf '\rkvdrive: %s ... %s%d s\e[K' "$title" "$(progress)" $((SECONDS - begin))
  elif [ $((SECONDS - said)) -ge "$every" ]; then
    printf '\nkvdrive: %s ... %s%d s so far' "$title" "$(progress)" $((SECONDS - begin))
    said=$SECONDS
  fi
  sleep 0.2
done
[ -t 1 ] && printf '\rkvdrive: %s ...\e[K' "$title"
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

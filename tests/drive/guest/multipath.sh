# Runs in the guest (scripts/guest/init.sh): two controllers of one subsystem are two paths to the same namespaces, and
# the loss of one does not disturb a writer. SECOND is the port of the other path; the test cuts it and brings it back.
for port in "$PORT" "$SECOND"; do
  nvme connect -t tcp -a 10.0.2.2 -s "$port" -n "$NQN" --hostnqn="$HOSTNQN" -i 1 \
    --reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=30 || say "error: connect to $port"
done
wait_for() { i=0; while ! eval "$1" && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done; }
paths() { ls -d /sys/class/nvme/nvme*/nvme*c*n1 2>/dev/null | wc -l; }
wait_for '[ -e /dev/nvme0n1 ] && [ "$(paths)" = 2 ]'
say "native $(cat /sys/module/nvme_core/parameters/multipath)"
say "subsystems $(ls /sys/class/nvme-subsystem | wc -l)"
say "paths $(paths)"
say "access $(cat /sys/class/nvme/nvme*/nvme*c*n1/ana_state | tr '\n' ' ')"
echo round-robin >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy || say "error: iopolicy"

dd if=/dev/urandom of=/tmp/written bs=64k count=16 2>/dev/null
{
  round=0
  while [ $round -lt 12 ]; do
    dd if=/tmp/written of=/dev/nvme0n1 bs=64k oflag=direct 2>/dev/null || echo "round $round" >>/tmp/failed
    echo $round >/tmp/round
    round=$((round + 1))
  done
  echo >/tmp/ended
} &
wait_for '[ -e /tmp/round ]'
[ -e /tmp/ended ] && say "error: dd ended before the cut"
ask cut
[ -e /tmp/ended ] && say "error: dd ended before the cut was done"
wait_for '[ "$(cat /sys/class/nvme/nvme1/state)" = connecting ]'
say "first $(cat /sys/class/nvme/nvme0/state), second $(cat /sys/class/nvme/nvme1/state)"
wait_for '[ -e /tmp/ended ]'
[ -e /tmp/failed ] && say "error: dd failed in $(cat /tmp/failed)"
say "rounds $(cat /tmp/round)"
dd if=/dev/nvme0n1 of=/tmp/read bs=64k count=16 iflag=direct 2>/dev/null || say "error: read over one path"
cmp /tmp/written /tmp/read && say "blocks same over one path"

ask restore
wait_for '[ "$(cat /sys/class/nvme/nvme1/state)" = live ]'
say "back $(cat /sys/class/nvme/nvme1/state)"
nvme disconnect -n "$NQN" >/dev/null || say "error: disconnect"

# Runs in the guest (scripts/guest/init.sh): what the host does when the way to the drive fails. NQN and HOSTNQN come
# from the test, which arms a fault when it is asked to.
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" --hostnqn="$HOSTNQN" -i 1 --hdr-digest --data-digest \
  --reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=30 || say "error: connect"
i=0; while [ ! -e /dev/nvme0n1 ] && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done
dd if=/dev/urandom of=/tmp/written bs=4k count=16 2>/dev/null
dd if=/tmp/written of=/dev/nvme0n1 bs=64k conv=fsync 2>/dev/null || say "error: write"

# One read while a fault is armed: the kernel recovers and the bytes are right.
recover() {
  ask "$1"
  dd if=/dev/nvme0n1 of=/tmp/read bs=64k count=1 iflag=direct 2>/dev/null || say "error: read after $1"
  cmp /tmp/written /tmp/read && say "same after $1"
}
recover drop_connection
recover corrupt_digest
recover lose_completion
recover not_ready
say "state $(cat /sys/class/nvme/nvme0/state)"
nvme disconnect -n "$NQN" >/dev/null || say "error: disconnect"

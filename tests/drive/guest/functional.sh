# Runs in the guest (scripts/guest/init.sh): what an administrator does with the drive, once.
# NQN, HOSTNQN, APPEND_K, APPEND_V, SUBMIT, FETCH and ERASE come from the test; /k, /v and /q are its arrays.
data() { say "data $1 $(base64 | tr -d '\n')"; }

nvme discover -t tcp -a 10.0.2.2 -s "$PORT" --hostnqn="$HOSTNQN" >/tmp/discovery || say "error: discover"
say "discovered $(grep -c '^subnqn: *'"$NQN" /tmp/discovery)"
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" --hostnqn="$HOSTNQN" -i 2 --hdr-digest --data-digest \
  --keep-alive-tmo=30 || say "error: connect"
wait_for() { i=0; while [ ! -e "$1" ] && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done; }
wait_for /dev/nvme0n1
wait_for /dev/ng0n4
say "devices $(cd /dev && ls -d nvme0n* ng0n* | tr '\n' ' ')"
say "queues $(cat /sys/class/nvme/nvme0/queue_count)"
nvme id-ctrl /dev/nvme0 >/tmp/controller || say "error: id-ctrl"
say "model $(sed -n 's/^mn *: *//p' /tmp/controller)"
say "sectors $(cat /sys/block/nvme0n1/size)"

# Blocks: through the page cache and back from the drive.
dd if=/dev/urandom of=/tmp/written bs=4k count=64 2>/dev/null
dd if=/tmp/written of=/dev/nvme0n1 bs=64k conv=fsync 2>/dev/null || say "error: write"
echo 3 >/proc/sys/vm/drop_caches
dd if=/dev/nvme0n1 of=/tmp/read bs=64k count=4 2>/dev/null || say "error: read"
cmp /tmp/written /tmp/read && say "blocks same"

# K, V and a query through the generic devices.
# shellcheck disable=SC2086
{
  nvme io-passthru /dev/ng0n1 $APPEND_K --write --input-file=/k || say "error: append of K"
  nvme io-passthru /dev/ng0n1 $APPEND_V --write --input-file=/v || say "error: append of V"
  nvme io-passthru /dev/ng0n3 $SUBMIT --write --input-file=/q || say "error: submit"
  nvme io-passthru /dev/ng0n3 $FETCH --read --raw-binary 2>/dev/null | data attention
nvme io-passthru /dev/ng0n3 $FETCH --read --raw-binary >/dev/null 2>&1 || say "a ticket counts once"
  nvme io-passthru /dev/ng0n1 $ERASE || say "error: erase"
}

nvme get-log /dev/nvme0 --log-id=0xc0 --log-len=512 --raw-binary | data statistics
nvme admin-passthru /dev/nvme0 --opcode=0xf5 >/dev/null 2>&1 || say "unknown opcode refused"
nvme reset /dev/nvme0 || say "error: reset"
i=0; while [ "$(cat /sys/class/nvme/nvme0/state)" != live ] && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done
say "state $(cat /sys/class/nvme/nvme0/state)"
dd if=/dev/nvme0n1 of=/tmp/read bs=64k count=4 iflag=direct 2>/dev/null || say "error: read after reset"
cmp /tmp/written /tmp/read && say "blocks same after reset"
nvme disconnect -n "$NQN" >/dev/null || say "error: disconnect"
say "controllers $(ls /sys/class/nvme | wc -l)"

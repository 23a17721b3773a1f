# Runs in the guest (scripts/guest/init.sh): a generation with K and V behind Linux' passthrough, by this machine's
# Python, which the guest reads from the machine. NQN, HOSTNQN, PYTHON and PROGRAM come from the test.
/bin/busybox mkdir /machine
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 machine /machine || say "error: files"
for folder in proc sys dev; do mount -o bind "/$folder" "/machine/$folder" || say "error: $folder"; done
mount -t tmpfs tmpfs /machine/run || say "error: run" # not /tmp, where this project may be
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" --hostnqn="$HOSTNQN" -i 2 --keep-alive-tmo=60 ||
  say "error: connect"
i=0; while [ ! -e /dev/ng0n3 ] && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done
HOME=/run TMPDIR=/run chroot /machine "$PYTHON" "$PROGRAM" nvme:/dev/ng0n3 emulator >/tmp/tokens || say "error: the program ended with $?"
say "tokens $(tail -n 1 /tmp/tokens)"
nvme disconnect -n "$NQN" >/dev/null || say "error: disconnect"

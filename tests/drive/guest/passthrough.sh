# Runs in the guest (scripts/guest/init.sh): kvdrive's own target over Linux' NVMe passthrough. NQN, HOSTNQN and PYTHON
# come from the test; /passthrough.py is the program.
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" --hostnqn="$HOSTNQN" -i 2 --keep-alive-tmo=60 --reconnect-delay=1 ||
  say "error: connect"
i=0; while [ ! -e /dev/ng0n4 ] && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done
eval "$PYTHON /passthrough.py" || say "error: the program ended with $?"
nvme disconnect -n "$NQN" >/dev/null || say "error: disconnect"

# Runs in the guest (scripts/guest/init.sh): what stock nvme-cli says of the drive; the test compares it with expected/.
nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" --hostnqn="$HOSTNQN" -i 1 --keep-alive-tmo=30 || say "error: connect"
i=0; while [ ! -e /dev/nvme0n1 ] && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done
text() { name=$1; shift; say "text $name $("$@" 2>&1 | base64 | tr -d '\n')"; }

dd if=/dev/urandom of=/tmp/blocks bs=4k count=8 2>/dev/null
dd if=/tmp/blocks of=/dev/nvme0n1 bs=4k conv=fsync 2>/dev/null || say "error: write"
text verify nvme verify /dev/nvme0n1 --start-block=0 --block-count=7
text compare nvme compare /dev/nvme0n1 --start-block=0 --block-count=7 --data-size=32768 --data=/tmp/blocks
text compare-differs nvme compare /dev/nvme0n1 --start-block=4 --block-count=3 --data-size=16384 --data=/tmp/blocks
text copy nvme copy /dev/nvme0n1 --sdlba=16 --slbs=0 --blocks=7
text compare-copy nvme compare /dev/nvme0n1 --start-block=16 --block-count=7 --data-size=32768 --data=/tmp/blocks
text read-behind-the-end nvme read /dev/nvme0n1 --start-block=0xffffff --block-count=0 --data-size=4096 --data=/tmp/none
text set-feature nvme set-feature /dev/nvme0 --feature-id=4 --value=0x122 --save
text get-feature nvme get-feature /dev/nvme0 --feature-id=4 --sel=2 --human-readable
text smart-log nvme smart-log /dev/nvme0
text error-log nvme error-log /dev/nvme0 --log-entries=2
text id-ctrl nvme id-ctrl /dev/nvme0
text id-ns nvme id-ns /dev/nvme0n1
text ns-descs nvme ns-descs /dev/nvme0n1
text ana-log nvme ana-log /dev/nvme0
text supported-log-pages nvme supported-log-pages /dev/nvme0
text feature-effects nvme fid-support-effects-log /dev/nvme0
text effects-log nvme effects-log /dev/nvme0 --csi=0
text effects-log-memory nvme effects-log /dev/nvme0 --csi=3
text ana-groups nvme ana-log /dev/nvme0 --groups
text sanitize-log nvme sanitize-log /dev/nvme0
text fw-log nvme fw-log /dev/nvme0

# nvme-cli has no commands for values under keys, so they go through the kernel as they are. The key is "nvme".
i=0; while [ ! -e /dev/ng0n4 ] && [ $i -lt 3000 ]; do sleep 0.1; i=$((i + 1)); done
key() { nvme io-passthru /dev/ng0n4 --namespace-id=4 --cdw2=0x656d766e "$@"; }
data="--cdw10=8192 --data-len=8192"
dd if=/dev/urandom of=/tmp/value bs=8k count=1 2>/dev/null
text kv-exist-missing key --opcode=0x14 --cdw11=4
text kv-store-must-exist key --opcode=0x01 --cdw11=0x104 $data --write --input-file=/tmp/value
text kv-store key --opcode=0x01 --cdw11=4 $data --write --input-file=/tmp/value
text kv-store-must-not-exist key --opcode=0x01 --cdw11=0x204 $data --write --input-file=/tmp/value
text kv-exist key --opcode=0x14 --cdw11=4
key --opcode=0x02 --cdw11=4 $data --read --raw-binary >/tmp/back 2>/dev/null
cmp /tmp/value /tmp/back && say "value same"
text kv-list key --opcode=0x06 --cdw11=0 --cdw10=64 --data-len=64 --read
text kv-delete key --opcode=0x10 --cdw11=4
text kv-retrieve-deleted key --opcode=0x02 --cdw11=4 $data --read
nvme disconnect -n "$NQN" >/dev/null || say "error: disconnect"

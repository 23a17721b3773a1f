#!/usr/bin/env bash
# lmcache_env.sh FOLDER VLLM: an environment with LMCache for its processor version, on top of the environment VLLM.
# A download of 25 MB. LMCache's requirements for GPUs and for cloud storage are left out: nothing here uses them.
set -euo pipefail

folder=$1
vllm=$2
tree=$(cd "$(dirname "$0")/.." && pwd)
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
"$tree/.venv/bin/python" -m venv "$folder"
site "$vllm" >"$(site "$folder")/vllm.pth"
"$folder/bin/pip" --disable-pip-version-check install --no-deps -r "$tree/scripts/vllm_bench/lmcache.txt"
LMCACHE_TRACK_USAGE=false "$folder/bin/python" -m lmcache.v1.multiprocess.server --help >/dev/null

#!/usr/bin/env bash
# vllm_env.sh FOLDER: an environment with vLLM for its processor version, and with this tree's kvdrive as it is built in
# .venv. Takes about two minutes, a download of 0.6 GB and 3.5 GB of disk.
set -euo pipefail

folder=$1
tree=$(cd "$(dirname "$0")/.." && pwd)
"$tree/.venv/bin/python" -m venv "$folder"
"$folder/bin/pip" --disable-pip-version-check install -c "$tree/scripts/vllm_bench/constraints.txt" \
  "$("$tree/.venv/bin/python" "$tree/scripts/extras.py" vllm | grep '^vllm')"
# vLLM imports these if they are there, and they are built for another version of torch.
"$folder/bin/pip" --disable-pip-version-check uninstall --yes torchvision torchaudio torchcodec
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
for part in "$(site "$tree/.venv")"/{kvdrive,kvdrive-*.dist-info,_editable_skbc_kvdrive.*}; do
  ln -sfn "$part" "$(site "$folder")/"
done
"$folder/bin/python" -c 'import kvdrive.plugins.vllm.spec'

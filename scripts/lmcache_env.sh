#!/usr/bin/env bash
# lmcache_env.sh FOLDER VLLM_FOLDER: LMCache on top of the environment of vLLM, for the comparison in docs/vllm.md.
#
# Its own requirements name CUDA packages and other versions than vLLM's. Without a GPU it needs none of them.
set -euo pipefail

folder=$1
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
"$2/bin/python" -m venv "$folder"
site "$(realpath "$2")" >"$(site "$folder")/vllm_env.pth"
"$folder/bin/pip" --disable-pip-version-check install --no-deps lmcache==0.5.6 aiofile==3.12.3 aiofiles==25.1.0 awscrt==0.38.1 \
  caio==0.12.10 cufile-python==0.2.0 nvtx==0.2.17 opentelemetry-exporter-prometheus==0.66b2 redis==8.1.0 \
  sortedcontainers==2.4.0
"$folder/bin/python" -c 'import lmcache.v1.multiprocess.server'

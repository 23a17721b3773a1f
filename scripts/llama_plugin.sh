#!/usr/bin/env bash
# The plugin with which llama.cpp keeps K and V in a drive: llama_plugin.sh BIN LLAMA FOLDER builds
# FOLDER/libggml-kvdrive.so with the cmake in BIN and the headers in LLAMA/include.
set -euo pipefail

bin=$(realpath "${1:?usage: llama_plugin.sh BIN LLAMA FOLDER}")
llama=$(realpath "$2")
export PATH="$bin:$PATH"
cmake -S "$(dirname "$0")/.." -B "$3" -G Ninja -DKVDRIVE_BOARD=ON -DKVDRIVE_LLAMA="$llama/include" >/dev/null
cmake --build "$3" --target ggml-kvdrive

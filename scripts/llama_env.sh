#!/usr/bin/env bash
# llama.cpp ready built, for tests and benchmarks beside it: llama_env.sh FOLDER puts its libraries into FOLDER/bin and
# its headers into FOLDER/include. The libraries come in an npm package, the headers in a source package of Python.
# LLAMA_RELEASE=VERSION of the npm package: another release of the libraries.
set -euo pipefail

LIBRARIES=@node-llama-cpp/linux-x64@${LLAMA_RELEASE:-3.22.1}
HEADERS=llama-cpp-python==0.3.36

root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(realpath -m "${1:?usage: llama_env.sh FOLDER}")
contents="$LIBRARIES, script $(cksum <"${BASH_SOURCE[0]}")"
[ "$(cat "$folder/complete" 2>/dev/null)" = "$contents" ] && exit 0
if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "kvdrive: llama.cpp is ready built for Linux on x86-64 only: build it, and name its folder by LLAMA=FOLDER" >&2
  exit 1
fi
command -v npm >/dev/null || {
  echo "kvdrive: npm is missing: install it with this system's package manager (apt-get install npm)" >&2
  exit 1
}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/include"
(cd "$place" && npm pack --silent "$LIBRARIES" >/dev/null && tar xzf ./*.tgz)
cp "$place"/package/bins/linux-x64/lib*.so "$place/package/LICENSE" "$folder/bin"
for library in llama ggml; do # their names have a version
  ln -s "$(basename "$folder"/bin/lib$library.v*.so)" "$folder/bin/lib$library.so"
done
"$root/.venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --no-binary llama-cpp-python "$HEADERS" --dest "$place/source"
tar xzf "$place"/source/*.tar.gz --directory "$place/source" --strip-components=3 --wildcards \
  '*/vendor/llama.cpp/include/*.h' '*/vendor/llama.cpp/ggml/include/*.h' '*/vendor/llama.cpp/ggml/src/ggml-backend-impl.h'
cp "$place"/source/include/*.h "$place"/source/ggml/include/*.h "$place"/source/ggml/src/*.h "$folder/include"
echo "$contents" >"$folder/complete"

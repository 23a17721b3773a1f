#!/usr/bin/env bash
# llama.cpp's own programs, for this machine's processor: llama_programs.sh BIN FOLDER puts llama-server, llama-cli,
# llama-completion, llama-bench and llama-perplexity into FOLDER/bin, beside their libraries. The sources come in a source
# package of Python; BIN has cmake and ninja. It takes a quarter of an hour on two cores.
set -euo pipefail

SOURCES=llama-cpp-python==0.3.36
PROGRAMS="llama-server llama-cli llama-completion llama-bench llama-perplexity"

bin=$(realpath "${1:?usage: llama_programs.sh BIN FOLDER}")
folder=$(realpath -m "${2:?usage: llama_programs.sh BIN FOLDER}")
export PATH="$bin:$PATH"
contents="$SOURCES, script $(cksum <"${BASH_SOURCE[0]}")"
[ "$(cat "$folder/complete" 2>/dev/null)" = "$contents" ] && exit 0

# Backends that are libraries of their own are compiled for named instructions, not for "this machine".
flags=()
has() { grep -qw "$1" /proc/cpuinfo; }
for pair in sse4_2:SSE42 avx:AVX avx2:AVX2 bmi2:BMI2 f16c:F16C fma:FMA avx512f:AVX512 avx512_vnni:AVX512_VNNI \
  avx512_bf16:AVX512_BF16 amx_tile:AMX_TILE amx_int8:AMX_INT8; do
  if has "${pair%%:*}"; then flags+=("-DGGML_${pair##*:}=ON"); else flags+=("-DGGML_${pair##*:}=OFF"); fi
done

mkdir -p "$folder"
rm -rf "$folder/source" "$folder/complete"
python -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --no-binary llama-cpp-python "$SOURCES" --dest "$folder"
mkdir "$folder/source"
tar xzf "$folder"/llama_cpp_python-*.tar.gz --directory "$folder/source" --strip-components=3 --wildcards '*/vendor/llama.cpp/*'
rm "$folder"/llama_cpp_python-*.tar.gz
cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
  -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF "${flags[@]}" -DLLAMA_BUILD_UI=OFF -DLLAMA_OPENSSL=OFF >/dev/null
# shellcheck disable=SC2086 # a list of words
cmake --build "$folder/build" --target $PROGRAMS
ln -sfn build/bin "$folder/bin"
echo "$contents" >"$folder/complete"

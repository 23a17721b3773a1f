# SPDX-License-Identifier: Apache-2.0
"""Build the drive's fuzzers (sim/drive/fuzz, one program per surface) with sanitizers and libFuzzer, and run them.

Each surface runs for a number of inputs or for a time. Inputs that reach new code are kept in build/fuzzers/corpus, and
the next run starts from them. An input that does harm is written to build/fuzzers/found; `fuzz_SURFACE FILE` repeats
it.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/fuzzers"
MEMORY = Path("/dev/shm")
COMPILER = "clang++-19"
SURFACES = sorted(path.stem for path in (ROOT / "sim/drive/fuzz").glob("*.cpp") if path.stem != "entry")
LONGEST_INPUT = 1024  # bytes; each one is a choice in a history
LONGEST_SECONDS = 120  # for one input; longer counts as a hang


def build(jobs: int, surfaces: list[str]) -> None:
    """Programs in build/fuzzers. Raises CalledProcessError with the compiler's words."""
    cmake = Path(sys.executable).parent / "cmake"
    ninja = Path(sys.executable).parent / "ninja"
    options = ["-DKVDRIVE_FUZZ=ON", "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_COMPILER={COMPILER}"]
    options += [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    configure = [cmake, "-S", ROOT, "-B", BUILD, "-G", "Ninja", *options]
    subprocess.run(configure, check=True, capture_output=True, text=True)
    targets = [f"fuzz_{surface}" for surface in surfaces]
    command = [cmake, "--build", BUILD, "-j", str(jobs), "--target", *targets]
    subprocess.run(command, check=True, capture_output=True, text=True)


def run(surface: str, bound: str, seed: int, corpus: Path) -> bool:
    """Run a surface. True if no input failed. `bound`: libFuzzer's option that ends the run."""
    found = BUILD / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    command = [BUILD / f"fuzz_{surface}", corpus, bound, f"-seed={seed}", f"-artifact_prefix={found}/{surface}-"]
    command += [f"-max_len={LONGEST_INPUT}", f"-timeout={LONGEST_SECONDS}"]
    command += ["-len_control=0", "-rss_limit_mb=4096", "-print_final_stats=1"]
    # In memory where possible: inputs make data durable often, which is slow on a disk. A crash leaves files behind.
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        environment = os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1", "TMPDIR": folder}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    inputs = re.findall(r"number_of_executed_units: (\d+)", result.stderr)
    edges = re.findall(r"cov: (\d+)", result.stderr)
    if result.returncode or not inputs:
        print(f"{surface}: FAILED", flush=True)
        sys.stderr.write(result.stderr[-8000:])
        return False
    kept = sum(1 for _ in corpus.iterdir())
    print(f"{surface}: {inputs[-1]} inputs, {edges[-1]} edges, {kept} inputs in the corpus, no harm", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--inputs", type=int, default=20_000, help="of all surfaces together")
    end.add_argument("--minutes", type=float, help="of each surface")
    parser.add_argument("--seed", type=int, default=1, help="from 1 on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--corpus", type=Path, default=BUILD / "corpus", help="a folder with one for each surface")
    parser.add_argument("--surface", choices=SURFACES, help="only this one")
    arguments = parser.parse_args()
    surfaces = [arguments.surface] if arguments.surface else SURFACES
    if shutil.which(COMPILER) is None:
        sys.stderr.write(f"fuzzing needs {COMPILER} and its libraries: install clang-19 and libclang-rt-19-dev\n")
        return 2
    try:
        build(arguments.jobs, surfaces)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error.stdout}\n{error.stderr}\n")
        return 2
    bound = f"-runs={math.ceil(arguments.inputs / len(surfaces))}"
    if arguments.minutes:
        bound = f"-max_total_time={math.ceil(arguments.minutes * 60)}"
    with ThreadPoolExecutor(arguments.jobs) as pool:
        fine = pool.map(lambda surface: run(surface, bound, arguments.seed, arguments.corpus / surface), surfaces)
        return 0 if all(list(fine)) else 1


if __name__ == "__main__":
    raise SystemExit(main())

# SPDX-License-Identifier: Apache-2.0
"""Build the drive's fuzzers (sim/drive/fuzz, one program per surface) with sanitizers, and run them."""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/fuzz"
MEMORY = Path("/dev/shm")
SURFACES = sorted(path.stem for path in (ROOT / "sim/drive/fuzz").glob("*.cpp") if path.stem != "main")
WEIGHTS = {"files": 0.05}  # an input of the others takes microseconds, a file to mount milliseconds; default: 1


def build(jobs: int, surfaces: list[str]) -> None:
    """Programs in build/fuzz. Raises CalledProcessError with the compiler's words."""
    cmake = Path(sys.executable).parent / "cmake"
    ninja = Path(sys.executable).parent / "ninja"
    options = ["-DKVDRIVE_FUZZ=ON", "-DCMAKE_BUILD_TYPE=None", f"-DPython_EXECUTABLE={sys.executable}"]
    configure = [cmake, "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *options]
    subprocess.run(configure, check=True, capture_output=True, text=True)
    targets = [f"fuzz_{surface}" for surface in surfaces]
    command = [cmake, "--build", BUILD, "-j", str(jobs), "--target", *targets]
    subprocess.run(command, check=True, capture_output=True, text=True)


def split(inputs: int, surfaces: list[str]) -> dict[str, int]:
    """Inputs of each surface, together at least `inputs`."""
    weights = {surface: WEIGHTS.get(surface, 1.0) for surface in surfaces}
    return {surface: math.ceil(inputs * weight / sum(weights.values())) for surface, weight in weights.items()}


def run(surface: str, inputs: int, seed: int) -> bool:
    """Whether the surface took all inputs without harm; its words go to stderr."""
    environment = os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"}
    if MEMORY.is_dir():  # inputs make data durable all the time
        environment["TMPDIR"] = str(MEMORY)
    command = [BUILD / f"fuzz_{surface}", str(inputs), str(seed)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    print(f"{surface}: {result.stdout.strip() or 'FAILED'}", flush=True)
    if result.returncode:
        sys.stderr.write(result.stderr[-8000:])
    return result.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all surfaces together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--surface", choices=SURFACES, help="only this one")
    arguments = parser.parse_args()
    surfaces = [arguments.surface] if arguments.surface else SURFACES
    try:
        build(arguments.jobs, surfaces)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error.stdout}\n{error.stderr}\n")
        return 2
    with ThreadPoolExecutor(arguments.jobs) as pool:
        shares = split(arguments.inputs, surfaces)
        fine = pool.map(lambda surface: run(surface, shares[surface], arguments.seed), surfaces)
        return 0 if all(list(fine)) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Compile the testbench of a kernel with g++, and with clang under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

from csim.ap_headers import ap_headers

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build/csim"

WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",  # HLS pragmas
    "-Wno-unused-label",  # loop labels, for the reports of the HLS tools
    "-Wno-uninitialized",  # the vendor's wide integers mask their top word before its first write
    "-Wno-maybe-uninitialized",
)
# clang compiles checked code in half of g++'s time, and is a second compiler for the kernels. g++ warns.
SANITIZER = "clang++-19"
SANITIZE = (
    "-O1",
    "-g1",
    "-w",
    "-fsanitize=address,undefined",
    "-fno-sanitize=shift-base",  # the vendor's integers shift negative values left, which is defined only since C++20
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)


class BuildError(Exception):
    """The compiler refused a source, or a tool is missing; the text says what to do."""


def kernels() -> list[str]:
    """Names of all testbenches: the kernels, and `primitives` for the arithmetic of hls/common."""
    return sorted(path.name.removesuffix("_tb.cpp") for path in (ROOT / "hls").glob("*/*_tb.cpp"))


def sources(kernel: str) -> list[Path]:
    """The testbench and the sources that its kernel.toml lists. hls/common has headers only."""
    (bench,) = (ROOT / "hls").glob(f"*/{kernel}_tb.cpp")
    description = bench.parent / "kernel.toml"
    names = tomllib.loads(description.read_text())["kernel"]["sources"] if description.exists() else []
    return [*(bench.parent / name for name in names), bench]


def compile_program(
    files: Sequence[Path],
    program: Path,
    *,
    sanitize: bool = False,
    extra: Sequence[str] = (),
    kernels_as: str = "c++17",
) -> Path:
    """Compile C++ `files` into `program`, through ccache where installed; `extra` flags come last.

    `kernels_as`: the standard of all files but the testbench, which is C++17.

    Raises BuildError with the compiler's messages.
    """
    program.parent.mkdir(parents=True, exist_ok=True)
    compiler = SANITIZER if sanitize else "g++"
    cached = [ccache] if (ccache := shutil.which("ccache")) else []
    flags = SANITIZE if sanitize else ("-O2", *WARNINGS)
    paths = [f"-I{ROOT / 'hls'}", "-isystem", str(ap_headers()), *extra]
    objects = []
    for file in files:
        target = program.parent / f"{program.name}.{file.stem}.o"
        standard = "c++17" if file.stem.endswith("_tb") else kernels_as
        _run([*cached, compiler, f"-std={standard}", *flags, *paths, "-c", str(file), "-o", str(target)])
        objects.append(str(target))
    _run([compiler, *flags, *objects, "-o", str(program)])
    return program


def build(kernel: str, *, sanitize: bool = False) -> Path:
    """Compile the kernel and its testbench; returns the program."""
    return compile_program(sources(kernel), OUT / (f"{kernel}_sanitize" if sanitize else kernel), sanitize=sanitize)


def _run(command: list[str]) -> None:
    for compiler, setup in (("g++", "make setup"), (SANITIZER, "scripts/system_packages.sh fuzz")):
        if compiler in command and shutil.which(compiler) is None:
            raise BuildError(f"{compiler} not found: run `{setup}`, which installs it")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr[-8000:]}")

"""Build the testbench of a kernel with g++, and with clang under sanitizers. Objects are those of sim/compiled."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from compiled.build import BuildError, link, objects
from compiled.recipe import HLS, PLAIN, ROOT, SANITIZED, Unit
from compiled.store import Store

__all__ = ["BuildError", "build", "compile_program", "kernels", "sources"]


def kernels() -> list[str]:
    """Names of all testbenches: the kernels, and `primitives` for the arithmetic of hls/common."""
    return sorted(path.name.removesuffix("_tb.cpp") for path in (ROOT / "hls").glob("*/*_tb.cpp"))


def sources(kernel: str) -> list[Path]:
    """The testbench and the sources that its kernel.toml lists. hls/common has headers only."""
    (bench,) = (ROOT / "hls").glob(f"*/{kernel}_tb.cpp")
    description = bench.parent / "kernel.toml"
    names = tomllib.loads(description.read_text())["kernel"]["sources"] if description.exists() else []
    return [*(bench.parent / name for name in names), bench]


def units(
    files: Sequence[Path], *, sanitize: bool = False, extra: Sequence[str] = (), kernels_as: str = "c++17"
) -> list[Unit]:
    """How C++ files are compiled: sources of kernels together. `kernels_as`: the standard of all but testbenches."""
    flavour = SANITIZED if sanitize else PLAIN
    parts: dict[str, list[Path]] = {}
    for file in files:
        kernel = file.is_relative_to(HLS) and not file.stem.endswith("_tb")
        parts.setdefault(file.parent.name if kernel else file.stem, []).append(file)
    return [
        Unit(name, tuple(part), flavour, "c++17" if name.endswith("_tb") else kernels_as, tuple(extra))
        for name, part in parts.items()
    ]


def compile_program(
    files: Sequence[Path],
    name: str,
    *,
    sanitize: bool = False,
    extra: Sequence[str] = (),
    kernels_as: str = "c++17",
    store: Store | None = None,
) -> Path:
    """Compile C++ `files` into a program of `store`; `extra` flags come last.

    Raises BuildError with the compiler's messages, or with what to install.
    """
    parts = objects(units(files, sanitize=sanitize, extra=extra, kernels_as=kernels_as), store)
    return link(name, parts, SANITIZED if sanitize else PLAIN, executable=True, store=store)


def build(kernel: str, *, sanitize: bool = False) -> Path:
    """Compile the kernel and its testbench; returns the program."""
    return compile_program(sources(kernel), f"{kernel}_tb", sanitize=sanitize)

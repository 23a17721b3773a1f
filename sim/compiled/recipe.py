# SPDX-License-Identifier: Apache-2.0
"""Which sources a kernel consists of, and how they are compiled."""

from __future__ import annotations

import functools
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from csim.ap_headers import ap_headers

ROOT = Path(__file__).resolve().parents[2]
HLS, DRIVE = ROOT / "hls", ROOT / "sim/drive"
CALLS = DRIVE / "engine/hls/calls"

_WIDTH = "AP_INT_MAX_W"
_DEFINED = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
_ONCE = re.compile(r"^#pragma once$", re.MULTILINE)

WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",  # HLS pragmas
    "-Wno-unused-label",  # loop labels, for the reports of the HLS tools
    "-Wno-uninitialized",  # the vendor's wide integers mask their top word before its first write
    "-Wno-maybe-uninitialized",
)


@dataclass(frozen=True)
class Flavour:
    """A way to compile. `install`: the command of this project that installs the compiler."""

    compiler: str
    flags: tuple[str, ...]
    install: str


# -fno-gnu-unique: a shared object uses its own variables, also where another one has some of the same name.
PLAIN = Flavour("g++", ("-O1", "-fPIC", "-fno-gnu-unique", *WARNINGS), "scripts/system_packages.sh build")
# clang compiles checked code in half of g++'s time, and is a second compiler for the kernels. g++ warns.
SANITIZED = Flavour(
    "clang++-19",
    (
        "-O1",
        "-g1",
        "-w",
        "-fsanitize=address,undefined",
        "-fno-sanitize=shift-base",  # the vendor's integers shift negative values left: defined only since C++20
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
    ),
    "scripts/system_packages.sh fuzz",
)


@dataclass(frozen=True)
class Unit:
    """C++ sources that are compiled together, and how. `name`: of their object.

    Most of the time goes into what sources of one folder have in common, so that all of them together take a third of
    the time that one by one takes.
    """

    name: str
    sources: tuple[Path, ...]
    flavour: Flavour = PLAIN
    standard: str = "c++17"
    extra: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The compiler and its flags, without input and output."""
        paths = [f"-I{HLS}", f"-I{DRIVE}", "-isystem", str(ap_headers())]
        return [self.flavour.compiler, f"-std={self.standard}", *self.flavour.flags, *paths, *self.extra]

    def files(self) -> list[Path]:
        """The sources and all headers that they may include, but for those of the system."""
        others = [Path(flag.removeprefix("-I")) for flag in self.extra if flag.startswith("-I")]
        folders = [ap_headers(), *others]
        headers = frozenset[Path]().union(*map(_headers_of, self.sources))
        return [*self.sources, *sorted(headers), *(file for f in folders for file in _files_of(f))]

    def texts(self) -> list[str]:
        """The flags that have an effect, wherever the tree lies, and the text that joins several sources."""
        plain = [flag for flag in self.extra if not flag.startswith("-I")]
        joined = [self.text()] if len(self.sources) > 1 else []
        return [self.flavour.compiler, self.standard, *self.flavour.flags, *plain, *joined]

    def text(self) -> str:
        """A source that includes all of `sources`, which are below hls/. Each begins without the macros of others."""
        # The vendor's header has one limit for the width of integers: the largest, defined before its first include.
        widest_first = sorted(self.sources, key=lambda source: _WIDTH not in _macros_of(source))
        lines = []
        for source in widest_first:
            lines.append(f'#include "{source.relative_to(HLS)}"')
            lines += [f"#undef {name}" for name in _macros_of(source) if name != _WIDTH]
        return "\n".join(lines) + "\n"


def kernels() -> dict[str, Path]:
    """Sources by name. Each has a shared object of its own, with one top, or with several small ones."""
    found = {}
    for description in sorted(HLS.glob("*/kernel.toml")):
        for source in tomllib.loads(description.read_text())["kernel"]["sources"]:
            found[Path(source).stem] = description.parent / source
    return found


def family_of(kernel: str) -> str:
    """The folder of a kernel in hls/. Its kernels differ in the size of a group or of a number."""
    return kernels()[kernel].parent.name


def units_of(kernel: str) -> list[Unit]:
    """What the shared object of a kernel is made of: the kernel, and the calls that turn arrays into its streams."""
    return [Unit(kernel, (kernels()[kernel],)), *_calls_of(kernel)]


def units_of_family(family: str) -> list[Unit]:
    """What a shared object of all kernels of a folder is made of."""
    members = [name for name in kernels() if family_of(name) == family]
    calls = [unit for name in members for unit in _calls_of(name)]
    return [Unit(family, tuple(kernels()[name] for name in members)), *calls]


def _calls_of(kernel: str) -> list[Unit]:
    calls = CALLS / f"{kernel}.cpp"
    return [Unit(f"{kernel}-calls", (calls,), standard="c++20")] if calls.exists() else []


@functools.cache
def _headers_of(source: Path) -> frozenset[Path]:
    """Headers of this project that a file includes, directly and through others, whatever its conditions say."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', waiting.pop().read_text(), re.MULTILINE):
            for folder in (HLS, DRIVE):
                if (header := folder / name).is_file() and header not in found:
                    found.add(header)
                    waiting.append(header)
    return frozenset(found)


@functools.cache
def _macros_of(source: Path) -> tuple[str, ...]:
    """Macros that a source defines, and those of headers that may be included more than once, in their order."""
    again = [header for header in sorted(_headers_of(source)) if not _ONCE.search(header.read_text())]
    return tuple(dict.fromkeys(name for file in (source, *again) for name in _DEFINED.findall(file.read_text())))


@functools.cache
def _files_of(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(Path(root) / name for root, _, names in os.walk(folder) for name in names))

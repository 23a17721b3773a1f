# SPDX-License-Identifier: Apache-2.0
"""RTL of a top in build/rtl/<top>, rebuilt when its C++ or the compiler changed."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from openhls.emit.design import Design
from openhls.ir import Program
from openhls.pipeline import compile_program, write_design
from openhls.schedule.target import DEFAULT, PLATFORMS, Target, target_of
from rtl.identity import rtl_hash
from rtl.kernels import HLS, ROOT, Top

# An installed package may be read-only, so it uses the user's cache folder.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvdrive"
OUT = (ROOT / "build" if (ROOT / "pyproject.toml").exists() else _CACHE) / "rtl"
COMPILER = ROOT / "sim/openhls"
# Parts of openhls that have no effect on the RTL: simulation, comparison, measurement and its command line.
_BESIDE = (
    "fuzz/",
    "cosim/",
    "store.py",
    "cli.py",
    "config.py",
    "__main__.py",
    "estimate.py",
    "synthesis.py",
    "printer.py",
)
_STAMP = "built.json"


@dataclass(frozen=True)
class Built:
    """RTL on disk, with the program it was made of."""

    top: Top
    program: Program
    design: Design
    source_hash: str
    compiler_hash: str
    rtl_hash: str

    @property
    def folder(self) -> Path:
        return self.design.folder


def sources_of(program: Program) -> list[Path]:
    """The C++ files of a program, without the compiler's own headers."""
    paths = [Path(source).resolve() for source in program.sources]
    return sorted(path for path in paths if COMPILER not in path.parents)


def compiler_files() -> list[Path]:
    """All files that the emitted RTL depends on."""
    files = [path for suffix in ("py", "sv", "h") for path in COMPILER.rglob(f"*.{suffix}")]
    files.append(PLATFORMS / f"{DEFAULT}.toml")
    return sorted(path for path in files if not path.relative_to(COMPILER).as_posix().startswith(_BESIDE))


def hash_files(paths: list[Path]) -> str:
    """One hash over the contents of files and their paths in the project. A missing file counts as empty."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes() if path.exists() else b""
        total.update(f"{os.path.relpath(path, ROOT)}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def compiler_hash() -> str:
    return hash_files(compiler_files())


def build(top: Top, out: Path = OUT, target: Target | None = None, defines: tuple[str, ...] = ()) -> Built:
    """Compile `top` into `out`/<top>, for its own clock on the default platform or for `target`.

    Raises OpenHlsError where the C++ is refused or a tool is missing.
    """
    folder = out / top.name
    (folder / _STAMP).unlink(missing_ok=True)
    program = compile_program(top.source, top.name, (HLS,), defines)
    design = write_design(program, top.name, folder, target or target_of(top.clock_mhz))
    sources = sources_of(program)
    found = Built(top, program, design, hash_files(sources), compiler_hash(), rtl_hash(design.folder))
    stamp = {
        "sources": [str(path) for path in sources],
        "source_hash": found.source_hash,
        "compiler_hash": found.compiler_hash,
        "rtl_hash": found.rtl_hash,
    }
    (folder / _STAMP).write_text(json.dumps(stamp, indent=1) + "\n")
    return found


def stamp_of(top: Top, out: Path = OUT) -> str | None:
    """An identifier of the RTL on disk; None unless it was made from the present C++ by the present compiler."""
    path = out / top.name / _STAMP
    if not path.exists():
        return None
    stamp = json.loads(path.read_text())
    current = hash_files([Path(source) for source in stamp["sources"]]), compiler_hash()
    if current != (stamp["source_hash"], stamp["compiler_hash"]):
        return None
    found: str | None = stamp.get("rtl_hash")
    return found

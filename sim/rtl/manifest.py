# SPDX-License-Identifier: Apache-2.0
"""bitstreams/<top>.json: the sources of a top, its ports, registers, loops, cycles and resources.

The file is the same on every machine: paths are relative, and there are no dates. What was found on the RTL is kept as
long as the RTL is the same: figures (`yosys`, `measured`) and the record of its regression (`verified`). Figures of the
vendor's tools (`vendor`) are kept as long as the C++ is.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from openhls.emit.report import RegionReport
from openhls.errors import OpenHlsError
from openhls.frontend.toolchain import CLANG
from rtl.build import Built, compiler_hash, hash_files, sources_of
from rtl.kernels import ROOT, Top

FOLDER = ROOT / "bitstreams"
MEASURED = ("yosys", "measured", "verified")
_PORT = re.compile(r"^  (input|output) logic (?:\[(\d+):0\] )?(\w+),?$", re.MULTILINE)

Manifest = dict[str, Any]


def path_of(top: Top) -> Path:
    return FOLDER / f"{top.name}.json"


def load(top: Top) -> Manifest | None:
    """The manifest on disk, or None."""
    path = path_of(top)
    if not path.exists():
        return None
    found: Manifest = json.loads(path.read_text())
    return found


def save(top: Top, manifest: Manifest) -> None:
    """Write the manifest. Figures come last, in a fixed order."""
    figures = {key: manifest[key] for key in (*MEASURED, "vendor") if key in manifest}
    made = {key: value for key, value in manifest.items() if key not in figures}
    FOLDER.mkdir(exist_ok=True)
    path_of(top).write_text(text_of(made | figures) + "\n")


def text_of(value: Any, indent: str = "") -> str:
    """JSON with each list or object of plain values on a line of its own."""
    members = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(value, dict | list) or (indent and not any(isinstance(item, dict | list) for item in members)):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {text_of(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + text_of(item, inner) for item in value) + f"\n{indent}]"


def is_current(manifest: Manifest) -> bool:
    """True if the manifest was made from the present C++ files by the present compiler."""
    current = hash_files([ROOT / source for source in manifest["sources"]]), compiler_hash()
    return current == (manifest["source_hash"], manifest["compiler_hash"])


def make(built: Built) -> Manifest:
    """The manifest of a build. Keeps figures of the earlier manifest that were made from the same sources."""
    top = built.top
    description = tomllib.loads(top.description.read_text())
    manifest: Manifest = {
        "top": top.name,
        "kernel": top.kernel,
        "source": _relative(top.source),
        "sources": [_relative(path) for path in sources_of(built.program)],
        "source_hash": built.source_hash,
        "compiler_hash": built.compiler_hash,
        "rtl_hash": built.rtl_hash,
        "tools": {"clang": clang_version()},
        "part": top.part,
        "clock_mhz": top.clock_mhz,
        "ports": ports_of((built.folder / f"rtl/{built.design.top}.sv").read_text()),
        "registers": _registers(built.folder / "registers.json"),
        "cycles": description["cycles"] | {"formula": top.formula},
        "slowest_ns": max(region.slowest_ns for region in built.design.regions),
        "loops": [_loop(region) for region in built.design.regions if region.interval is not None],
    }
    before = load(top) or {}
    kept = MEASURED if before.get("rtl_hash") == built.rtl_hash else ()
    kept = (*kept, "vendor") if before.get("source_hash") == built.source_hash else kept
    return manifest | {key: before[key] for key in kept if key in before}


def load_current(top: Top) -> dict[str, Any]:
    """The manifest. Raises OpenHlsError unless it was made from the present sources."""
    manifest = load(top)
    if manifest is None or not is_current(manifest):
        raise OpenHlsError(f"bitstreams/{top.name}.json is stale: run `make rtl KERNEL={top.name}`")
    return manifest


def record(top: Top, key: str, figures: Any, before: Manifest | None = None) -> None:
    """Put figures into the manifest. Raises OpenHlsError unless it was made from the present sources, and from the same
    RTL as `before`, the manifest when the work began."""
    now = load_current(top)
    if before is not None and before.get("rtl_hash") != now.get("rtl_hash"):
        raise OpenHlsError(f"{top.name} was built anew meanwhile: its figures are of the RTL before, do it again")
    save(top, now | {key: figures})


def clang_version() -> str:
    """The version of clang as `19.1.7`, without parts that do not affect the generated code."""
    text = subprocess.run([CLANG, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+\.\d+\.\d+)", text)
    return found.group(1) if found else "unknown"


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def ports_of(text: str) -> list[dict[str, Any]]:
    """Ports of a module as openhls writes it."""
    header = text[: text.index(");")]
    return [
        {"name": name, "direction": direction, "width": int(high or 0) + 1}
        for direction, high, name in _PORT.findall(header)
    ]


def _registers(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def _loop(region: RegionReport) -> dict[str, Any]:
    return {
        "process": region.process,
        "loop": region.name or region.label,
        "place": _places(region.place),
        "ii": region.interval,
        "depth": region.depth,
        "trips": list(region.trips) if region.trips else None,
        "limit": region.limit,
        "slowest_ns": region.slowest_ns,
    }


def _places(text: str) -> str:
    return text.replace(f"{ROOT.as_posix()}/", "")


def stale(tops: Iterable[Top]) -> list[str]:
    """Tops whose manifest is missing or was not made from the present sources."""
    found = []
    for top in tops:
        manifest = load(top)
        if manifest is None or not is_current(manifest):
            found.append(top.name)
    return found

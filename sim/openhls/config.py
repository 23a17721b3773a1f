# SPDX-License-Identifier: Apache-2.0
"""hls_config.cfg, the description of a component that Vitis takes: the sources, the top, the testbench, the clock."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from openhls.errors import OpenHlsError
from openhls.frontend.directives import Directive, make_directive
from openhls.frontend.interfaces import FLOWS


@dataclass(frozen=True)
class Component:
    """What is compiled: `sources` become hardware, `testbenches` only run; paths are relative to the working folder."""

    sources: tuple[Path, ...]
    top: str
    includes: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    testbenches: tuple[Path, ...] = ()
    clock_mhz: float | None = None
    flow: str = FLOWS[0]
    directives: tuple[Directive, ...] = ()


def read_config(path: Path) -> Component:
    """Raises OpenHlsError for a file that cannot be read or names no source and top."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise OpenHlsError(f"{path}: {error.strerror}") from None
    values: dict[str, list[str]] = {}
    for line in lines:
        key, equals, value = line.partition("#")[0].partition("=")
        if equals:
            values.setdefault(key.strip(), []).append(value.strip())

    def files(key: str) -> tuple[Path, ...]:
        names = (name for text in values.get(key, []) for name in re.split(r"[,\s]+", text) if name)
        found = (path.parent / name for name in names)
        return tuple(each for each in found if each.suffix in (".c", ".cc", ".cpp", ".cxx"))

    flags = [
        flag for key in ("syn.cflags", "syn.csimflags") for text in values.get(key, []) for flag in shlex.split(text)
    ]
    sources, top = files("syn.file"), values.get("syn.top", [""])[-1]
    for name in values.get("syn.blackbox.file", []):
        sources += _models(path.parent / name)
    if not sources or not top:
        raise OpenHlsError(f"{path}: write syn.file and syn.top")
    return Component(
        sources,
        top,
        (path.parent, *(path.parent / flag[2:] for flag in flags if flag.startswith("-I"))),
        tuple(flag[2:] for flag in flags if flag.startswith("-D")),
        files("tb.file"),
        _clock(values.get("clock", [""])[-1], path),
        "vitis" if values.get("flow_target", [""])[-1] == "vitis" else FLOWS[0],
        tuple(
            make_directive(key.removeprefix("syn.directive."), words[0], words[1:])
            for key, texts in values.items()
            if key.startswith("syn.directive.")
            for text in texts
            if (words := text.split())
        ),
    )


def _models(path: Path) -> tuple[Path, ...]:
    """The C++ models that a description of a black box names: they are compiled in place of its RTL."""
    try:
        found = json.loads(path.read_text())
        return tuple(path.parent / entry["c_file"] for entry in found["c_files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise OpenHlsError(f"{path}: no description of a black box with c_files") from None


def _clock(text: str, path: Path) -> float | None:
    """MHz of `4`, `4ns` or `250MHz`."""
    if not text:
        return None
    found = re.fullmatch(r"([\d.]+)\s*(ns|MHz)?", text, re.IGNORECASE)
    if found is None or float(found.group(1)) <= 0:
        raise OpenHlsError(f"{path}: clock={text}: write a period in ns, or a frequency in MHz")
    number = float(found.group(1))
    return number if (found.group(2) or "ns").lower() == "mhz" else 1000.0 / number

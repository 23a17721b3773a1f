# SPDX-License-Identifier: Apache-2.0
"""Directives: pragmas that stand beside the C++, in a hls_config.cfg or in a Tcl file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openhls.errors import OpenHlsError
from openhls.frontend.interfaces import MODES, SIMILAR

# Words of a directive that name neither a port nor a variable.
_FLAGS = frozenset(
    {
        *("register", "off", "rewind", "complete", "cyclic", "block", "region", "recursive", "both"),
        *("intra", "inter", "raw", "war", "waw", "true", "false"),
        *("skip_exit_check", "disable_start_propagation", "enable_flush"),
    }
)


@dataclass(frozen=True)
class Directive:
    """The pragma `text` (what follows `#pragma HLS`) in the scope `place`: `function` or `function/label`."""

    place: str
    text: str


def make_directive(kind: str, place: str, words: list[str]) -> Directive:
    """`words` are options, flags and the name of a port or of a variable, in any order."""
    names = [word for word in words if "=" not in word and word.lower() not in _FLAGS]
    if kind == "interface" and names and names[0] in (*MODES, *SIMILAR):
        words = [f"mode={word}" if word == names[0] else word for word in words]
        names = names[1:]
    key = "port" if kind == "interface" else "variable"
    text = " ".join(f"{key}={word}" if names and word == names[-1] else word for word in words)
    return Directive(place, f"{kind} {text}".strip())


def read_tcl(path: Path) -> tuple[Directive, ...]:
    """The set_directive_... commands of a Tcl file; other commands are left alone."""
    try:
        text = path.read_text().replace("\\\n", " ")
    except OSError as error:
        raise OpenHlsError(f"{path}: {error.strerror}") from None
    return tuple(_commands(text, path))


def _commands(text: str, path: Path) -> Iterator[Directive]:
    for line in text.splitlines():
        found = re.match(r"\s*set_directive_(\w+)\s+(.*)$", line)
        if found is None:
            continue
        try:
            words = shlex.split(found.group(2), comments=True)
        except ValueError:
            raise OpenHlsError(f"{path}: {line.strip()}: quotes that do not close") from None
        options, rest = [], []
        while words:
            word = words.pop(0)
            if not word.startswith("-"):
                rest.append(word)
            elif word[1:].lower() in _FLAGS or not words:
                options.append(word[1:])
            else:
                options.append(f"{word[1:]}={words.pop(0)}")
        if not rest:
            raise OpenHlsError(f"{path}: {line.strip()}: write the function that it is for")
        yield make_directive(found.group(1).lower(), rest[0], [*options, *rest[1:]])

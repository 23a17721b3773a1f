# SPDX-License-Identifier: Apache-2.0
"""What global variables hold once the program has begun: their constructors run, as they do in software.

LLVM's interpreter runs them and writes the bytes to a file. Hardware starts with these.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from openhls import store
from openhls.errors import OpenHlsError

LLI = "lli-19"
SECONDS = 60.0  # for all constructors together
_MARK = re.compile(r"^ +(?:tail )?call void asm sideeffect .*$", re.MULTILINE)  # of a stream or a region


def initial_values(text: str, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The contents of global variables of a module, by their names, after its constructors; `sizes` are their bytes.

    Empty where the constructors cannot run here: they need something that is not in the module. Raises OpenHlsError
    where they take too long.
    """
    program = shutil.which(LLI)
    if program is None or not sizes:
        return {}

    def make(place: Path) -> None:
        found = _run(program, text, sizes)
        contents: dict[str, str] = {}
        for name, size in sizes.items() if found else ():
            contents[name], found = found[:size].hex(), found[size:]
        (place / "contents.json").write_text(json.dumps(contents))

    key: list[str | bytes] = [Path(__file__).read_bytes(), json.dumps(dict(sizes)), text]
    kept = json.loads((store.kept("initial", key, make) / "contents.json").read_text())
    return {name: bytes.fromhex(each) for name, each in kept.items()}


def _with_main(text: str, sizes: Mapping[str, int], to: int) -> str:
    """The module with a main function that writes the variables to an open file."""
    known = re.search(r"^(?:declare|define) [^\n]*@write\(", text, re.MULTILINE)
    declared = "" if known else "declare i64 @write(i32, ptr, i64)\n"
    calls = "".join(
        f'  %size{number} = call i64 @write(i32 {to}, ptr @"{name}", i64 {size})\n'
        for number, (name, size) in enumerate(sizes.items())
    )
    return _MARK.sub("", text) + f"\n{declared}define i32 @openhls_contents() {{\n{calls}  ret i32 0\n}}\n"


def _run(program: str, text: str, sizes: Mapping[str, int]) -> bytes:
    """All contents in a row; nothing if the constructors fail. What they print themselves goes nowhere."""
    command = [program, "--entry-function=openhls_contents", "-"]
    with tempfile.TemporaryFile() as file:
        given = _with_main(text, sizes, file.fileno()).encode()
        try:
            done = subprocess.run(
                command, input=given, capture_output=True, check=False, timeout=SECONDS, pass_fds=(file.fileno(),)
            )
        except subprocess.TimeoutExpired:
            raise OpenHlsError(
                f"the constructors of global variables run for more than {SECONDS:.0f} s: give constant initial values"
            ) from None
        file.seek(0)
        found = file.read()
    return found if done.returncode == 0 and len(found) == sum(sizes.values()) else b""

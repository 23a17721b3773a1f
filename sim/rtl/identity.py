# SPDX-License-Identifier: Apache-2.0
"""What makes two emitted designs the same hardware: everything but comments, messages and names.

Names that openhls makes from the C++ are numbered: modules in the order in which the top reaches them, ports, nets and
instances in the order of a module's text. So a C++ name can change and the figures of a build stay. Names that the
outside knows count: the top, its ports, and all of the library.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterator
from pathlib import Path

from openhls.names import KEYWORDS

LIBRARY = "openhls_"
# A sized number, a string, a name after . or $, or a plain name; the rest is kept.
_TOKEN = re.compile(r"""'[sS]?[bodhBODH][\w?]+|"[^"]*"|([.$]?)\b([A-Za-z_]\w*)|.""", re.DOTALL)


def rtl_hash(folder: Path) -> str:
    """One hash over the SystemVerilog of a top in `folder`/rtl and its library."""
    texts = {path.stem: _code(path.read_text()) for path in sorted((folder / "rtl").glob("*.sv"))}
    total = hashlib.sha256()
    for text in canonical(texts):
        total.update(hashlib.sha256(text.encode()).digest())
    return total.hexdigest()


def canonical(texts: dict[str, str]) -> Iterator[str]:
    """The modules with numbers instead of names, the top first, then the library as it is. `texts`: by module, without
    comments. Raises ValueError unless exactly one module of the design is instantiated by no other."""
    own = {name: text for name, text in texts.items() if not name.startswith(LIBRARY)}
    inside = {
        name: [word for word in re.findall(r"\w+", text) if word in own and word != name] for name, text in own.items()
    }
    (top,) = own.keys() - {name for names in inside.values() for name in names}
    order = [top]
    for module in order:
        order += [name for name in dict.fromkeys(inside[module]) if name not in order]
    modules = {name: f"module_{number}" for number, name in enumerate(order)} | {top: top}
    names = {name: _names(own[name], texts.keys()) for name in order}
    ports = set(re.findall(r"^\s*(?:input|output|inout)\b.*?(\w+),?$", own[top], re.MULTILINE))
    names[top] |= {port: port for port in ports}
    for module in order:
        yield _renamed(own[module], names[module], names, modules)
    for name in sorted(texts.keys() - own.keys()):
        yield texts[name]


def _code(text: str) -> str:
    """A module without comments, messages and blank lines."""
    code = re.sub(r"//.*|/\*.*?\*/|\$fatal.*", "", text)
    return "\n".join(line.rstrip() for line in code.splitlines() if line.strip())


def _names(text: str, modules: Container[str]) -> dict[str, str]:
    """Numbers for the names that a module declares or uses, but for those of modules and of other modules' ports."""
    found = (name for before, name in _TOKEN.findall(text) if name and not before)
    mine = (name for name in found if name not in KEYWORDS and name not in modules)
    return {name: f"name_{number}" for number, name in enumerate(dict.fromkeys(mine))}


def _renamed(text: str, mine: dict[str, str], names: dict[str, dict[str, str]], modules: dict[str, str]) -> str:
    """A module's text under the numbers. A name after a dot is a port of the module that is instantiated there."""
    instantiated = ""

    def number(token: re.Match[str]) -> str:
        nonlocal instantiated
        before, name = token.group(1), token.group(2)
        if not name or before == "$":
            return token.group()
        if before:
            return f".{names.get(instantiated, {}).get(name, name)}"
        if name in modules or name.startswith(LIBRARY):
            instantiated = name
        return modules.get(name) or mine.get(name, name)

    return _TOKEN.sub(number, text)

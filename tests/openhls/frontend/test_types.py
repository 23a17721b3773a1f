# SPDX-License-Identifier: Apache-2.0
"""Sizes and offsets of types in memory are those of g++."""

import subprocess
from pathlib import Path

import pytest

from openhls.frontend.types import Array, Int, Struct

CHAR, SHORT, INT, LONG = (Int(width) for width in (8, 16, 32, 64))
INNER = Struct((INT, CHAR))
STRUCTS = {
    "struct S { char a; int b; };": Struct((CHAR, INT)),
    "struct S { int a; char b; };": INNER,
    "struct S { long a; char b; short c; };": Struct((LONG, CHAR, SHORT)),
    "struct S { char a; struct { int x; char y; } b[3]; char c; };": Struct((CHAR, Array(3, INNER), CHAR)),
    "struct __attribute__((packed)) S { char a; int b; short c; };": Struct((CHAR, INT, SHORT), packed=True),
}


@pytest.fixture(scope="session")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """The offset of each field of each struct, then its size, as g++ has them."""
    source: Path = tmp_path_factory.mktemp("types") / "layouts.cpp"
    lines = ["#include <cstddef>", "#include <cstdio>"]
    for number, (text, of) in enumerate(STRUCTS.items()):
        lines.append(f"namespace n{number} {{ {text} }}")
        fields = [f"offsetof(n{number}::S, {'abc'[field]})" for field in range(len(of.fields))]
        numbers = ", ".join([*fields, f"sizeof(n{number}::S)"])
        lines.append(f"static const std::size_t layout{number}[] = {{{numbers}}};")
    prints = [f'for (auto x : layout{number}) std::printf("%zu ", x); std::puts("");' for number in range(len(STRUCTS))]
    source.write_text("\n".join([*lines, "int main() {", *prints, "}"]))
    subprocess.run(["g++", "-o", source.with_suffix(""), source], check=True)
    said = subprocess.run([source.with_suffix("")], capture_output=True, text=True, check=True).stdout
    return {text: [int(word) for word in line.split()] for text, line in zip(STRUCTS, said.splitlines(), strict=True)}


@pytest.mark.parametrize("text", STRUCTS)
def test_a_struct_lies_in_memory_as_with_gxx(text: str, layouts: dict[str, list[int]]) -> None:
    assert STRUCTS[text].offsets() == layouts[text]
    assert STRUCTS[text].size == layouts[text][-1]

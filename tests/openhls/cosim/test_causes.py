# SPDX-License-Identifier: Apache-2.0
"""What the C++ never writes has two known contents, whatever the stack held before."""

import subprocess
from pathlib import Path

import pytest

from openhls.cosim.causes import FILLS

# A constructor begins the life of its object: without a flag, g++ drops what was written there before.
SOURCE = """#include <cstdio>
#include <cstring>
struct Field { unsigned char v; Field() {} Field(int x) : v(x) {} };
struct Word { Field data, keep, strb, last; Word() {} };
__attribute__((noinline)) void dirty() {
  volatile unsigned char stack[256];
  for (int i = 0; i < 256; i++) stack[i] = 0x5A;
}
__attribute__((noinline)) void top(unsigned char* out) {
  Word word;
  word.data = Field(1);
  word.last = Field(2);
  memcpy(out, &word, 4);
}
int main() {
  unsigned char out[4];
  dirty();
  top(out);
  printf("%02x %02x %02x %02x", out[0], out[1], out[2], out[3]);
}
"""


@pytest.mark.parametrize(("flags", "said"), zip(FILLS, ("01 00 00 02", "01 fe fe 02"), strict=True))
@pytest.mark.parametrize("optimise", ["-O0", "-O1"])
def test_fields_of_a_class_with_a_constructor_are_filled(
    tmp_path: Path, flags: tuple[str, ...], said: str, optimise: str
) -> None:
    (tmp_path / "word.cpp").write_text(SOURCE)
    subprocess.run(["g++", optimise, "-w", *flags, "word.cpp", "-o", "word"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "word"], capture_output=True, text=True, check=True).stdout == said

# SPDX-License-Identifier: Apache-2.0
"""The same C++ gives the same program and the same RTL, whatever order Python's sets have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# 3022: a loop hands on several values of one name. 2000009: pointers to three arrays, in an array and swapped.
COMPILE_ALL = """
import sys
from pathlib import Path
from openhls.pipeline import write_design
from openhls.pipeline import compile_program
from openhls.fuzz.generate import random_program, top_name
from openhls.printer import print_program

def compiled(source, top, includes=()):
    program = compile_program(source, top, includes)
    print(print_program(program))
    for file in write_design(program, top, out / top).files:
        print(file.read_text())

out = Path(sys.argv[1])
if sys.argv[2] == "kernel":
    compiled(Path("hls/page_filter/page_filter.cpp"), "page_filter", (Path("hls"),))
else:
    for seed in (3022, 1, 2000009):
        source = out / f"{seed}.cpp"
        source.write_text(random_program(seed))
        compiled(source, top_name(seed))
"""


def everything(seed: str, what: str, out: Path) -> list[str]:
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": "sim"}
    command = [sys.executable, "-c", COMPILE_ALL, str(out), what]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("what", ["random", pytest.param("kernel", marks=pytest.mark.slow)])
def test_hash_seeds_change_neither_program_nor_rtl(what: str, tmp_path: Path) -> None:
    first = everything("0", what, tmp_path)
    assert sum(line.startswith("endmodule") for line in first) > 5
    assert everything("22", what, tmp_path) == first

# SPDX-License-Identifier: Apache-2.0
"""Global variables have the values that their constructors compute, and LLVM's interpreter runs these once."""

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from openhls.frontend import initial
from openhls.ir import Program
from openhls.pipeline import compile_program

HEAD = "#include <ap_fixed.h>\n#include <ap_int.h>\n#include <hls_stream.h>\nusing Words = hls::stream<int>;\n"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENHLS_CACHE", str(tmp_path / "store"))


def compiled(text: str, folder: Path) -> Program:
    source = folder / "program.cpp"
    source.write_text(HEAD + text)
    return compile_program(source, "top")


def table(program: Program) -> tuple[int, ...]:
    """The only constant table."""
    (found,) = (array.initial for each in program.processes.values() for array in each.arrays if array.initial)
    return found


def test_a_function_computes_a_table(tmp_path: Path) -> None:
    text = (
        "static int power(int x) {\n  int y = 1;\n  for (int i = 0; i < x; i++) y *= 3;\n  return y;\n}\n"
        "static int table[5] = {power(1), power(2), power(7), -power(3), 0};\n"
        "void top(Words& out, unsigned n) {\n  out.write(table[n % 5]);\n}\n"
    )
    assert table(compiled(text, tmp_path)) == (3, 9, 3**7, (-27) % (1 << 32), 0)


def test_a_table_of_fixed_point_has_fractions(tmp_path: Path) -> None:
    text = (
        "static ap_fixed<16, 8> table[4] = {0.5, 1.25, -2, 3.999};\n"
        "void top(hls::stream<ap_fixed<16, 8>>& out, unsigned n) {\n  out.write(table[n % 4]);\n}\n"
    )
    assert table(compiled(text, tmp_path)) == (128, 320, -512 % (1 << 16), 1023)


def test_variables_that_change_begin_with_what_is_computed(tmp_path: Path) -> None:
    text = (
        "ap_uint<8> mask = ~ap_uint<8>(0x0f);\nstatic int count = 4;\nint next() { return count++; }\n"
        "int other = next();\nvoid top(Words& out, int n) {\n  out.write(mask + count * other);\n"
        "  mask += n;\n  count += n;\n  other -= n;\n}\n"
    )
    assert {state.name: state.initial for state in compiled(text, tmp_path).states} == {
        "mask": (0xF0,),
        "count": (5,),
        "other": (4,),
    }


def test_constructors_without_an_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "SECONDS", 0.5)
    text = (
        "volatile int forever = 1;\nint f() {\n  while (forever) {\n  }\n  return 3;\n}\nstatic int x = f();\n"
        "void top(Words& out) {\n  out.write(x);\n  x++;\n}\n"
    )
    with pytest.raises(OpenHlsError, match="constructors of global variables run for more than"):
        compiled(text, tmp_path)


def test_constructors_run_once_for_the_same_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = initial._run
    monkeypatch.setattr(initial, "_run", lambda *given: runs.append(1) or run(*given))
    text = "int f() { return 3; }\nstatic int x = f();\nvoid top(Words& out) {\n  out.write(x);\n  x++;\n}\n"
    for _ in range(2):
        assert compiled(text, tmp_path).states[0].initial == (3,)
    assert len(runs) == 1

# SPDX-License-Identifier: Apache-2.0
"""Wrong C++ is one sentence with a line of the user; what the command line lacks is named."""

from pathlib import Path

import pytest

from openhls.cli import main
from openhls.errors import OpenHlsError, Unsupported
from openhls.frontend.diagnostics import WrongCpp, switches
from openhls.pipeline import compile_program

HEAD = "#include <ap_int.h>\n#include <hls_stream.h>\n"
WRONG = {
    "a macro": (
        "int top(int a) {\n  return a + WIDTH_OF_IT;\n}\n",
        4,
        "if it is a macro of the build, give it: -D WIDTH_OF_IT=",
    ),
    "a variable": ("int top(int a) {\n  return a + width;\n}\n", 4, "undeclared identifier 'width'; --verbose"),
    "an own header": ('#include "mine.h"\nint top(int a) { return a; }\n', 3, "give its folder: -I PATH"),
    "a header of the vendor": (
        '#include "hls_fft.h"\nint top(int a) { return a; }\n',
        3,
        "openhls has not got the vendor's FFT",
    ),
    "in a header of openhls": (
        "int top(ap_int<3> a) {\n  return a.xor_reduce();\n}\n",
        4,
        "software builds get xor_reduce of an ap_int wrong; write ap_uint<W>(x).xor_reduce()",
    ),
    "several": ("int top(int a) {\n  return one + two;\n}\n", 4, "(the first of 2 errors)"),
}


def refused(folder: Path, text: str, *defines: str, flow: str = "vivado") -> OpenHlsError:
    source = folder / "program.cpp"
    source.write_text(HEAD + text)
    with pytest.raises(OpenHlsError) as caught:
        compile_program(source, "top", defines=defines, flow=flow)
    return caught.value


@pytest.mark.parametrize("name", WRONG)
def test_wrong_cpp_is_one_sentence_with_the_users_line(name: str, tmp_path: Path) -> None:
    text, line, words = WRONG[name]
    error = refused(tmp_path, text)
    assert isinstance(error, WrongCpp)
    assert str(error).startswith(f"{tmp_path}/program.cpp:{line}: ")
    assert "\n" not in str(error)
    assert words in str(error)
    assert "error: " in error.details


def test_the_place_of_a_template_is_where_the_user_asked_for_it(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("template <typename T>\nint twice(T a) {\n  return a.missing() * 2;\n}\n")
    error = refused(tmp_path, '#include "own.h"\nint top(int a) {\n  return twice(a);\n}\n')
    assert str(error).startswith(f"{tmp_path}/own.h:3: ")


def test_verbose_prints_all_that_clang_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "program.cpp"
    source.write_text("int top(int a) {\n  return a + b;\n}\n")
    command = ["build", str(source), "--top", "top", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"openhls: {source}:2: use of undeclared identifier 'b'; ")
    assert main([*command, "--verbose"]) == 2
    first, *others = capsys.readouterr().err.splitlines()
    assert first == line
    assert any("1 error generated" in other for other in others)


def test_a_pointer_without_an_interface_is_told_of_the_flow_that_gives_it_one(tmp_path: Path) -> None:
    text = "void top(int* a, int n) {\n  for (int i = 0; i < n; i++) a[i] += 1;\n}\n"
    assert "compile a kernel of Vitis with --flow vitis" in str(refused(tmp_path, text))
    compile_program(tmp_path / "program.cpp", "top", flow="vitis")


SWITCHED = """#ifndef OWN_SYNTHESIS
#define LENGTH software_length()
#else
#define LENGTH 4
#endif
int software_length();
int top(int a) {
  return a + LENGTH;
}
"""


def test_a_macro_that_tells_hardware_from_software_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path, SWITCHED)
    assert isinstance(error, Unsupported)
    assert str(error).endswith(
        "if the build of this source defines OWN_SYNTHESIS, define it here, too: -D OWN_SYNTHESIS"
    )
    compile_program(tmp_path / "program.cpp", "top", defines=("OWN_SYNTHESIS",))
    assert "-D OWN_SYNTHESIS" in str(refused(tmp_path, SWITCHED.replace("a + LENGTH", "b + LENGTH")))
    assert "OWN_SYNTHESIS" not in str(refused(tmp_path, SWITCHED.replace("a + LENGTH", "b"), "OWN_SYNTHESIS=1"))


def test_macros_that_are_defined_or_guard_a_header_are_no_switches(tmp_path: Path) -> None:
    path = tmp_path / "own.h"
    path.write_text(
        "#ifndef OWN_SYNTHESIS_H\n#define OWN_SYNTHESIS_H\n#if defined(A_SYNTHESIS) || B_SYNTHESIS\n#endif\n#endif\n"
    )
    assert switches([path], ()) == ["A_SYNTHESIS", "B_SYNTHESIS"]
    assert switches([path], ("B_SYNTHESIS=1",)) == ["A_SYNTHESIS"]


THROWING = """#include <sstream>
#include <stdexcept>
static void check(int n) {
  if (n < 0) {
    std::stringstream text;
    text << n;
    throw std::runtime_error(text.str());
  }
}
"""


def test_code_that_throws_and_is_no_hardware_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(THROWING + "void retry() {\n  throw;\n}\nint top(int a) {\n  return a + 1;\n}\n")
    assert len(compile_program(source, "top").processes) == 1


def test_an_exception_in_hardware_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text("int top(int a) {\n  if (a < 0) throw a;\n  return a + 1;\n}\n")
    with pytest.raises(Unsupported, match=r"program.cpp:2: an exception, or a trap, in what becomes hardware; let the"):
        compile_program(source, "top")

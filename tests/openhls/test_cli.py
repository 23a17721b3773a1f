# SPDX-License-Identifier: Apache-2.0
"""The commands: several files, macros, descriptions of Vitis, testbenches, and what they return."""

import json
from pathlib import Path

import pytest

from openhls import cli, config
from openhls.cosim import ap_headers
from openhls.cosim.simulate import ToolError
from openhls.emit.netlist import NetlistError
from openhls.errors import OpenHlsError

HELPER = "int helper(int x) { return x * FACTOR; }\n"
TOP = """#include <hls_stream.h>
int helper(int x);
void top(hls::stream<int>& in, hls::stream<int>& out, int n) {
#pragma HLS LATENCY max = 3
  for (int i = 0; i < n; ++i)
#pragma HLS PIPELINE II = 1
    out.write(helper(in.read()));
}
"""
BENCH = """#include <hls_stream.h>
void top(hls::stream<int>& in, hls::stream<int>& out, int n);
int main() {
  hls::stream<int> in, out;
  for (int i = 0; i < 5; ++i) in.write(i);
  top(in, out, 5);
  int sum = 0;
  for (int i = 0; i < 5; ++i) sum += out.read();
  return sum == 10 * FACTOR ? 0 : 4;
}
"""


@pytest.fixture
def component(tmp_path: Path) -> Path:
    """Two sources, a testbench and the description of both."""
    for name, text in (("helper.cpp", HELPER), ("top.cpp", TOP), ("bench.cpp", BENCH)):
        (tmp_path / name).write_text(text)
    described = tmp_path / "hls_config.cfg"
    described.write_text(
        "part=xcvu9p\n\n[hls]\nclock=5ns  # period\nsyn.file=helper.cpp\nsyn.file=top.cpp\nsyn.top=top\n"
        "syn.cflags=-DFACTOR=7 -I./include\ntb.file=bench.cpp,data.txt\n"
    )
    return described


def test_a_description_of_vitis_says_what_to_compile(component: Path) -> None:
    found = config.read_config(component)
    folder = component.parent
    assert found.sources == (folder / "helper.cpp", folder / "top.cpp")
    assert (found.top, found.defines, found.clock_mhz) == ("top", ("FACTOR=7",), 200.0)
    assert found.includes == (folder, folder / "include")
    assert found.testbenches == (folder / "bench.cpp",)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[hls]\nsyn.top=top\n", "write syn.file and syn.top"), ("syn.file=a.cpp\nsyn.top=f\nclock=fast\n", "clock=fast")],
)
def test_a_description_that_says_too_little_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "hls_config.cfg").write_text(text)
    with pytest.raises(OpenHlsError, match=words):
        config.read_config(tmp_path / "hls_config.cfg")


def test_several_files_are_one_program_and_warnings_name_lines(
    component: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["build", "--config", str(component), "--out", str(out), "--json"]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert report["clock_mhz"] == 200.0
    assert [region["interval"] for region in report["regions"] if region["wish"]] == [1]
    assert f"{tmp_path / 'top.cpp'}:4: warning: the pragma LATENCY has no effect" in said.err
    assert cli.main(["report", str(out)]) == 0
    assert "longest path" in capsys.readouterr().out
    files = [str(tmp_path / name) for name in ("helper.cpp", "top.cpp")]
    assert cli.main(["build", *files, "--top", "top", "-DFACTOR=7", "--out", str(out), "--verify"]) == 0
    assert cli.main(["build", "--config", str(component), "--out", str(out), "--strict"]) == cli.REFUSED
    assert "top.cpp:4: the pragma LATENCY has no effect; leave it out" in capsys.readouterr().err


def test_a_testbench_runs_as_software_and_gives_its_status(component: Path) -> None:
    try:
        ap_headers()
    except ToolError as error:
        pytest.skip(str(error))
    assert cli.main(["csim", "--config", str(component)]) == 0
    bench = component.parent / "bench.cpp"
    bench.write_text(BENCH.replace("10 * FACTOR", "11 * FACTOR"))
    assert cli.main(["csim", "--config", str(component)]) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "--out", "x"], "name a C++ file"),
        (["build", "missing.cpp", "--top", "f", "--out", "x"], "missing.cpp: no such file"),
        (["report", "nowhere"], "run `openhls build --out nowhere`"),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == cli.REFUSED
    assert words in capsys.readouterr().err


def test_a_fault_of_the_compiler_is_not_blamed_on_the_source(
    component: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise NetlistError("net x has two drivers")

    monkeypatch.setattr(cli, "write_design", fails)
    assert cli.main(["build", "--config", str(component), "--out", str(tmp_path / "out")]) == cli.FAULT
    assert "a fault of openhls, not of the C++ (NetlistError: net x has two drivers)" in capsys.readouterr().err


def test_a_new_project_builds_and_its_testbench_passes(tools: None, tmp_path: Path, capfd) -> None:
    folder = tmp_path / "gain"
    assert cli.main(["new", str(folder)]) == 0
    described = ["--config", str(folder / "hls_config.cfg")]
    assert sorted(path.name for path in folder.iterdir()) == ["gain.cpp", "gain.hpp", "gain_tb.cpp", "hls_config.cfg"]
    assert cli.main(["csim", *described]) == 0
    assert cli.main(["cosim", *described, "--strict", "--stalls", "--out", str(tmp_path / "rtl"), "--json"]) == 0
    report = json.loads(capfd.readouterr().out.partition("{")[2].join(("{", "")))
    assert (report["top"], report["status"], report["calls"], report["warnings"]) == ("gain", 0, 4, [])
    assert {region["interval"] for region in report["regions"] if region["interval"] is not None} == {1}


@pytest.mark.parametrize("name", ["int", "always", "2nd", "a-b", "load", "a__b", ""])
def test_a_new_project_needs_a_name_that_all_languages_take(name: str, tmp_path: Path, capsys) -> None:
    assert cli.main(["new", str(tmp_path / "made" / name) if name else "/"]) == cli.REFUSED
    assert "is no name for a kernel" in capsys.readouterr().err


def test_a_new_project_writes_over_nothing(tmp_path: Path, capsys) -> None:
    assert cli.main(["new", str(tmp_path / "gain")]) == 0
    assert cli.main(["new", str(tmp_path / "gain")]) == cli.REFUSED
    assert "is there already: take another name" in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
"""The table of intervals that a kernel states is complete and met, or there is an error that names the loop."""

from pathlib import Path

import pytest

from openhls.cli import main
from openhls.emit.design import Design
from openhls.emit.expect import Unexpected, read_expectation
from openhls.errors import OpenHlsError
from openhls.pipeline import compile_program, write_design
from openhls.schedule.target import target_of

SOURCE = Path(__file__).parents[1] / "programs/histogram.cpp"
HLS = Path(__file__).parents[3] / "hls"
# The last counts of two memories limit the loop: only one of them is handed on past its memory.
TWO = "    bins[bin] = bins[bin] + 1;\n    rows[bin / 4] = rows[bin / 4] + bin;\n"
MET = "[kernel]\nclock_mhz = 200\n[loops]\nclear = 1\ncount = 2\nsend = 1\n"


def build(tmp_path: Path, text: str, source: Path = SOURCE) -> Design:
    path = tmp_path / "kernel.toml"
    path.write_text(text)
    expected = read_expectation(path)
    program = compile_program(source, "histogram")
    return write_design(program, "histogram", tmp_path / "out", target_of(expected.clock_mhz), expected)


def test_intervals_that_are_met_pass(tmp_path: Path) -> None:
    assert build(tmp_path, MET).target.clock_mhz == 200.0


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """The histogram with a second memory, whose loop takes two cycles an iteration."""
    text = SOURCE.read_text()
    assert "    bins[bin] = bins[bin] + 1;\n" in text
    text = text.replace("    bins[bin] = bins[bin] + 1;\n", TWO)
    text = text.replace("bins[16];\n", "bins[16];\n  static ap_uint<12> rows[4];\n", 1)
    source = tmp_path / "wishes.cpp"
    source.write_text(text)
    return source


def test_an_interval_that_is_too_long_names_loop_line_and_limit(slow: Path, tmp_path: Path) -> None:
    with pytest.raises(Unexpected, match=r"wishes.cpp:15: loop count .* has II 2, not 1: RAW on array (bins|rows)"):
        build(tmp_path, MET.replace("count = 2", "count = 1"), slow)
    assert not (tmp_path / "out").exists()


def test_a_loop_that_is_not_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unexpected, match=r"histogram.cpp:20: loop send of histogram is pipelined, but .* no II for it"):
        build(tmp_path, MET.replace("send = 1\n", ""))


def test_a_label_without_a_loop_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unexpected, match="no loop is called sends"):
        build(tmp_path, MET + "sends = 1\n")


@pytest.mark.parametrize("text", ["loops = 3", "[loops]\nclear = 0", "[loops]\nclear = true", "[loops", ""])
def test_other_tables_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(OpenHlsError, match=r"kernel.toml"):
        build(tmp_path, text)


def test_a_pragma_that_is_not_met_is_loud_but_no_error(
    slow: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "#pragma HLS PIPELINE\n" in slow.read_text()  # asks for II = 1
    assert main(["build", str(slow), "--top", "histogram", "--out", str(tmp_path / "out")]) == 0
    assert "MISSED" in capsys.readouterr().out
    (tmp_path / "kernel.toml").write_text(MET.replace("count = 2", "count = 1"))
    arguments = ["build", str(slow), "--top", "histogram", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--expect", str(tmp_path / "kernel.toml")]) == 2
    assert "loop count of histogram has II 2, not 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kernel", "top"),
    [
        ("page_filter", "page_filter"),
        ("softmax", "softmax"),
        pytest.param("gemv", "gemv_g4", marks=pytest.mark.slow),  # gemv_g1 is built and simulated in tests/tb
    ],
)
def test_the_kernels_have_the_intervals_they_state(kernel: str, top: str, tmp_path: Path) -> None:
    source = HLS / kernel / f"{kernel}.cpp"
    expected = read_expectation(HLS / kernel / "kernel.toml")
    write_design(compile_program(source, top, (HLS,)), top, tmp_path, target_of(expected.clock_mhz), expected)

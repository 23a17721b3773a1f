# SPDX-License-Identifier: Apache-2.0
"""One program for several platforms: the same results, with each platform's multipliers, memories and clock."""

import re
from pathlib import Path

import pytest

from openhls.cli import main
from openhls.cosim import cosimulate, parse_choice
from openhls.emit.design import Design
from openhls.errors import OpenHlsError
from openhls.pipeline import compile_program, write_design
from openhls.schedule.target import platform_names, target_of

SOURCE = """#include <ap_int.h>
#include <hls_stream.h>
void top(hls::stream<ap_int<24>>& in, hls::stream<ap_int<42>>& out, int n) {
  ap_int<24> words[64];
#pragma HLS BIND_STORAGE variable = words type = ram_s2p impl = uram
  for (int i = 0; i < n; i++) {
#pragma HLS PIPELINE II = 1
    words[i] = in.read();
  }
  for (int i = 0; i < n; i++) {
#pragma HLS PIPELINE II = 1
    out.write(words[i] * ap_int<18>(words[n - 1 - i]));
  }
}
"""


def built(tmp_path: Path, platform: str) -> Design:
    source = tmp_path / "top.cpp"
    source.write_text(SOURCE)
    return write_design(compile_program(source, "top"), "top", tmp_path / platform, target_of(platform=platform))


def process_text(design: Design) -> str:
    return next(path for path in design.files if path.stem == "top_process").read_text()


@pytest.mark.parametrize("platform", ["ecp5-85", "ultrascale-plus"])
def test_the_results_are_those_of_gpp(platform: str, tmp_path: Path) -> None:
    design = built(tmp_path, platform)
    choices = dict([parse_choice("n=0:64")])
    found = cosimulate(design, tmp_path / "top.cpp", "top", cases=6, seed=1, choices=choices)
    assert found.problem == ""
    assert found.free.words > 100


def test_registers_lie_around_or_behind_a_product(tmp_path: Path) -> None:
    texts = {platform: process_text(built(tmp_path, platform)) for platform in ("ecp5-85", "ultrascale-plus")}
    factor, stage = r"\$signed\((\w+)\) \* \$signed\((\w+)\)", r"^ +\w+_stage(\d+) <= "
    operands = {platform: re.search(factor, text).groups() for platform, text in texts.items()}
    for name in operands["ecp5-85"]:
        assert "_of" in name
        assert re.search(rf"^ +{name} <= ", texts["ecp5-85"], re.MULTILINE)
    assert not any("_of" in name for name in operands["ultrascale-plus"])
    behind = {platform: re.findall(stage, text, re.MULTILINE) for platform, text in texts.items()}
    # Five steps for four multipliers of 18 x 18 bits, the first before them; three for two of 27 x 18 bits.
    assert behind == {"ecp5-85": ["1", "2", "3", "4"], "ultrascale-plus": ["1", "2", "3"]}


def test_ultra_ram_is_asked_for_where_there_is_some(tmp_path: Path) -> None:
    for platform in platform_names():
        style = re.search(r'RAM_STYLE\("(\w+)"\)', process_text(built(tmp_path, platform))).group(1)
        assert style == ("ultra" if platform == "ultrascale-plus" else "block")


def test_a_slower_device_takes_more_steps_at_the_same_clock(tmp_path: Path) -> None:
    source = tmp_path / "top.cpp"
    source.write_text(SOURCE)
    depths = []
    for platform in ("ultrascale-plus", "ecp5-85"):
        design = write_design(compile_program(source, "top"), "top", tmp_path / platform, target_of(150.0, platform))
        assert all(region.met for region in design.regions)
        depths.append(sum(region.depth for region in design.regions))
    assert depths[0] < depths[1]


def test_a_deep_memory_has_a_multiplexer_behind_its_blocks() -> None:
    ecp5, default = (target_of(platform=name).delays for name in ("ecp5-85", "ultrascale-plus"))
    assert ecp5.memory(1024) == ecp5.ram_data
    assert ecp5.memory(32768) == ecp5.ram_data + ecp5.logic(32 + 5)
    assert default.memory(1 << 20) == default.ram_data


def test_the_command_knows_platforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "top.cpp").write_text(SOURCE)
    source = str(tmp_path / "top.cpp")
    out = str(tmp_path / "out")
    assert main(["build", source, "--top", "top", "--out", out, "--platform", "ecp5-85"]) == 0
    assert capsys.readouterr().out.startswith("Clock 75 MHz")
    with pytest.raises(OpenHlsError, match="no platform is called ecp6: choose one of ecp5-85, "):
        target_of(platform="ecp6")

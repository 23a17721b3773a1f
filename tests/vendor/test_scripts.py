# SPDX-License-Identifier: Apache-2.0
"""The scripts that are written for the vendor's tools."""

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from rtl.kernels import ROOT, find_tops
from vendor.hls import HlsJob, config_text, tcl_text
from vendor.link import block_design, link_config
from vendor.platforms import PLATFORMS

FOLDER = Path("/jobs/x")


def job(top: str, platform: str) -> HlsJob:
    return HlsJob(find_tops(top)[0], PLATFORMS[platform], FOLDER, FOLDER / "cases.bin")


def text(expected: str) -> str:
    """A multi-line expectation with the project's folder in it."""
    return expected.replace("ROOT", str(ROOT)).lstrip("\n")


def test_configuration_of_a_vitis_kernel() -> None:
    assert config_text(job("argtopk", "smartssd")) == text("""
part=xcku15p-ffva1156-2LV-e

[hls]
clock=3.333ns
flow_target=vitis
syn.top=argtopk
syn.file=ROOT/hls/argtopk/argtopk.cpp
syn.cflags=-std=c++17 -IROOT/hls
tb.file=ROOT/hls/argtopk/argtopk_tb.cpp
tb.cflags=-std=c++17 -IROOT/hls
cosim.argv=/jobs/x/cases.bin
package.output.format=xo
package.output.file=/jobs/x/argtopk.xo
""")


def test_tcl_of_an_ip_for_vivado() -> None:
    assert tcl_text(job("gemv_g4", "zu17eg"), "export") == text("""
open_project -reset gemv_g4
set_top gemv_g4
add_files ROOT/hls/gemv/gemv.cpp -cflags {-std=c++17 -IROOT/hls}
add_files -tb ROOT/hls/gemv/gemv_tb.cpp -cflags {-std=c++17 -IROOT/hls}
open_solution -reset -flow_target vivado solution
set_part xczu17eg-ffvc1760-2-e
create_clock -period 3.509 -name default
csynth_design
export_design -format ip_catalog -output /jobs/x/gemv_g4.zip
exit
""")


def test_cosim_hands_the_cases_to_the_testbench() -> None:
    script = tcl_text(job("page_filter", "smartssd"), "cosim")
    assert script.endswith("csynth_design\ncosim_design -argv {/jobs/x/cases.bin}\nexit\n")


def test_a_testbench_that_calls_several_tops_gets_their_sources() -> None:
    script = tcl_text(job("attention_g2", "smartssd"), "synth")
    assert f"add_files {ROOT}/hls/attention/attention_g2.cpp" in script
    bench = [line.split()[2].rsplit("/", 1)[1] for line in script.splitlines() if line.startswith("add_files -tb")]
    assert bench == [
        "attention_tb.cpp",
        *(f"attention_{g}.cpp" for g in ("g1", "g4", "g5", "g8", "exact_g1", "exact_g4", "exact_g5")),
    ]


@pytest.mark.parametrize(("unified", "clock"), [(False, "kernel_frequency=300"), (True, "freqhz=300000000")])
def test_link_puts_every_memory_port_on_the_bank(unified: bool, clock: str) -> None:
    assert link_config(job("attention_g4", "smartssd"), unified) == text(f"""
platform=xilinx_u2_gen3x4_xdma_gc_2_202110_1
{clock}
save-temps=1

[connectivity]
nk=attention_g4:1:attention_g4_1
sp=attention_g4_1.kv:bank0
sp=attention_g4_1.io:bank0
sp=attention_g4_1.out:bank0
""")


def test_block_design_connects_registers_and_masters() -> None:
    script = block_design(job("argtopk", "zu17eg"), "/board/ps.tcl")
    lines = script.splitlines()
    assert lines[0] == "create_project -force argtopk vivado -part xczu17eg-ffvc1760-2-e"
    assert lines.index("source /board/ps.tcl") < next(i for i, line in enumerate(lines) if "PL0_REF_CTRL" in line)
    ports = next(line for line in lines if "S_AXI_GP" in line)
    assert all(f"CONFIG.PSU__USE__S_AXI_GP{n} 1" in ports for n in (2, 3, 4))  # keys, indices, bitmap
    assert "S_AXI_GP5" not in ports
    assert "FREQMHZ 285]" in ports
    assert "connect /ps/M_AXI_HPM0_FPD /kernel/s_axi_control" in lines
    assert "  connect $master /ps/S_AXI_HP${port}_FPD" in lines
    assert script.count("{") == script.count("}")
    assert script.count("[") == script.count("]")


def test_what_cannot_be_linked_is_refused() -> None:
    with pytest.raises(OpenHlsError, match="page_filter has stream ports"):
        link_config(job("page_filter", "smartssd"), True)
    with pytest.raises(OpenHlsError, match="PS_PRESET is not set"):
        block_design(job("argtopk", "zu17eg"), "")

# SPDX-License-Identifier: Apache-2.0
"""The scripts that are written for the vendor's tools."""

import re
from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from rtl.kernels import ROOT, find_tops
from vendor.hls import HlsJob, config_text, tcl_text
from vendor.link import block_design, link_config, memory_ports, steps_text, units_of
from vendor.platforms import PLATFORMS
from xrt import axlf

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
syn.cflags=-std=c++14 -IROOT/hls
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
add_files ROOT/hls/gemv/gemv.cpp -cflags {-std=c++14 -IROOT/hls}
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


def parse(config: str) -> dict[str, list[tuple[str, str]]]:
    """The vendor's configuration format: sections with lines of key=value, in which keys repeat. Raises ValueError."""
    sections: dict[str, list[tuple[str, str]]] = {"": []}
    section = ""
    for line in config.splitlines():
        bare = line.split("#")[0].strip()
        if re.fullmatch(r"\[[a-z_]+\]", bare):
            section = bare[1:-1]
            sections[section] = []
        elif bare:
            key, equals, value = bare.partition("=")
            if not equals or not re.fullmatch(r"[a-z_.-]+", key) or not value:
                raise ValueError(f"no key=value: {line}")
            sections[section].append((key, value))
    return sections


BANKS = {"smartssd": r"bank0", "u50": r"HBM\[0:15\]", "zcu104": r"HP0"}


@pytest.mark.parametrize("platform", BANKS)
@pytest.mark.parametrize("top", ["attention_exact_g1", "attention_g1", "attention_g8", "argtopk"])
def test_link_configurations_connect_every_port_of_every_unit(top: str, platform: str) -> None:
    made = job(top, platform)
    sections = parse(link_config(made, False))
    assert dict(sections[""])["platform"] == PLATFORMS[platform].shell
    lines = sections["connectivity"]
    ((kernel, count, names),) = [value.split(":") for key, value in lines if key == "nk"]
    units = names.split(".")
    assert (kernel, int(count)) == (top, len(units))
    assert len(set(units)) == len(units)
    ports = [re.fullmatch(r"(\w+)\.(\w+):(.+)", value) for key, value in lines if key == "sp"]
    assert all(port is not None for port in ports)
    assert {(port[1], port[2]) for port in ports if port} == {(u, p) for u in units for p in memory_ports(made.top)}
    assert all(re.fullmatch(BANKS[platform], port[3]) for port in ports if port)
    assert set(dict(lines)) == {"nk", "sp"}


def test_two_units_where_they_fit() -> None:
    assert [units_of(job(top, "smartssd")) for top in ("attention_g1", "attention_g2", "attention_g8")] == [2, 1, 1]
    assert units_of(job("attention_g4", "u50")) == 2
    assert units_of(job("attention_g1", "zcu104")) == 1


@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_step_says_what_it_needs(platform: str) -> None:
    text = steps_text(job("attention_g1", platform))
    assert f"make export KERNEL=attention_g1 PLATFORM={platform}" in text
    assert f"make link KERNEL=attention_g1 PLATFORM={platform}" in text
    assert "64 GB of memory" in text
    assert re.search(r"LUT [\d,]{6,}", text)


def test_the_bank_of_an_image_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.xclbin"
    arguments = (axlf.Argument("kv", "void*", 24, 8, "M_AXI_GMEM0", 1), axlf.Argument("job", "unsigned long", 60, 8))
    other = axlf.Argument("io", "void*", 36, 8, "M_AXI_GMEM1", 0)
    banks = (axlf.Bank("bank0", 0, 1 << 30), axlf.Bank("bank1", 1 << 30, 1 << 30))
    for extra, expected in (((), 1), ((other,), None)):
        kernel = axlf.Kernel("k", (*arguments, *extra), (("k_1", 0x1800000),))
        path.write_bytes(axlf.write(axlf.Image("xilinx_u50_x", "part", 300, banks, (kernel,)), "hw", b""))
        if expected is None:
            with pytest.raises(ValueError, match="different banks"):
                axlf.read_bank(path)
        else:
            assert axlf.read_bank(path) == expected
    path.write_bytes(b"xclbin")
    with pytest.raises(ValueError, match="no image"):
        axlf.read_bank(path)


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

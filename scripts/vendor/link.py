# SPDX-License-Identifier: Apache-2.0
"""From a packaged kernel to a bitstream: v++ on a Vitis platform, a block design in Vivado on a Zynq device."""

from __future__ import annotations

from openhls.errors import OpenHlsError
from rtl import manifest
from rtl.kernels import Top
from vendor.hls import HlsJob


def memory_ports(top: Top) -> list[str]:
    """Names of the pointers. Raises OpenHlsError for a kernel with streams, which would be unconnected."""
    if any(interface["kind"] == "axis" for interface in top.interfaces):
        raise OpenHlsError(f"{top.name} has stream ports: link a kernel with memory ports only (argtopk, attention)")
    return [interface["name"] for interface in top.interfaces if interface["kind"] == "m_axi"]


_FULL = 0.7  # share of the LUTs above which a design hardly meets its clock


def units_of(job: HlsJob) -> int:
    """Compute units: two where their estimated LUTs leave room on the part, else one."""
    luts = _estimate(job).get("LUT", 0)
    return 2 if 0 < 2 * luts <= _FULL * job.platform.luts else 1


def _estimate(job: HlsJob) -> dict[str, int]:
    """Resources of one compute unit by Yosys; empty where the manifest has none."""
    total: dict[str, int] = (manifest.load(job.top) or {}).get("yosys", {}).get("total", {})
    return total


def unit_names(job: HlsJob) -> list[str]:
    return [f"{job.top.name}_{number + 1}" for number in range(units_of(job))]


def link_config(job: HlsJob, unified: bool) -> str:
    """link.cfg for `v++ -l`: the compute units, every memory port on the platform's bank, and the clock."""
    names = unit_names(job)
    hertz, megahertz = round(job.platform.clock_mhz * 1e6), round(job.platform.clock_mhz)
    lines = [
        f"platform={job.platform.shell}",
        f"freqhz={hertz}" if unified else f"kernel_frequency={megahertz}",
        "save-temps=1",
        "",
        "[connectivity]",
        f"nk={job.top.name}:{len(names)}:{'.'.join(names)}",
        *(f"sp={name}.{port}:{job.platform.memory}" for name in names for port in memory_ports(job.top)),
    ]
    return "\n".join(lines) + "\n"


def steps_text(job: HlsJob) -> str:
    """STEPS.md of a job: what each step needs, how long it takes, and which resources to expect."""
    yosys = _estimate(job)
    count = units_of(job)
    found = [f"{name} {count * yosys[name]:,g}" for name in ("LUT", "FF", "DSP", "BRAM", "URAM") if name in yosys]
    product = f"{job.top.name}.xclbin" if job.platform.shell else f"{job.top.name}.bit"
    linker = "`v++`, the platform" if job.platform.shell else "`vivado`, the board's PS_PRESET"
    place = job.platform.shell or job.platform.part
    expected = ", ".join(found) or "no estimate yet: make estimate"
    offered = f"; the part offers about {job.platform.luts:,} LUTs" if job.platform.luts else ""
    make = f"KERNEL={job.top.name} PLATFORM={job.platform.name}"
    lines = [
        f"# {job.top.name} on {job.platform.name}",
        "",
        f"{place}, {job.platform.clock_mhz:g} MHz, compute units: {count}.",
        f"Expected, by Yosys: {expected}{offered}.",
        "",
        "| Step | Command | Needs | Takes about |",
        "|---|---|---|---|",
        f"| 1 | `make export {make}` | Vitis HLS | 10 to 30 minutes, 16 GB of memory |",
        f"| 2 | `make link {make}` | {linker} | 3 to 8 hours, 64 GB of memory |",
        f"| 3 | copy `{product}` and its `.toml` to `bitstreams/` | - | - |",
        "| 4 | `kvdrive doctor` | the board | a second |",
        "",
        "The times are rough figures for designs of this size. Nobody has run these steps on these kernels yet.",
    ]
    return "\n".join(lines) + "\n"


def block_design(job: HlsJob, preset: str) -> str:
    """link.tcl for Vivado: the kernel's registers behind HPM0 of the processing system, its masters on the HP ports.

    `preset`: the board's own Tcl file, which sets DDR4 and pins of the cell in the variable `ps`; without one this is
    an OpenHlsError, as nothing would run on a board with default memory timing.
    """
    if not preset:
        raise OpenHlsError("PS_PRESET is not set: name the board's Tcl file with the settings of its processing system")
    name, masters = job.top.name, len(memory_ports(job.top))
    in_use = " ".join(f"CONFIG.PSU__USE__S_AXI_GP{2 + i} 1" for i in range(masters))  # GP2 to GP5 are HP0 to HP3
    clock = f"CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ {job.platform.clock_mhz:g}"
    lines = [
        f"create_project -force {name} vivado -part {job.platform.part}",
        "file mkdir ip",
        "set_property ip_repo_paths ip [current_project]",
        f"update_ip_catalog -add_ip {job.package} -repo_path ip",
        "create_bd_design design_1",
        "set ps [create_bd_cell -type ip -vlnv [get_ipdefs -filter {NAME == zynq_ultra_ps_e}] ps]",
        f"source {preset}",
        f"set_property -dict [list CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 {in_use} {clock}] $ps",
        f"create_bd_cell -type ip -vlnv [get_ipdefs -filter {{NAME == {name}}}] kernel",
        "proc connect {master slave} {",
        "  apply_bd_automation -rule xilinx.com:bd_rule:axi4 -config [list Master $master Slave $slave"
        " Clk_master Auto Clk_slave Auto Clk_xbar Auto intc_ip Auto] [get_bd_intf_pins $slave]",
        "}",
        "connect /ps/M_AXI_HPM0_FPD /kernel/s_axi_control",
        "set port 0",
        "foreach master [get_bd_intf_pins -of_objects [get_bd_cells kernel] -filter {MODE == Master}] {",
        "  connect $master /ps/S_AXI_HP${port}_FPD",
        "  incr port",
        "}",
        "assign_bd_address",
        "validate_bd_design",
        "add_files [make_wrapper -top -files [get_files design_1.bd]]",
        "launch_runs impl_1 -to_step write_bitstream",
        "wait_on_runs impl_1",
        'if {[get_property PROGRESS [get_runs impl_1]] != "100%"} { error "implementation failed" }',
        "open_run impl_1",
        "report_utilization -cells [get_cells -hierarchical kernel] -file utilization.rpt",
        "report_timing_summary -file timing.rpt",
        f"file copy -force [glob vivado/{name}.runs/impl_1/*.bit] {name}.bit",
    ]
    return "\n".join(lines) + "\n"

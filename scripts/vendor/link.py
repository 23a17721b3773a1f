# SPDX-License-Identifier: Apache-2.0
"""From a packaged kernel to a bitstream: v++ on a Vitis platform, a block design in Vivado on a Zynq device."""

from __future__ import annotations

from openhls.errors import OpenHlsError
from rtl.kernels import Top
from vendor.hls import HlsJob


def memory_ports(top: Top) -> list[str]:
    """Names of the pointers. Raises OpenHlsError for a kernel with streams, which would be unconnected."""
    if any(interface["kind"] == "axis" for interface in top.interfaces):
        raise OpenHlsError(f"{top.name} has stream ports: link a kernel with memory ports only (argtopk, attention)")
    return [interface["name"] for interface in top.interfaces if interface["kind"] == "m_axi"]


def link_config(job: HlsJob, unified: bool) -> str:
    """link.cfg for `v++ -l`: one instance, every memory port on the platform's bank, and the clock."""
    name, instance = job.top.name, f"{job.top.name}_1"
    hertz, megahertz = round(job.platform.clock_mhz * 1e6), round(job.platform.clock_mhz)
    lines = [
        f"platform={job.platform.shell}",
        f"freqhz={hertz}" if unified else f"kernel_frequency={megahertz}",
        "save-temps=1",
        "",
        "[connectivity]",
        f"nk={name}:1:{instance}",
        *(f"sp={instance}.{port}:{job.platform.memory}" for port in memory_ports(job.top)),
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

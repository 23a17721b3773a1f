# SPDX-License-Identifier: Apache-2.0
"""Figures out of reports, in the layout that the vendor's tools write."""

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from vendor.reports import read_csynth, read_implementation, read_link_utilization

CSYNTH = """<?xml version="1.0" encoding="UTF-8"?>
<profile>
  <section name="Vitis HLS Report for 'argtopk'" level="0"/>
  <ReportVersion><Version>2021.2</Version></ReportVersion>
  <UserAssignments><TopModelName>argtopk</TopModelName><TargetClockPeriod>3.33</TargetClockPeriod></UserAssignments>
  <PerformanceEstimates>
    <SummaryOfTimingAnalysis><EstimatedClockPeriod>2.433</EstimatedClockPeriod></SummaryOfTimingAnalysis>
    <SummaryOfOverallLatency><Worst-caseLatency>undef</Worst-caseLatency></SummaryOfOverallLatency>
  </PerformanceEstimates>
  <AreaEstimates>
    <Resources><BRAM_18K>33</BRAM_18K><DSP>2</DSP><FF>9876</FF><LUT>5432</LUT><URAM>1</URAM></Resources>
    <AvailableResources><BRAM_18K>1968</BRAM_18K><DSP>1968</DSP><LUT>522720</LUT></AvailableResources>
  </AreaEstimates>
</profile>
"""

UTILIZATION = """Copyright 1986-2021 Xilinx, Inc. All Rights Reserved.
| Tool Version : Vivado v.2021.2 (lin64) Build 3367213 Tue Oct 19 02:47:39 MDT 2021
| Design       : design_1_wrapper

1. CLB Logic
+----------------------------+-------+-------+------------+-----------+-------+
|          Site Type         |  Used | Fixed | Prohibited | Available | Util% |
+----------------------------+-------+-------+------------+-----------+-------+
| CLB LUTs                   | 41234 |     0 |          0 |    423403 |  9.74 |
|   LUT as Logic             | 38000 |     0 |          0 |    423403 |  8.97 |
| CLB Registers              | 61001 |     0 |          0 |    846806 |  7.20 |
+----------------------------+-------+-------+------------+-----------+-------+
| Block RAM Tile    | 22.5 |     0 |          0 |       796 |  2.83 |
| URAM              |    4 |     0 |          0 |       102 |  3.92 |
| DSPs           |   61 |     0 |          0 |      1590 |  3.84 |
"""

TIMING = """
------------------------------------------------------------------------------------------------
| Design Timing Summary
| ---------------------
------------------------------------------------------------------------------------------------

    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)
    -------      -------  ---------------------  -------------------      -------
     -0.112       -3.200                     41               201234        0.010
"""

ROUTED = """
1. System Utilization
+--------------------+------------------+----------------+------------------+---------------+------------+-------------+
| Name               | LUT              | LUTAsMem       | REG              | BRAM          | URAM       | DSP         |
+--------------------+------------------+----------------+------------------+---------------+------------+-------------+
| Platform           |  99000 [ 18.94%] |  9000 [  5.7%] | 150000 [ 14.35%] |   140 [ 14.2%]|  0 [  0.0%]|   7 [  0.3%]|
| argtopk            |   5600 [  1.32%] |   400 [  0.3%] |   9100 [  1.02%] |  21.5 [  2.6%]|  0 [  0.0%]|   0 [  0.0%]|
|    argtopk_1       |   5600 [  1.32%] |   400 [  0.3%] |   9100 [  1.02%] |  21.5 [  2.6%]|  0 [  0.0%]|   0 [  0.0%]|
+--------------------+------------------+----------------+------------------+---------------+------------+-------------+
"""


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_c_synthesis(tmp_path: Path) -> None:
    assert read_csynth(written(tmp_path, "csynth.xml", CSYNTH), "argtopk") == {
        "tool": "Vitis HLS 2021.2",
        "stage": "C synthesis, estimate",
        "period_ns": 2.433,
        "BRAM": 16.5,
        "DSP": 2,
        "FF": 9876,
        "LUT": 5432,
        "URAM": 1,
    }


def test_implementation_in_vivado(tmp_path: Path) -> None:
    reports = written(tmp_path, "u.rpt", UTILIZATION), written(tmp_path, "t.rpt", TIMING)
    assert read_implementation(*reports, period_ns=3.333) == {
        "tool": "Vivado 2021.2",
        "stage": "place and route",
        "period_ns": 3.445,
        "LUT": 41234,
        "FF": 61001,
        "BRAM": 22.5,
        "URAM": 4,
        "DSP": 61,
    }


def test_share_of_a_kernel_after_link(tmp_path: Path) -> None:
    figures = read_link_utilization(written(tmp_path, "routed.rpt", ROUTED), "argtopk")
    assert (figures["LUT"], figures["FF"], figures["BRAM"], figures["DSP"]) == (5600, 9100, 21.5, 0)


def test_reports_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OpenHlsError, match="no report of softmax"):
        read_csynth(written(tmp_path, "csynth.xml", CSYNTH), "softmax")
    with pytest.raises(OpenHlsError, match="no element found"):
        read_csynth(written(tmp_path, "empty.xml", ""), "softmax")
    with pytest.raises(OpenHlsError, match="no row of softmax"):
        read_link_utilization(written(tmp_path, "routed.rpt", ROUTED), "softmax")
    timing = written(tmp_path, "t.rpt", TIMING)
    short = written(tmp_path, "u.rpt", UTILIZATION.split("| CLB Registers")[0])
    with pytest.raises(OpenHlsError, match="no CLB Registers, Block RAM Tile"):
        read_implementation(short, timing, 3.3)
    whole, empty = written(tmp_path, "u.rpt", UTILIZATION), written(tmp_path, "t.rpt", "none")
    with pytest.raises(OpenHlsError, match="no worst slack"):
        read_implementation(whole, empty, 3.3)

# SPDX-License-Identifier: Apache-2.0
"""openhls: C++ for hardware, in the Vitis HLS style, to SystemVerilog whose behaviour equals g++ bit by bit."""

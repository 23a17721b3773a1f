# SPDX-License-Identifier: Apache-2.0
"""Kernels through Yosys and nextpnr to a bitstream, for the platforms of openhls that have open tools."""

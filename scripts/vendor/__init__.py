# SPDX-License-Identifier: Apache-2.0
"""The kernels through Vitis HLS, Vitis and Vivado: scripts for them, a launcher, and readers of their reports."""

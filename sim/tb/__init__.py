# SPDX-License-Identifier: Apache-2.0
"""The regression of the kernels' RTL: cocotb on Verilator, compared with the golden model."""

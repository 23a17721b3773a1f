# SPDX-License-Identifier: Apache-2.0
"""A card in software: serves the emulation mode of the vendor's runtime (XRT) in place of an FPGA."""

# SPDX-License-Identifier: Apache-2.0
"""The modules that all designs use, written by hand: FIFOs, memories, registers and AXI."""

from pathlib import Path

LIBRARY = sorted((Path(__file__).resolve().parents[1] / "rtl").glob("*.sv"))

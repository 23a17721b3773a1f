"""Rates of hardware in the papers, each with its source: `published` in a data sheet, or measured in a `paper`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A number in SI units (bytes, FLOP, watts, US dollars; rates per second, prices per hour) and where it is from."""

    value: float
    source: str


def _published(value: float, what: str) -> Figure:
    return Figure(value, f"published: {what}")


def _paper(value: float, what: str) -> Figure:
    return Figure(value, f"paper: {what}")


A100_FLOPS = _published(312e12, "NVIDIA A100 data sheet, binary16 tensor cores")
PCIE4_X16_EFFECTIVE = _paper(26e9, "AttentionStore, section 2.4")
INSTCSD_CHANNELS = _paper(8 * 1.4e9, "InstInfer, section V: 8 channels of 1.4 GB/s")
SMARTSSD_P2P = _paper(3e9, "HILOS, section 6: reads of a SmartSSD by its own FPGA")
SMARTSSD_WRITTEN = _published(7.008e15, "Samsung SmartSSD 3.84 TB: 1 drive write a day for 5 years")
M1_MAX_SEQUENTIAL = _paper(6.1e9, "LLM in a flash, table 2")

A100_HOUR = _paper(5.0, "AttentionStore, section 4.2: USD for each GPU")
DRAM_GB_HOUR = _paper(0.0088, "AttentionStore, section 4.2")
SSD_GB_HOUR = _paper(0.000082, "AttentionStore, section 4.2")

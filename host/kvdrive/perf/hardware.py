"""Rates, sizes, powers and prices of hardware, each with its source.

A source begins with `published` (a data sheet), `paper` (measured or stated in one), `measured` (here) or `assumed`
(says from what).
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = ("published", "paper", "measured", "assumed")


@dataclass(frozen=True)
class Figure:
    """A number in SI units (bytes, FLOP, watts, US dollars; rates per second, prices per hour) and where it is from."""

    value: float
    source: str


def _published(value: float, what: str) -> Figure:
    return Figure(value, f"published: {what}")


def _paper(value: float, what: str) -> Figure:
    return Figure(value, f"paper: {what}")


def _measured(value: float, what: str) -> Figure:
    return Figure(value, f"measured: {what}")


def _assumed(value: float, what: str) -> Figure:
    return Figure(value, f"assumed: {what}")


@dataclass(frozen=True)
class Gpu:
    """`flops` in binary16 with dense matrices; `memory_rate` and bytes of `memory`; board power; price."""

    name: str
    flops: Figure
    memory_rate: Figure
    memory: Figure
    watts: Figure
    usd: Figure


@dataclass(frozen=True)
class Host:
    """`memory_rate` of all channels, power of the processor, watts of a GB of memory."""

    name: str
    memory_rate: Figure
    memory: Figure
    watts: Figure
    watts_per_gb: Figure


@dataclass(frozen=True)
class Ssd:
    """A drive without an engine."""

    name: str
    read: Figure
    write: Figure
    capacity: Figure
    watts: Figure
    usd: Figure


@dataclass(frozen=True)
class AttendingDrive:
    """A drive that attends. `preset`: its model in the drive library, which says how long commands take.

    `rate`, `write`: bytes per second that its engine gets at most, and that it stores. `written`: bytes that it may
    write in its life; 0: not published.
    """

    name: str
    preset: str
    rate: Figure
    write: Figure
    capacity: Figure
    written: Figure
    watts: Figure
    usd: Figure


_NO_PRICE = _assumed(0.0, "no price in the papers: left out of costs")
_DDR4 = _assumed(0.375, "3 W for a module of 8 GB, the usual rule for servers' memory")

A100_FLOPS = _published(312e12, "NVIDIA A100 data sheet, binary16 tensor cores")
A100_40 = Gpu(
    "A100 40 GB",
    A100_FLOPS,
    _published(1.555e12, "NVIDIA A100 40 GB data sheet"),
    _published(40e9, "NVIDIA A100 40 GB data sheet"),
    _published(250, "NVIDIA A100 40 GB PCIe data sheet"),
    _paper(7000, "HILOS, section 6"),
)
A100_80 = Gpu(
    "A100 80 GB",
    A100_FLOPS,
    _published(2.039e12, "NVIDIA A100 80 GB data sheet, SXM"),
    _published(80e9, "NVIDIA A100 80 GB data sheet"),
    _published(400, "NVIDIA A100 80 GB data sheet, SXM"),
    _NO_PRICE,
)
H100_80 = Gpu(
    "H100 80 GB",
    _published(989e12, "NVIDIA H100 data sheet, SXM, binary16 tensor cores"),
    _published(3.35e12, "NVIDIA H100 data sheet, SXM"),
    _published(80e9, "NVIDIA H100 data sheet"),
    _published(700, "NVIDIA H100 data sheet, SXM"),
    _paper(30000, "HILOS, section 6"),
)
A6000 = Gpu(
    "RTX A6000",
    _published(154.8e12, "NVIDIA RTX A6000 data sheet, binary16 tensor cores"),
    _published(768e9, "NVIDIA RTX A6000 data sheet"),
    _published(48e9, "NVIDIA RTX A6000 data sheet"),
    _published(300, "NVIDIA RTX A6000 data sheet"),
    _NO_PRICE,
)
RTX_4090 = Gpu(
    "RTX 4090",
    _published(165.2e12, "NVIDIA Ada whitepaper, binary16 tensor cores with binary32 sums"),
    _published(1.008e12, "NVIDIA RTX 4090 specification"),
    _published(24e9, "NVIDIA RTX 4090 specification"),
    _published(450, "NVIDIA RTX 4090 specification"),
    _NO_PRICE,
)
M1_MAX = Gpu(
    "M1 Max",
    _published(10.4e12, "Apple M1 Max, 32 cores, binary32; binary16 is no faster"),
    _published(400e9, "Apple M1 Max, unified memory"),
    _published(32e9, "Apple M1 Max, the smaller size"),
    _assumed(60, "Apple publishes no power of the chip"),
    _NO_PRICE,
)
GPUS = {gpu.name: gpu for gpu in (A100_40, A100_80, H100_80, A6000, RTX_4090, M1_MAX)}

XEON_6342 = Host(
    "Xeon Gold 6342",
    _published(204.8e9, "Intel Xeon Gold 6342: 8 channels of DDR4-3200"),
    _paper(512e9, "HILOS, section 6"),
    _published(230, "Intel Xeon Gold 6342, thermal design power"),
    _DDR4,
)
XEON_5320 = Host(
    "Xeon Gold 5320",
    _published(187.7e9, "Intel Xeon Gold 5320: 8 channels of DDR4-2933"),
    _paper(96e9, "InstInfer, section VI-A"),
    _published(185, "Intel Xeon Gold 5320, thermal design power"),
    _DDR4,
)
MEMORY_SUSTAINED = _assumed(0.8, "the share of its channels' rate that STREAM reaches on such a server, roughly")
HOSTS = {host.name: host for host in (XEON_6342, XEON_5320)}

PM9A3 = Ssd(
    "PM9A3",
    _paper(6.9e9, "HILOS, section 6"),
    _paper(4.1e9, "HILOS, section 6"),
    _published(3.84e12, "Samsung PM9A3 3.84 TB"),
    _paper(13, "HILOS, figure 17: power of an SSD"),
    _paper(400, "HILOS, section 6"),
)
SSD_980_PRO = Ssd(
    "980 PRO",
    _published(7e9, "Samsung 980 PRO 2 TB, sequential read"),
    _published(5.1e9, "Samsung 980 PRO 2 TB, sequential write"),
    _published(2e12, "Samsung 980 PRO 2 TB"),
    _assumed(13, "that of PM9A3"),
    _NO_PRICE,
)
SSDS = {ssd.name: ssd for ssd in (PM9A3, SSD_980_PRO)}

INSTCSD_CHANNELS = _paper(8 * 1.4e9, "InstInfer, section V: 8 channels of 1.4 GB/s")
SMARTSSD_P2P = _paper(3e9, "HILOS, section 6: reads of a SmartSSD by its own FPGA")
SMARTSSD_WRITTEN = _published(7.008e15, "Samsung SmartSSD 3.84 TB: 1 drive write a day for 5 years")
SMARTSSD = AttendingDrive(
    "SmartSSD",
    "smartssd",
    SMARTSSD_P2P,
    _assumed(2.341e9, "NVMeVirt's Samsung 970 PRO, which the preset stands on"),
    _published(3.84e12, "Samsung SmartSSD"),
    SMARTSSD_WRITTEN,
    _paper(13 + 16.08, "HILOS, section 6.2, table 3 and figure 17: the SSD and its FPGA"),
    _paper(2400, "HILOS, section 6"),
)
INSTCSD = AttendingDrive(
    "InstCSD",
    "instcsd",
    INSTCSD_CHANNELS,
    _assumed(5.1e9, "that of the 980 PRO it stands beside"),
    _assumed(2e12, "that of the 980 PRO it stands beside"),
    _assumed(0, "not published"),
    _assumed(13 + 16.08, "that of a SmartSSD"),
    _NO_PRICE,
)
ISP_CSD = AttendingDrive(
    "ISP-CSD",
    "",
    _paper(16e9, "HILOS, section 7.1: 8 channels of 2000 MT/s"),
    _assumed(5.1e9, "that of the 980 PRO"),
    _paper(16e12, "HILOS, section 7.1"),
    _assumed(0, "not published"),
    _assumed(13 + 1.13, "HILOS, section 7.1: an ASIC of 1.13 W beside the SSD"),
    _NO_PRICE,
)
DRIVES = {drive.name: drive for drive in (SMARTSSD, INSTCSD, ISP_CSD)}

PCIE4_X16_EFFECTIVE = _paper(26e9, "AttentionStore, section 2.4")
PCIE3_X16_EFFECTIVE = _assumed(13e9, "half of PCI Express 4.0")
PCIE5_X16_EFFECTIVE = _assumed(52e9, "twice PCI Express 4.0")
PCIE4_X16 = _paper(32e9, "InstInfer, section VI-A: what the A6000's link carries at most")
LINKS = {"PCIe 3.0 x16": PCIE3_X16_EFFECTIVE, "PCIe 4.0 x16": PCIE4_X16_EFFECTIVE, "PCIe 5.0 x16": PCIE5_X16_EFFECTIVE}
INSTCSD_LINK = _paper(7e9, "InstInfer, section V-B: PCI Express 4.0 x4 of the drive")
SMARTSSD_UPLINK = _paper(
    16e9, "HILOS, section 4.2: the drives' 48 GB/s are 3 times what their chassis' 16 lanes of PCI Express 4.0 carry"
)
ETHERNET_100G = _published(12.5e9, "100 Gbit/s Ethernet, or InfiniBand EDR, without overhead")
NETWORK_LATENCY = _assumed(20e-6, "one all-reduce of a few KB between hosts")
GPUS_LATENCY = _assumed(10e-6, "one all-reduce of a few KB between the GPUs of a host: half of that between hosts")

TRANSFORMERS_LAYER = _measured(
    18.05e-3 / 16,
    "results/gpu/h200.json: a decode step of transformers, 16 layers, K and V in host memory; its kernels take 2 ms",
)

SERVER_USD = _paper(15000, "HILOS, section 6")
EXPANSION_USD = _paper(10000, "HILOS, section 6: chassis for 16 SmartSSDs")
A100_HOUR = _paper(5.0, "AttentionStore, section 4.2: USD for each GPU")
DRAM_GB_HOUR = _paper(0.0088, "AttentionStore, section 4.2")
SSD_GB_HOUR = _paper(0.000082, "AttentionStore, section 4.2")

# SPDX-License-Identifier: Apache-2.0
"""Writes and reads the container of an FPGA image (xclbin, whose format is called axlf).

Layouts: struct axlf, mem_topology, connectivity, ip_layout and clock_freq_topology of the runtime's header xclbin.h.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

MAGIC = b"xclbin2\0"
MODES = {"hw": 0, "hw_emu": 4, "sw_emu": 5}
_SECTIONS = {
    "BITSTREAM": 0,
    "EMBEDDED_METADATA": 2,
    "MEM_TOPOLOGY": 6,
    "CONNECTIVITY": 7,
    "IP_LAYOUT": 8,
    "CLOCK_FREQ_TOPOLOGY": 11,
    "BUILD_METADATA": 14,
    "GROUP_TOPOLOGY": 26,
    "GROUP_CONNECTIVITY": 27,
}
_MEMORY_TYPES = {"DDR4": 1, "HBM": 6}
_IP_KERNEL = 1
_CLOCK_TYPES = {"DATA": 1, "KERNEL": 2}
_SECTION_HEADER = struct.Struct("<I16s4xQQ")
_AXLF_HEADER = struct.Struct("<QQQHBBHHQQ64s16s16sI4x")
_HEADER_AT = 304
_FIRST_SECTION_AT = _HEADER_AT + _AXLF_HEADER.size


@dataclass(frozen=True)
class Argument:
    """`port`: the memory port of a pointer, "" for a scalar. `bank`: index of the memory that the port reaches."""

    name: str
    type: str
    offset: int
    size: int
    port: str = ""
    bank: int = 0


@dataclass(frozen=True)
class Kernel:
    """`instances`: name and base address of the registers of each compute unit."""

    name: str
    arguments: tuple[Argument, ...]
    instances: tuple[tuple[str, int], ...]

    @property
    def ports(self) -> list[str]:
        return sorted({argument.port for argument in self.arguments if argument.port})


@dataclass(frozen=True)
class Bank:
    tag: str
    base: int
    size_bytes: int
    type: str = "DDR4"


@dataclass(frozen=True)
class Image:
    """`platform`: the full name, such as xilinx_u2_gen3x4_xdma_gc_2_202110_1."""

    platform: str
    part: str
    clock_mhz: int
    banks: tuple[Bank, ...]
    kernels: tuple[Kernel, ...]


def write(image: Image, mode: str, bitstream: bytes) -> bytes:
    """The container. `mode`: hw, hw_emu or sw_emu. `bitstream`: what the card, or the emulated one, loads."""
    sections = [
        ("BITSTREAM", bitstream),
        ("MEM_TOPOLOGY", _memories(image)),
        ("IP_LAYOUT", _ip_layout(image)),
        ("CONNECTIVITY", _connectivity(image)),
        ("CLOCK_FREQ_TOPOLOGY", _clocks(image)),
        ("BUILD_METADATA", json.dumps(_build_metadata(image)).encode()),
        ("EMBEDDED_METADATA", description(image, mode).encode()),
        ("GROUP_TOPOLOGY", _memories(image)),
        ("GROUP_CONNECTIVITY", _connectivity(image)),
    ]
    at = _FIRST_SECTION_AT + _SECTION_HEADER.size * len(sections)
    headers, body = b"", b""
    for name, data in sections:
        padding = -at % 8
        body += bytes(padding) + data
        headers += _SECTION_HEADER.pack(_SECTIONS[name], name.lower().encode()[:15], at + padding, len(data))
        at += padding + len(data)
    identity = hashlib.sha256(headers + body).digest()[:16]
    header = _AXLF_HEADER.pack(
        at, 0, 0, 466, 2, 13, MODES[mode], 0, 0, 0, image.platform.encode(), identity, b"", len(sections)
    )
    signature = struct.pack("<i", -1) + b"\xff" * 28 + bytes(256) + struct.pack("<Q", 1)
    return MAGIC + signature + header + headers + body


def _memories(image: Image) -> bytes:
    entries = (
        struct.pack("<BB6xQQ16s", _MEMORY_TYPES[bank.type], 1, bank.size_bytes >> 10, bank.base, bank.tag.encode())
        for bank in image.banks
    )
    return struct.pack("<i4x", len(image.banks)) + b"".join(entries)


def _units(image: Image) -> list[tuple[Kernel, str, int]]:
    return [(kernel, name, base) for kernel in image.kernels for name, base in kernel.instances]


def _ip_layout(image: Image) -> bytes:
    entries = []
    for number, (kernel, name, base) in enumerate(_units(image)):
        properties = 1 | number << 1  # has an interrupt, whose number follows
        entries.append(struct.pack("<IIQ64s", _IP_KERNEL, properties, base, f"{kernel.name}:{name}".encode()))
    return struct.pack("<i4x", len(entries)) + b"".join(entries)


def _connectivity(image: Image) -> bytes:
    rows = [
        (index, number, argument.bank)
        for number, (kernel, _, _) in enumerate(_units(image))
        for index, argument in enumerate(kernel.arguments)
        if argument.port
    ]
    return struct.pack("<i", len(rows)) + b"".join(struct.pack("<iii", *row) for row in rows)


def _clocks(image: Image) -> bytes:
    entries = [
        struct.pack("<HB5x128s", image.clock_mhz, number, f"{name}_CLK".encode())
        for name, number in _CLOCK_TYPES.items()
    ]
    return struct.pack("<h", len(entries)) + b"".join(entries)


def _platform_parts(image: Image) -> tuple[str, str, str]:
    """Vendor, board and the rest of a platform's name."""
    vendor, board, rest = image.platform.split("_", 2)
    return vendor, board, rest


def _build_metadata(image: Image) -> dict[str, object]:
    vendor, board, name = _platform_parts(image)
    tool = {
        "name": "kvdrive",
        "version": "2.13",
        "time_stamp": "0",
        "cl": "0",
        "options": "",
        "hash": "0",
        "branch": "",
    }
    platform = {"vendor": vendor, "board_id": board, "name": name, "version_major": "2", "version_minor": "0"}
    return {
        "build_metadata": {
            "xclbin": {"generated_by": tool, "packaged_by": tool, "uuid": ""},
            "dsa": platform | {"feature_roms": []},
        }
    }


def _tag(name: str, attributes: dict[str, object], *children: str) -> str:
    text = "".join(f" {key}={quoteattr(str(value))}" for key, value in attributes.items())
    return f"<{name}{text}>{''.join(children)}</{name}>"


def description(image: Image, mode: str) -> str:
    """The description of kernels that the runtime reads: names, arguments, offsets and addresses."""
    vendor, board, name = _platform_parts(image)
    clock = f"{image.clock_mhz}MHz"
    clocks = [_tag("clock", {"port": f"{name}_CLK", "frequency": clock}) for name in _CLOCK_TYPES]
    core = {"name": "OCL_REGION_0", "target": mode, "type": "clc_region", "clockFreq": clock}
    core_text = _tag(
        "core",
        core | {"numComputeUnits": len(_units(image))},
        _tag("kernelClocks", {}, *clocks),
        *(_kernel_xml(kernel) for kernel in image.kernels),
    )
    device = _tag("device", {"name": "fpga0", "fpgaDevice": image.part, "addrWidth": 0}, core_text)
    platform = {"vendor": vendor, "boardid": board, "name": name, "featureRomTime": 0}
    version = _tag("version", {"major": 2, "minor": 0})
    body = _tag("project", {"name": "kvdrive"}, _tag("platform", platform, version, device))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _kernel_xml(kernel: Kernel) -> str:
    attributes = {
        "name": kernel.name,
        "language": "c",
        "vlnv": f"xilinx.com:hls:{kernel.name}:1.0",
        "attributes": "",
        "preferredWorkGroupSizeMultiple": 0,
        "workGroupSize": 1,
        "interrupt": "true",
        "hwControlProtocol": "ap_ctrl_hs",
    }
    port = {"dataWidth": 512, "portType": "addressable", "base": "0x0"}
    parts = [
        _tag("port", {"name": name, "mode": "master", "range": "0xFFFFFFFFFFFFFFFF"} | port) for name in kernel.ports
    ]
    parts.append(_tag("port", {"name": "S_AXI_CONTROL", "mode": "slave", "range": "0x1000"} | port | {"dataWidth": 32}))
    parts += [_argument_xml(index, argument) for index, argument in enumerate(kernel.arguments)]
    ones = {"x": 1, "y": 1, "z": 1}
    parts += [_tag("compileWorkGroupSize", ones), _tag("maxWorkGroupSize", ones)]
    for name, base in kernel.instances:
        remap = _tag("addrRemap", {"base": hex(base), "range": "0x10000", "port": "S_AXI_CONTROL"})
        parts.append(_tag("instance", {"name": name}, remap))
    return _tag("kernel", attributes, *parts)


def _argument_xml(index: int, argument: Argument) -> str:
    return _tag(
        "arg",
        {
            "name": argument.name,
            "addressQualifier": 1 if argument.port else 0,
            "id": index,
            "port": argument.port or "S_AXI_CONTROL",
            "size": hex(argument.size),
            "offset": hex(argument.offset),
            "hostOffset": "0x0",
            "hostSize": hex(argument.size),
            "type": argument.type,
            "memory": "",
        },
    )


def read_bank(path: Path) -> int:
    """The index of the memory bank, or group of banks, that all memory ports of an image reach.

    Raises ValueError: no image, or ports on different banks.
    """
    data = path.read_bytes()
    if not data.startswith(MAGIC) or len(data) < _FIRST_SECTION_AT:
        raise ValueError(f"{path} is no image (xclbin)")
    count = _AXLF_HEADER.unpack_from(data, _HEADER_AT)[-1]
    places = {}
    for number in range(count):
        kind, _, at, _ = _SECTION_HEADER.unpack_from(data, _FIRST_SECTION_AT + _SECTION_HEADER.size * number)
        places[kind] = at
    at = places.get(_SECTIONS["GROUP_CONNECTIVITY"], places.get(_SECTIONS["CONNECTIVITY"]))
    if at is None:
        raise ValueError(f"{path} does not say which memory its kernels reach")
    (rows,) = struct.unpack_from("<i", data, at)
    banks = {struct.unpack_from("<iii", data, at + 4 + 12 * row)[2] for row in range(rows)}
    if len(banks) != 1:
        raise ValueError(f"the memory ports of {path} are on different banks: {sorted(banks)}")
    return int(banks.pop())

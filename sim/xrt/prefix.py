# SPDX-License-Identifier: Apache-2.0
"""A private copy of the distribution's runtime in which the emulation shims work.

XRT looks for its shim in `$XILINX_XRT/lib`, and Debian keeps it elsewhere: the copy consists of links. In two
libraries of Debian's build (202210.2.13.466+dfsg-8) the function `alloc_void` loses what realloc returned: a
conditional jump leads behind the instruction that stores it. One byte of the copy sends the jump to that instruction.
The byte is changed only if the code around it is the known one. The vendor's own builds do not have this fault.
"""

from __future__ import annotations

import struct
import sysconfig
from dataclasses import dataclass
from pathlib import Path

LINKED = ("libxrt", "libxilinxopencl", "libxdp")
SHIMS = {
    "libxrt_swemu.so.2": b"_ZN12xclcpuemhal29CpuemShim10alloc_voidEm",
    "libxrt_hwemu.so.2": b"_ZN11xclhwemhal28HwEmShim10alloc_voidEm",
}
_TEST_AND_JUMP = b"\x48\x85\xc0\x75\xe6"  # test rax, rax; jne to 26 bytes before the next instruction
_STORE = b"\x48\x89\x83"  # mov [rbx + offset], rax: 7 bytes long, and it ends where the jump leads
_JUMP_TO_STORE = 0xDF


class RuntimeMissing(Exception):
    """XRT is not installed, or it is a build that this module does not know. The message is a reason to skip."""


def system_libraries() -> Path:
    """The folder with the distribution's libxrt_core. Raises RuntimeMissing."""
    folder = Path("/usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "")
    missing = [name for name in ("libxrt_core.so.2", *SHIMS) if not (folder / name).exists()]
    if missing:
        raise RuntimeMissing(f"XRT is not installed ({missing[0]}): scripts/system_packages.sh xrt")
    return folder


def make_prefix(folder: Path, libraries: Path | None = None) -> Path:
    """A folder for XILINX_XRT, made in `folder`. Raises RuntimeMissing."""
    libraries = libraries or system_libraries()
    target = folder / "lib"
    target.mkdir(parents=True, exist_ok=True)
    repaired = {name: repair((libraries / name).read_bytes(), symbol) for name, symbol in SHIMS.items()}
    for path in libraries.iterdir():
        link = target / path.name
        if path.name.startswith(LINKED) and ".so.2" in path.name and path.name not in SHIMS and not link.is_symlink():
            link.symlink_to(path)
    for name, code in repaired.items():
        (target / name).write_bytes(code)
    return folder


def repair(library: bytes, symbol: bytes) -> bytes:
    """The library with the jump of `symbol` corrected. Raises RuntimeMissing if its code is not the known one."""
    start, size = _function(library, symbol)
    code = library[start : start + size]
    jump = code.find(_TEST_AND_JUMP)
    store = code.find(_STORE)
    led_to = jump + len(_TEST_AND_JUMP) - (0x100 - _TEST_AND_JUMP[-1])
    known = jump > 0 and store > 0 and store + 7 == led_to and code.count(_TEST_AND_JUMP) == 1
    if not known:
        raise RuntimeMissing(f"this build of XRT is not the known one ({symbol.decode()}): its emulation is not used")
    fixed = bytearray(library)
    fixed[start + jump + len(_TEST_AND_JUMP) - 1] = _JUMP_TO_STORE
    return bytes(fixed)


@dataclass(frozen=True)
class _Segment:
    offset: int
    address: int
    size: int


def _function(library: bytes, symbol: bytes) -> tuple[int, int]:
    """Where the code of a dynamic symbol is in the file, and how long it is. Raises RuntimeMissing."""
    if library[:6] != b"\x7fELF\x02\x01":
        raise RuntimeMissing("XRT's libraries are no 64-bit ELF files")
    (sections_at,) = struct.unpack_from("<Q", library, 40)
    (segments_at,) = struct.unpack_from("<Q", library, 32)
    segment_count, section_count = struct.unpack_from("<H", library, 56)[0], struct.unpack_from("<H", library, 60)[0]
    segments = []
    for number in range(segment_count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", library, segments_at + 56 * number)
        if kind == 1:
            segments.append(_Segment(offset, address, size))
    sections = [struct.unpack_from("<IIQQQQII", library, sections_at + 64 * number) for number in range(section_count)]
    for _, kind, _, _, offset, size, names, _ in sections:
        if kind != 11:  # the table of dynamic symbols
            continue
        names_at = sections[names][4]
        for entry in range(offset, offset + size, 24):
            name, _, _, _, address, length = struct.unpack_from("<IBBHQQ", library, entry)
            at = names_at + name
            if library[at : at + len(symbol) + 1] == symbol + b"\0":
                place = next((s for s in segments if s.address <= address < s.address + s.size), None)
                if place is not None:
                    return place.offset + address - place.address, length
    raise RuntimeMissing(f"XRT has no function {symbol.decode()}")

# SPDX-License-Identifier: Apache-2.0
"""Compute units: registers in front of a kernel. The kernel is a C function, or RTL behind its own registers."""

from __future__ import annotations

import ctypes
import struct
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from xrt.memory import CardMemory

START, DONE, IDLE = 1, 2, 4
REGISTER_BYTES = 0x10000
_RETURN_AT = 0x10
_RESET_S = 3.0


@dataclass(frozen=True)
class Register:
    """An argument as the image describes it. `pointer`: its value is an address of the card."""

    name: str
    offset: int
    size: int
    type: str
    pointer: bool


class Body(Protocol):
    """Runs a kernel with the values of its registers by name; returns the value of its return register."""

    def __call__(self, values: Mapping[str, int]) -> int: ...


class FunctionBody:
    """A kernel of a shared library, called with the addresses of this process."""

    def __init__(self, library: ctypes.CDLL, name: str, registers: list[Register], memory: CardMemory) -> None:
        self._function = getattr(library, name)
        self._function.restype = ctypes.c_uint32
        self._registers, self._memory = registers, memory

    def __call__(self, values: Mapping[str, int]) -> int:
        return int(self._function(*[self._argument(register, values[register.name]) for register in self._registers]))

    def _argument(self, register: Register, value: int) -> object:
        if register.pointer:
            return ctypes.c_void_p(self._memory.pointer(value))
        if register.type == "float":
            return ctypes.c_float(struct.unpack("<f", struct.pack("<I", value))[0])
        return ctypes.c_uint64(value) if register.size == 8 else ctypes.c_uint32(value)


class Fault:
    """What goes wrong at one start of a unit, counted from 0 over all units; "" for nothing.

    no-result: the kernel is done and has written nothing. lost: the card falls off its bus. stuck: the start never
    ends. hang: it ends after a while without a result, as after a reset, which XRT 2.13 does not pass on to an emulated
    card. `mark`: a file that is made when the fault strikes, which it does not do again. After a reset the host opens
    the card anew, and a new process counts the starts from 0.
    """

    def __init__(self, text: str, mark: Path | None = None) -> None:
        self._mark = mark
        self.kind, _, at = text.partition(":")
        self._left = int(at or 0)
        self._lock = threading.Lock()

    def strikes(self) -> bool:
        with self._lock:
            self._left -= 1
            return bool(self.kind) and self._left == -1 and self._first()

    def _first(self) -> bool:
        if self._mark is None:
            return True
        try:
            self._mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class Unit:
    """One compute unit. A start runs its kernel in a thread; the control register says when it is done."""

    def __init__(self, name: str, base: int, registers: list[Register], body: Body) -> None:
        self.name, self.base = name, base
        self.starts = 0
        self._registers, self._body = registers, body
        self._bytes = bytearray(REGISTER_BYTES)
        self._control = IDLE

    def write(self, offset: int, data: bytes, fault: Fault, lost: Callable[[], None]) -> None:
        """Write registers; bit 0 of the first one starts the kernel."""
        self._bytes[offset : offset + len(data)] = data
        if offset == 0 and data[0] & START:
            self._start(fault, lost)

    def read(self, offset: int, size: int) -> bytes:
        if offset != 0:
            return bytes(self._bytes[offset : offset + size])
        control = self._control
        self._control &= ~DONE  # reading clears it
        return control.to_bytes(4, "little")[:size]

    def _start(self, fault: Fault, lost: Callable[[], None]) -> None:
        self.starts += 1
        self._control = START
        struck = fault.strikes()
        if struck and fault.kind == "hang":
            threading.Timer(_RESET_S, self._end_without_result).start()
            return
        if struck and fault.kind == "stuck":
            return
        if struck and fault.kind == "lost":
            lost()
            return
        if struck and fault.kind == "no-result":
            self._end_without_result()
            return
        threading.Thread(target=self._run, daemon=True).start()

    def _end_without_result(self) -> None:
        self._control = DONE | IDLE

    def _run(self) -> None:
        result = self._body(
            {
                register.name: int.from_bytes(self._bytes[register.offset : register.offset + register.size], "little")
                for register in self._registers
            }
        )
        self._bytes[_RETURN_AT : _RETURN_AT + 4] = (result & 0xFFFFFFFF).to_bytes(4, "little")
        self._control = DONE | IDLE


def make_units(description: Path, body_of: Callable[[str, list[Register]], Body]) -> list[Unit]:
    """The compute units of an image's description (its embedded XML)."""
    units = []
    for kernel in ElementTree.parse(description).getroot().iter("kernel"):
        name = kernel.get("name", "")
        registers = [
            Register(
                argument.get("name", ""),
                int(argument.get("offset", "0"), 16),
                int(argument.get("size", "0"), 16),
                argument.get("type", ""),
                argument.get("addressQualifier") == "1",
            )
            for argument in kernel.findall("arg")
        ]
        for instance in kernel.findall("instance"):
            place = instance.find("addrRemap")
            base = int(place.get("base", "0"), 16) if place is not None else 0
            units.append(Unit(instance.get("name", ""), base, registers, body_of(name, registers)))
    return units

# SPDX-License-Identifier: Apache-2.0
"""Memory of a card: address space that takes pages as they are touched. Parts of it may be shared files."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_READ_WRITE = 3
_SHARED, _PRIVATE, _FIXED, _ANONYMOUS, _NO_RESERVE = 1, 2, 0x10, 0x20, 0x4000
_PAGE = 4096

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


class CardMemory:
    """`size` bytes from address 0 on. Addresses outside raise IndexError."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._shared: dict[int, tuple[int, Path]] = {}
        self._base = self._map(None, size, _PRIVATE | _ANONYMOUS | _NO_RESERVE, -1)

    def pointer(self, address: int, size: int = 0) -> int:
        """Where a byte of the card is in this process."""
        if address < 0 or address + size > self.size:
            raise IndexError(f"{size} bytes at {address:#x} are outside the card's memory")
        return self._base + address

    def write(self, address: int, data: bytes) -> None:
        ctypes.memmove(self.pointer(address, len(data)), data, len(data))

    def read(self, address: int, size: int) -> bytes:
        return ctypes.string_at(self.pointer(address, size), size)

    def share(self, address: int, size: int, path: Path) -> None:
        """Put a new file in place of a range, so that other processes see the same bytes. Whole pages."""
        size = -(-size // _PAGE) * _PAGE
        with path.open("xb") as file:
            file.truncate(size)
        self.attach(address, size, path)
        self._shared[address] = (size, path)

    def attach(self, address: int, size: int, path: Path) -> None:
        """Put an existing file in place of a range."""
        file = os.open(path, os.O_RDWR)
        try:
            self._map(self.pointer(address, size), size, _SHARED | _FIXED, file)
        finally:
            os.close(file)

    def release(self, address: int) -> None:
        """Take the file of a range away; other ranges are left as they are."""
        if address in self._shared:
            size, path = self._shared.pop(address)
            self._map(self.pointer(address), size, _PRIVATE | _ANONYMOUS | _FIXED | _NO_RESERVE, -1)
            path.unlink(missing_ok=True)

    def close(self) -> None:
        for address in list(self._shared):
            self.release(address)

    @staticmethod
    def _map(at: int | None, size: int, flags: int, file: int) -> int:
        base = _libc.mmap(at, size, _READ_WRITE, flags, file, 0)
        if base is None or base == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap of the card's memory")
        return int(base)

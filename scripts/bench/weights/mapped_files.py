"""Mapped files of which a bounded number of bytes stays in the page cache, as a limit of memory would have it.

The kernel reads more than the pages that are missing: it reads ahead, up to a size that the disk's queue states. What
it has read beside a region counts against the bound, too; mincore(2) says what is there. Bringing the page cache below
the bound takes time that a kernel under a limit spends in other ways, so it is kept apart, in `checking_seconds`.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

_RANDOM, _WILL_NEED, _DONT_NEED = mmap.MADV_RANDOM, mmap.MADV_WILLNEED, mmap.MADV_DONTNEED
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIBC = ctypes.CDLL(None, use_errno=True)


def tensor_places(path: Path) -> dict[str, tuple[int, int]]:
    """Byte ranges of the tensors of a *.safetensors in its file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        key: (8 + length + one["data_offsets"][0], 8 + length + one["data_offsets"][1])
        for key, one in header.items()
        if key != "__metadata__"
    }


def on_disk(path: Path) -> bool:
    """False on a file system in memory, whose pages cannot leave it."""
    return os.major(path.stat().st_dev) != 0


class Mapping:
    """A file that this process has mapped at `address`, from byte `begin` to `end`; not in memory at first."""

    def __init__(self, path: Path, address: int, begin: int = 0, end: int | None = None) -> None:
        self.bytes = path.stat().st_size
        self._address, self._begin, self._end = address, begin, self.bytes if end is None else end
        self._descriptor = os.open(path, os.O_RDONLY)
        os.fsync(self._descriptor)  # pages that wait to be written cannot leave the page cache
        self.drop(0, self.bytes)

    def pages(self, begin: int, end: int) -> NDArray[np.bool_]:
        """True for each page between two bytes that is in the page cache; of what is not mapped nothing is."""
        first = begin // _PAGE * _PAGE
        found = np.zeros(-(-(end - first) // _PAGE), np.uint8)
        low, high = max(first, self._begin), min(end, self._end)
        if low < high:
            where, into = ctypes.c_void_p(self._address + low), found[(low - first) // _PAGE :]
            if _LIBC.mincore(where, ctypes.c_size_t(high - low), into.ctypes.data_as(ctypes.c_void_p)):
                raise OSError(ctypes.get_errno(), "mincore")
        return (found & 1).astype(bool)

    def drop(self, begin: int, end: int) -> None:
        """Drop whole pages between two bytes from this process and from the page cache.

        The kernel keeps those that are parts of a large page with neighbours.
        """
        first, last = -(-begin // _PAGE) * _PAGE, end if end == self.bytes else end // _PAGE * _PAGE
        self._advise(first, last, _DONT_NEED)
        os.posix_fadvise(self._descriptor, first, last - first, os.POSIX_FADV_DONTNEED)

    def read_nothing_ahead(self) -> None:
        """From here on a missing page is read alone."""
        self._advise(0, self.bytes, _RANDOM)

    def read_soon(self, begin: int, end: int) -> None:
        """Let the kernel start to read what is missing between two bytes."""
        self._advise(begin, end, _WILL_NEED)

    def _advise(self, begin: int, end: int, advice: int) -> None:
        first, last = max(begin // _PAGE * _PAGE, self._begin), min(end, self._end)
        if first < last and _LIBC.madvise(
            ctypes.c_void_p(self._address + first), ctypes.c_size_t(last - first), advice
        ):
            raise OSError(ctypes.get_errno(), "madvise")


class MappedFile(Mapping):
    """A *.safetensors as safetensors maps it for torch."""

    def __init__(self, path: Path) -> None:
        self.places = tensor_places(path)
        self._file = safe_open(path, "pt")
        name, (begin, _) = next(iter(self.places.items()))
        super().__init__(path, self._file.get_tensor(name).data_ptr() - begin)

    def tensor(self, name: str) -> torch.Tensor:
        """A view of the mapped file."""
        found: torch.Tensor = self._file.get_tensor(name)
        return found


class Region:
    """Bytes of a mapped file that are used together: one or more ranges."""

    def __init__(self, file: int, *ranges: tuple[int, int]) -> None:
        self.file, self.ranges = file, ranges

    @property
    def bytes(self) -> int:
        """All of them."""
        return sum(end - begin for begin, end in self.ranges)


class BoundedPages:
    """Regions of mapped files, of which at most `bound` bytes stay in the page cache, with all that was read ahead.

    What was read ahead and never used leaves first, then what was used longest ago, as a kernel does. `missing_bytes`:
    what the uses have found outside of the page cache; `most_bytes`: the most that it has held after a use.
    """

    def __init__(self, files: Sequence[Mapping], regions: dict[Hashable, Region], bound: int) -> None:
        self._files, self._regions, self._bound = files, regions, bound
        self._of_file = [[key for key, one in regions.items() if one.file == number] for number in range(len(files))]
        self._order: OrderedDict[Hashable, None] = OrderedDict()  # the last one leaves last
        self._left: dict[Hashable, int] = {}  # bytes of a region that the kernel has kept
        self._bytes = [0] * len(files)
        self.hits = self.misses = self.missing_bytes = self.most_bytes = 0
        self.checking_seconds = 0.0

    def use(self, key: Hashable) -> None:
        """The region is read next."""
        began, region = time.perf_counter(), self._regions[key]
        missing = max(0, region.bytes - self._held(region))
        self.hits += missing == 0
        self.misses += missing > 0
        self.missing_bytes += missing
        self._order[key] = None
        self._order.move_to_end(key)
        self.checking_seconds += time.perf_counter() - began

    def advise(self, key: Hashable) -> None:
        """The region is needed soon."""
        region = self._regions[key]
        for begin, end in region.ranges:
            self._files[region.file].read_soon(begin, end)

    def trim(self, key: Hashable) -> None:
        """The region was read: let pages leave until the page cache holds no more than the bound."""
        began = time.perf_counter()
        self._trim([self._regions[key].file])
        self.checking_seconds += time.perf_counter() - began

    def require_bound(self, seconds: float = 1.0) -> None:
        """Wait until what was read ahead has come and has left. Raises RuntimeError if the bound is exceeded then."""
        began = time.perf_counter()
        while (held := self._trim(range(len(self._files)))) > self._bound:
            if time.perf_counter() - began > seconds:
                raise RuntimeError(
                    f"the page cache holds {held:,} bytes of the mapped files, the bound is {self._bound:,}"
                )
            time.sleep(0.01)
        self.most_bytes = max(self.most_bytes, held)
        self.checking_seconds += time.perf_counter() - began

    def counters(self) -> dict[str, float]:
        """For the table; "=" in front: as it is at the end."""
        names = ("hits", "misses", "missing_bytes", "checking_seconds")
        return {name: getattr(self, name) for name in names} | {"=page_cache": self.most_bytes}

    def _trim(self, files: Sequence[int]) -> int:
        """Count the pages of these files, and let pages of all files leave. Returns the bytes that stay."""
        for number in files:
            self._count(number)
        while sum(self._bytes) > self._bound and self._order:
            self._drop(self._order.popitem(last=False)[0])
        return sum(self._bytes)

    def _held(self, region: Region) -> int:
        pages = self._files[region.file].pages
        return sum(int(np.count_nonzero(pages(begin, end))) for begin, end in region.ranges) * _PAGE

    def _drop(self, key: Hashable) -> None:
        region = self._regions[key]
        held = self._held(region)
        for begin, end in region.ranges:
            self._files[region.file].drop(begin, end)
        self._left[key] = self._held(region)
        self._bytes[region.file] -= held - self._left[key]

    def _count(self, number: int) -> None:
        """Count the pages of a file. Regions that were read ahead are those that leave first."""
        pages = self._files[number].pages(0, self._files[number].bytes)
        self._bytes[number] = int(np.count_nonzero(pages)) * _PAGE
        for key in self._of_file[number]:
            region = self._regions[key]
            parts = [pages[begin // _PAGE : -(-end // _PAGE)] for begin, end in region.ranges]
            held = sum(int(np.count_nonzero(part)) for part in parts) * _PAGE
            neighbours = 2 * len(parts) * _PAGE
            if key not in self._order and held > max(self._left.get(key, 0), neighbours):
                self._order[key] = None
                self._order.move_to_end(key, last=False)

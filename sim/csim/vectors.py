"""The file that carries test cases to a C++ testbench; `hls/common/csim.hpp` reads it.

Layout, little endian: 8 bytes `KVCASES1`, then per case a uint32 number of arrays, and per array the length of its name
(uint16), the name, numpy's kind (one character of u, i, f), bytes per item (uint8), number of dimensions (uint8), the
extents (uint64 each) and the items in C order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

MAGIC = b"KVCASES1"

Case: TypeAlias = Sequence[tuple[str, "np.ndarray | int | str"]]


def write(path: Path, cases: Iterable[Case]) -> int:
    """Write the cases and return their number.

    A case is a list of (name, value): an array of integers, booleans (as uint8) or floats (as their bit patterns), an
    int (as one int64) or a text (as uint8). The text named `label` describes the case in reports.
    Raises ValueError for other types and for repeated names.
    """
    count = 0
    with path.open("wb") as file:
        file.write(MAGIC)
        for case in cases:
            names = [name for name, _ in case]
            if len(set(names)) != len(names):
                raise ValueError(f"a case names an array twice: {names}")
            file.write(struct.pack("<I", len(case)))
            for name, value in case:
                file.write(_encode(name, value))
            count += 1
    return count


def _encode(name: str, value: np.ndarray | int | str) -> bytes:
    array = _array(value)
    if array.dtype.kind not in "uif" or array.dtype.itemsize > 8:
        raise ValueError(f"array {name!r} has dtype {array.dtype}, which the container does not carry")
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    head = struct.pack("<H", len(name)) + name.encode() + array.dtype.kind.encode()
    shape = struct.pack(f"<BB{array.ndim}Q", array.dtype.itemsize, array.ndim, *array.shape)
    return head + shape + array.tobytes()


def _array(value: np.ndarray | int | str) -> np.ndarray:
    if isinstance(value, str):
        return np.frombuffer(value.encode(), np.uint8)
    if isinstance(value, int):
        return np.array([value], np.int64)
    return value.view(np.uint8) if value.dtype == np.bool_ else value

"""Queue entries as bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

_CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q"}


class EntryLayout:
    """A layout of kvdrive.abi whose integers are packed in one step: numpy takes several times as long for each field.

    Fields that are arrays are zeros.
    """

    def __init__(self, layout: np.dtype[Any]) -> None:
        assert layout.names is not None
        fields = {name: layout[name] for name in layout.names}
        self.names = [name for name, field in fields.items() if field.shape == ()]
        self._known = frozenset(self.names)
        codes = (f"{one.itemsize}x" if one.shape else _CODES[one.str[1:].lstrip("<|")] for one in fields.values())
        self._struct = struct.Struct("<" + "".join(codes))
        assert self._struct.size == layout.itemsize

    def pack(self, fields: Mapping[str, int]) -> bytes:
        """The bytes of an entry; other fields are 0. Raises struct.error for a number that does not fit its field."""
        assert self._known.issuperset(fields), fields
        return self._struct.pack(*[fields.get(name, 0) for name in self.names])

    def unpack(self, entry: bytes) -> tuple[int, ...]:
        """The integers of an entry, in the order of `names`."""
        return self._struct.unpack(entry)

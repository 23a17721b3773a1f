"""The names of the formats in which drives store K and V."""

from __future__ import annotations

from kvdrive.choices import KV_FORMATS
from kvdrive.errors import InputError
from kvdrive.nvme.wire import RowFormat

_NUMBERS = dict(zip(KV_FORMATS, RowFormat, strict=True))


def named(name: str) -> RowFormat:
    """The format with this name. Raises InputError."""
    if name not in _NUMBERS:
        raise InputError(f"kv_format is {', '.join(KV_FORMATS)}, not {name!r}")
    return _NUMBERS[name]


def name_of(stored_as: RowFormat) -> str:
    """The name by which users know a format."""
    return list(KV_FORMATS)[stored_as]

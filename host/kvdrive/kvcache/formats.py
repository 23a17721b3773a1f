"""How the rows of a session are stored, as one number: `append_options`.

It holds bits of abi.AppendOption, and from bit 8 on the format. Sessions, saved caches and the index carry it.
"""

from __future__ import annotations

from kvdrive.choices import KV_FORMATS
from kvdrive.errors import InputError
from kvdrive.nvme.wire import RowFormat

_SHIFT = 8
_NUMBERS = dict(zip(KV_FORMATS, RowFormat, strict=True))


def named(name: str) -> RowFormat:
    """The format with this name. Raises InputError."""
    if name not in _NUMBERS:
        raise InputError(f"kv_format is {', '.join(KV_FORMATS)}, not {name!r}")
    return _NUMBERS[name]


def name_of(stored_as: RowFormat) -> str:
    """The name by which users know a format."""
    return list(KV_FORMATS)[stored_as]


def joined(options: int, stored_as: RowFormat) -> int:
    """`append_options` of the bits `options` of abi.AppendOption and a format."""
    return options | stored_as << _SHIFT


def format_of(append_options: int) -> RowFormat:
    """The format in `append_options`."""
    return RowFormat(append_options >> _SHIFT)


def command_options(append_options: int) -> int:
    """The bits of abi.AppendOption in `append_options`."""
    return append_options & ((1 << _SHIFT) - 1)

"""Sizes and shares as people write them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from kvdrive.errors import InputError

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def bytes_of(text: str) -> int:
    """Parse a size like 64M or 64 MiB into bytes; a number without a unit is in bytes. Raises InputError."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise InputError(f"'{text}' is no size: write a number, with K, M, G or T behind it")
    size = int(found[1]) << _UNITS[found[2].upper()]
    if size >= 1 << 63:
        raise InputError(f"'{text}' is more than there is: write a smaller size")
    return size


def share_or_bytes(text: str) -> int | Fraction:
    """Parse a share like 50% or a size like 8G. Raises InputError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if not found:
        return bytes_of(text)
    share = Fraction(found[1]) / 100
    if not 0 < share <= 1:
        raise InputError(f"'{text}' is no share: give more than 0% and at most 100%")
    return share


def share_or_bytes_or_auto(text: str) -> int | Fraction | Literal["auto"]:
    """Parse "auto", a share like 50% or a size like 8G. Raises InputError."""
    return "auto" if text.strip() == "auto" else share_or_bytes(text)


def share_or_auto(text: str) -> float | Literal["auto"]:
    """A share of sequences or tokens, or "auto". Raises InputError."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"'{text}' is no share: give a number from 0 to 1, or auto") from error


def count_or_auto(text: str) -> int | Literal["auto"]:
    """A number of parts, or "auto". Raises InputError."""
    if text == "auto":
        return "auto"
    if not text.strip().isdecimal():
        raise InputError(f"'{text}' is no number of parts: write 1, 2 or more, or auto")
    return int(text)

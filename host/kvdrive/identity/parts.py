"""The same rule where there is no model object: files of weights, and engines that compute elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kvdrive.identity import harmless


def of_parts(parts: Mapping[str, Any]) -> bytes:
    """32 bytes that stand for everything in `parts`, which JSON, or `str`, can write down."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).digest()


def counting(config: Any) -> dict[str, Any]:
    """The fields of a configuration that count, as plain values; those of its parts, too."""
    return _counting(config.to_dict())


def _counting(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _counting(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name not in harmless.CONFIG
    }

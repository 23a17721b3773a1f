"""What drives do not hold: pins, quotas, bytes written. A file beside the index, from which a new index begins."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvdrive import private

SUFFIX = ".pins"
_EARLIER = ".lasting"  # as earlier versions called it
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sidecar:
    """`pins`: tenant and slices of each pinned session; `quotas`: bytes by tenant; `counters`: the governor's."""

    pins: list[tuple[str, list[Any]]] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)


def write(index: Path | str, content: Sidecar) -> None:
    """Write the file beside an index, in place of the old one; a failure is logged. An index in memory has none."""
    path = _beside(index)
    if path is None:
        return
    try:
        private.write_text(path, json.dumps(vars(content)))
    except OSError as error:
        log.warning("pins and quotas are in the index only: %s", error)


def read(index: Path | str) -> Sidecar:
    """The file beside an index. Empty where it is damaged or not there."""
    path = _beside(index)
    try:
        found: Any = json.loads(path.read_text()) if path is not None else {}
        pins = [(str(tenant), list(slices)) for tenant, slices in found.get("pins", [])]
        quotas, counters = dict(found.get("quotas", {})), dict(found.get("counters", {}))
    except (OSError, ValueError, TypeError, AttributeError):
        return Sidecar()
    return Sidecar(
        pins,
        {tenant: quota for tenant, quota in quotas.items() if isinstance(quota, int)},
        {name: value for name, value in counters.items() if isinstance(value, int | float)},
    )


def convert(index: Path) -> None:
    """Rename the file of an earlier version, once."""
    earlier, path = index.with_name(index.name + _EARLIER), _beside(index)
    if path is None or path.exists() or not earlier.exists():
        return
    try:
        earlier.rename(path)
    except OSError as error:
        log.warning("pins and quotas stay in %s: %s", earlier, error)
    else:
        log.warning("%s is called %s from now on", earlier, path.name)


def _beside(index: Path | str) -> Path | None:
    return index.with_name(index.name + SUFFIX) if isinstance(index, Path) else None

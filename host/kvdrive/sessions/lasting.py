"""What is not stored on drives: pins, quotas, bytes written. A file beside the index, from which a new index begins."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvdrive import private

if TYPE_CHECKING:
    from kvdrive.sessions.index import Index

SUFFIX = ".lasting"
COUNTERS = ("day", "bytes_today", "bytes_written", "hits", "refused")  # of the governor
log = logging.getLogger(__name__)


def write(index: Index) -> None:
    """Write the file beside the index, in place of the old one; a failure is only said."""
    path = _path(index)
    if path is None or index.made:  # an index that is not filled knows no pins
        return
    content = {
        "pins": [[entry.tenant, entry.slices] for entry in index.pinned()],
        "quotas": index.quotas(),
        "counters": {name: value for name in COUNTERS if (value := index.counter(name, None)) is not None},
    }
    try:
        private.write_text(path, json.dumps(content))
    except OSError as error:
        log.warning("pins and quotas are in the index only: %s", error)


def restore(index: Index) -> None:
    """Give a rebuilt index what the file says. A file that is damaged or not there says nothing."""
    path = _path(index)
    try:
        found: Any = json.loads(path.read_text()) if path is not None else {}
        pins = {(tenant, json.dumps(slices)) for tenant, slices in found.get("pins", [])}
        quotas, counters = dict(found.get("quotas", {})), dict(found.get("counters", {}))
    except (OSError, ValueError, TypeError, AttributeError):
        return
    for tenant, quota in quotas.items():
        if isinstance(quota, int):
            index.set_quota(tenant, quota)
    for name in COUNTERS:
        if isinstance(counters.get(name), int | float):
            index.put_counter(name, counters[name])
    for entry in index.entries():
        if (entry.tenant, json.dumps(entry.slices)) in pins:
            index.set(entry.id, pinned=True)


def _path(index: Index) -> Path | None:
    return index.path.with_name(index.path.name + SUFFIX) if isinstance(index.path, Path) else None

"""Least frequently used, with the counts of earlier runs: popular experts stay from the first token on."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from kvdrive import private
from kvdrive.weights.eviction.base import Key
from kvdrive.weights.eviction.lfu import Lfu

log = logging.getLogger(__name__)


class Prior(Lfu):
    """`path`: the file with the counts of earlier runs; it need not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(_read(path))

    def save(self) -> None:
        """Write the counts, with those of this run, for the next one. A file that cannot be written is logged."""
        rows = [[*key, count] for key, count in sorted(self.counts.items())]
        try:
            private.write_text(self._path, json.dumps(rows))
        except OSError as error:
            log.warning("the uses of experts are not kept for the next run: %s", error)


def _read(path: Path) -> dict[Key, int]:
    """The counts in a file. A missing or damaged one counts nothing: it only guides what stays in memory."""
    try:
        return {(int(module), int(expert)): int(count) for module, expert, count in json.loads(path.read_text())}
    except (OSError, ValueError, TypeError):
        return {}

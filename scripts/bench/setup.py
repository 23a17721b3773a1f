"""What a benchmark gets: its size, its threads, a folder on the disk."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvdrive import private
from kvdrive.errors import InputError
from kvdrive.private import cache_folder
from kvdrive.targets.temporary import temporary_folder

Size = TypeVar("Size")


@dataclass(frozen=True)
class Setup:
    """`quick`: sizes of seconds, which say only that everything works; no result is kept."""

    quick: bool
    threads: int

    def size(self, full: Size, quick: Size) -> Size:
        """The one that is asked for."""
        return quick if self.quick else full

    @contextmanager
    def folder(self, needed: int = 0) -> Iterator[Path]:
        """A new folder in kvdrive's cache folder, removed at the end. Raises InputError without `needed` bytes."""
        place = cache_folder()
        private.make_folder(place)
        if shutil.disk_usage(place).free < needed:
            raise InputError(f"this needs {needed / 2**30:.0f} GiB in {place}: XDG_CACHE_HOME names another disk")
        with temporary_folder(place) as folder:
            yield folder

    def say(self, text: object) -> None:
        """Progress."""
        print(text, file=sys.stderr, flush=True)

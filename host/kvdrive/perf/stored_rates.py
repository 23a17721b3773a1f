"""Measured rates in a JSON file, each under a key that says what was measured and where."""

from __future__ import annotations

import json
import logging
import os
import platform
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from kvdrive import private
from kvdrive.private import cache_folder

if TYPE_CHECKING:
    import torch

Rates = TypeVar("Rates")
_MOST = 256  # entries; the oldest ones leave
log = logging.getLogger(__name__)


class StoredRates:
    """Rates in the file `path`, which may be missing or damaged; None: they are kept nowhere.

    `anew`: what the file has is not used, so that everything is measured and replaced.
    """

    def __init__(self, path: Path | None, *, anew: bool = False) -> None:
        self._path = path
        self._anew = anew

    def get(self, key: str, kind: type[Rates]) -> Rates | None:
        """The rates under `key`, a dataclass of numbers and such dataclasses; None where there are none."""
        return self.all(kind).get(key)

    def all(self, kind: type[Rates]) -> dict[str, Rates]:
        """All rates of this class, by key."""
        known = {} if self._anew else self._known()
        return {key: rates for key, plain in known.items() if (rates := _made(kind, plain)) is not None}

    def put(self, key: str, rates: Any) -> None:
        """Keep rates under a key. A file that cannot be written is logged."""
        if self._path is None:
            return
        known = self._known()
        known.pop(key, None)
        known[key] = asdict(rates)
        try:
            private.make_folder(self._path.parent)
            private.write_text(self._path, json.dumps(dict(list(known.items())[-_MOST:]), indent=1))
        except OSError as error:
            log.warning("measured rates are not kept: %s", error)

    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text()) if self._path is not None else {}
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def of_this_machine(*, anew: bool = False) -> StoredRates:
    """Rates that belong to the machine and to its drives: `rates.json` in the user's cache folder."""
    return StoredRates(cache_folder() / "rates.json", anew=anew)


def fingerprint(device: torch.device | None = None) -> str:
    """What times depend on besides drive and model: the processor, its cores, torch and its threads; and `device`."""
    import torch

    arithmetic = f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}"
    host = f"{processor()}, {os.cpu_count()} cores, torch {arithmetic}, {torch.get_num_threads()} threads"
    if device is None or device.type == "cpu":
        return host
    return f"{host}, {torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type}"


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _made(kind: Any, plain: Any) -> Any:
    """`kind` from plain values; None where they are those of another class."""
    if not isinstance(plain, dict) or plain.keys() != {field.name for field in fields(kind)}:
        return None
    hints = get_type_hints(kind)
    values = {name: _made(hints[name], value) if is_dataclass(hints[name]) else value for name, value in plain.items()}
    return None if any(value is None for value in values.values()) else kind(**values)

"""Which options of a run llama.cpp serves, and how the plugin is told about them. What is not here is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from kvdrive.config import text
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError

_FORMATS = ("f16", "int8", "int4")
_POLICIES = ("exact", "groups")
_SOCKET = ".sock"

# The values of an option that llama.cpp serves. What is not typed, and has its default, is not asked for.
_SERVED: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: True,
    "dtype": lambda value: value == "auto",  # weights stay as they are in the file
    "device": lambda value: value == "cpu",
    "attention": lambda value: value in _POLICIES,
    "ratio": lambda value: True,
    "unread": lambda value: True,
    "active": lambda value: value == "drive",
    "kv_format": lambda value: value in _FORMATS,
    "mini_batches": lambda value: value in ("auto", 1),
    "on_failure": lambda value: value == "raise",
    "overflow": lambda value: value == "error",
    "context": lambda value: True,
    "lookup": lambda value: True,  # of a server
    "engine": lambda value: value == "fast",
    "threads": lambda value: True,
    "folder": lambda value: True,
    "drives": lambda value: value == 1,
    "target": lambda value: value == "cpu" or value.endswith(_SOCKET),
    "cache_bytes": lambda value: True,
    "weights": lambda value: value == "memory",
    "ffn": lambda value: value == "exact",
}
_DEFAULTS = (RunConfig().values(), text.values(text.OPTIONS, {}))  # of the library, of commands


def require_served(config: RunConfig, typed: Collection[str] = ()) -> None:
    """Raises InputError for the first option that llama.cpp does not serve; `typed`: those that were given, by name."""
    for name, value in config.values().items():
        if name not in text.OPTIONS or (name not in typed and any(value == given[name] for given in _DEFAULTS)):
            continue
        serves = _SERVED.get(name)
        if serves is None or not serves(value):
            raise InputError(
                f"llama.cpp does not serve {_named(name, value)}: leave it out, or take `runtime=transformers`"
            )


def drive_variables(config: RunConfig, folder: Path, typed: Collection[str] = ()) -> dict[str, str]:
    """The plugin's variables for a drive in `folder`, or for the one at the socket that is the target."""
    served = config.target.target.endswith(_SOCKET)
    variables = {
        "KVDRIVE_DRIVE": config.target.target if served else str(folder / "drive.kv"),
        "KVDRIVE_FORMAT": config.placement.kv_format,
        "KVDRIVE_ATTENTION": str(config.policy.attention),
    }
    if not served:
        variables["KVDRIVE_THREADS"] = str(config.target.threads)
    if config.policy.ratio is not None:
        variables["KVDRIVE_RATIO"] = str(config.policy.ratio)
    if config.policy.unread:
        variables["KVDRIVE_UNREAD"] = f"{config.policy.unread:.6f}"
    if "cache_bytes" in typed or config.target.cache_bytes:
        variables["KVDRIVE_CACHE"] = str(config.target.cache_bytes)
    return variables


def _named(name: str, value: Any) -> str:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool) and str(value)
    return f"`{name}={value}`" if plain else f"`{name}`"

"""What `kv_connector_extra_config` says to this plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kvdrive.errors import InputError
from kvdrive.prefix.eviction import EVICTIONS

TESTED = ("0.32.0",)
MOST_BLOCKS = 8  # of vLLM, in one stored block
# Read by vLLM itself.
_OF_VLLM = {
    "spec_name",
    "spec_module_path",
    "blocks_per_chunk",
    "block_size",
    "offload_prompt_only",
    "self_describing_kv_events",
}


@dataclass(frozen=True)
class Options:
    """`path`: the file of blocks, or `drive`: one with the Key Value command set. `bytes`: the most that they may have.

    `buffer_bytes`: memory for blocks in transfer from the file; a longer prefix is used as far as it fits.
    `write_buffers`: blocks that are written at the same time. `threads`: reads and writes at the same time. `tenant`:
    tenants share nothing, and this one may have `tenant_bytes`. `daily_bytes`: written in a day before only prefixes
    that are wanted a second time are stored. 0: no bound. `model_fingerprint`: a text that stands for the weights, for
    models that are not a folder. `direct`: blocks go between `path` and the memory of the engine's device without the
    host's.
    Raises InputError.
    """

    path: Path = Path()
    drive: str = ""
    bytes: int = 16 << 30
    buffer_bytes: int = 1 << 30
    write_buffers: int = 4
    threads: int = 4
    eviction: str = "lru"
    tenant: str = ""
    tenant_bytes: int = 0
    daily_bytes: int = 0
    model_fingerprint: str = ""
    direct: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options in `given`."""
        own = {name: value for name, value in given.items() if name not in _OF_VLLM}
        known = {field.name for field in fields(cls)}
        if unknown := sorted(own.keys() - known):
            raise InputError(f"kv_connector_extra_config has no '{unknown[0]}': known are {', '.join(sorted(known))}")
        if bool(own.get("path")) == bool(own.get("drive")):
            raise InputError(
                "kv_connector_extra_config needs either 'path', the file that keeps the blocks, or 'drive', "
                "a drive's file or address"
            )
        numbers = ("bytes", "buffer_bytes", "write_buffers", "threads", "tenant_bytes", "daily_bytes")
        try:
            values: dict[str, int | str | bool] = {
                name: int(value) if name in numbers else value is True if name == "direct" else str(value)
                for name, value in own.items()
            }
        except (TypeError, ValueError) as error:
            raise InputError(f"kv_connector_extra_config: {error}; {', '.join(numbers)} are whole numbers") from error
        least = dict.fromkeys(numbers, 1) | {"tenant_bytes": 0, "daily_bytes": 0}
        if bad := [name for name in numbers if int(values.get(name, least[name])) < least[name]]:
            raise InputError(f"kv_connector_extra_config: '{bad[0]}' must be at least {least[bad[0]]}")
        if own.get("direct", False) not in (True, False):
            raise InputError("kv_connector_extra_config: 'direct' is true or false")
        if values.get("direct") and own.get("drive"):
            raise InputError("kv_connector_extra_config: 'direct' is for 'path', a file: leave it out beside 'drive'")
        if values.get("eviction", "lru") not in EVICTIONS:
            raise InputError(f"there is no eviction policy '{values['eviction']}': choose {', '.join(EVICTIONS)}")
        return cls(**{**values, "path": Path(str(values.get("path", ""))).expanduser()})  # type: ignore[arg-type]


def require_tested(version: str) -> None:
    """Raises InputError for a version of vLLM that this plugin was not tested with."""
    if version.partition("+")[0] not in TESTED:
        raise InputError(
            f"this plugin was tested with vLLM {', '.join(TESTED)} and this is {version}: "
            "the interface that it uses changes between versions, so install a tested one"
        )


def require_vllm() -> None:
    """Raises InputError if vLLM is not installed, or a version that this plugin was not tested with."""
    try:
        import vllm
    except ImportError as missing:
        raise InputError("vLLM is not installed: pip install 'kvdrive[vllm]' in an environment of its own") from missing
    require_tested(vllm.__version__)

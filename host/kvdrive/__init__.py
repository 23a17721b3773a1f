"""KV cache on flash, attention computed in the drive."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvdrive.config.run import RunConfig
    from kvdrive.generation.generate import generate
    from kvdrive.plugins.transformers import attach
    from kvdrive.targets.cpu import CpuDrive
    from kvdrive.targets.emulator import Emulator
    from kvdrive.targets.group import DriveGroup
    from kvdrive.targets.options import DriveOptions

__version__ = version("kvdrive")

# Found on first use: importing kvdrive must not import torch.
_EXPORTS = {
    "attach": "kvdrive.plugins.transformers",
    "DriveOptions": "kvdrive.targets.options",
    "RunConfig": "kvdrive.config.run",
    "generate": "kvdrive.generation.generate",
    "DriveGroup": "kvdrive.targets.group",
    "CpuDrive": "kvdrive.targets.cpu",
    "Emulator": "kvdrive.targets.emulator",
}
__all__ = ["CpuDrive", "DriveGroup", "DriveOptions", "Emulator", "RunConfig", "attach", "generate"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'kvdrive' has no attribute '{name}'")

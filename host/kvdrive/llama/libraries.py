"""Where llama.cpp's libraries and the plugin are on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.llama.functions import FUNCTIONS
from kvdrive.tree import ROOT

FOLDER_VARIABLE, PLUGIN_VARIABLE = "KVDRIVE_LLAMA", "KVDRIVE_LLAMA_PLUGIN"
_PLUGIN = "libggml-kvdrive.so"
_BUILD = ROOT / "build"


@dataclass(frozen=True)
class Libraries:
    """`folder` holds llama.cpp's libraries, `plugin` is the one that keeps K and V in a drive."""

    folder: Path
    plugin: Path

    @property
    def missing(self) -> list[Path]:
        """Files that are not there."""
        wanted = [*(self.folder / name for name in FUNCTIONS), self.plugin]
        return [path for path in wanted if not path.is_file()]


def places() -> Libraries:
    """Where they are expected: as the environment says, otherwise where `make get WHAT=llama-plugin` puts them."""
    folder = os.environ.get(FOLDER_VARIABLE) or _BUILD / "llama" / "bin"
    plugin = os.environ.get(PLUGIN_VARIABLE) or _BUILD / "llama-plugin" / _PLUGIN
    return Libraries(Path(folder).absolute(), Path(plugin).absolute())


def are_there() -> bool:
    """True if all libraries are there."""
    return not places().missing


def find() -> Libraries:
    """The libraries. Raises InputError with the command that installs them."""
    found = places()
    if missing := found.missing:
        raise InputError(
            f"llama.cpp is not installed here, {missing[0]} is missing: run `make get WHAT=llama-plugin` in the source "
            f"tree, or name its folder and the plugin by {FOLDER_VARIABLE} and {PLUGIN_VARIABLE}"
        )
    return found

"""This Python with numpy and kvdrive as files of the guest, which runs the same programs as this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

import kvdrive
from guest.image import shared_objects
from kvdrive import _native

HOME = "python"  # PYTHONHOME in the guest
PACKAGES = "packages"  # PYTHONPATH
COMMAND = (
    f"PYTHONHOME=/{HOME} PYTHONPATH=/{PACKAGES} PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 /{HOME}/bin/python3"
)
MEMORY_MIB = 1536
Files = dict[str, tuple[bytes, bool]]

# Parts of the library that no program of the tests imports.
_LEFT_OUT = {
    "__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "turtledemo",
    "pydoc_data", "include",
}  # fmt: skip


def python_files() -> Files:
    """The interpreter, its library, numpy, kvdrive and the shared objects that they need."""
    library = Path(sys.base_prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    files: Files = {f"{HOME}/bin/python3": (Path(sys.executable).resolve().read_bytes(), True)}
    files |= _tree(library, f"{HOME}/lib/{library.name}")
    site = Path(np.__file__).parents[1]
    files |= _tree(site / "numpy", f"{PACKAGES}/numpy") | _tree(site / "numpy.libs", f"{PACKAGES}/numpy.libs")
    files |= _tree(Path(kvdrive.__file__).parent, f"{PACKAGES}/kvdrive")
    native = Path(_native.__file__)
    files[f"{PACKAGES}/kvdrive/{native.name}"] = (native.read_bytes(), True)
    metadata = distribution("kvdrive").read_text("METADATA") or ""
    files[f"{PACKAGES}/kvdrive-{kvdrive.__version__}.dist-info/METADATA"] = (metadata.encode(), False)
    programs = [Path(sys.executable).resolve(), native, *library.glob("lib-dynload/*.so"), *site.glob("numpy/**/*.so")]
    for program in programs:
        for target, source in shared_objects(program, "").items():
            if not source.is_relative_to(site):  # libraries in site-packages are beside numpy, which finds them there
                files[target] = (source.read_bytes(), True)
    return files


def _tree(folder: Path, place: str) -> Files:
    return {f"{place}/{path.relative_to(folder)}": (path.read_bytes(), path.suffix == ".so") for path in _walk(folder)}


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name in _LEFT_OUT or path.is_symlink() or re.match(r"config-\d", path.name):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.suffix != ".a":
            yield path

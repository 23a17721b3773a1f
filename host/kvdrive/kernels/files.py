"""Arrays of a kernel from and to .npz files, checked against the kernel's documented keys."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from kvdrive import abi, private
from kvdrive.errors import InputError
from kvdrive.kernels.registry import Kernel

Arrays = dict[str, Any]

_DTYPES: dict[str, tuple[str, ...]] = {
    "keys": ("float32", "uint32", "float16", "uint16"),
    "pages": ("uint8",),
    "bitmap": ("uint8",),
    "q": ("float16",),
    "k": ("float16",),
    "v": ("float16",),
    "inline_v": ("float16",),
    "p": ("uint32",),
    "scores": ("int32",),
    "tail_scores": ("int32",),
    "inline_scores": ("int32",),
    "valid": ("bool",),
}
_INTEGERS = ("k_top", "rows", "row_bytes", "page_bytes", "r", "l")
_REQUIRED = {
    ("gemv", "rows"): ("q", "k"),
    ("gemv", "columns"): ("q", "k"),
    ("gemv", "accumulate"): ("p", "v"),
    ("attention", "sparf"): ("q", "k", "v", "r", "k_top", "l"),
}


def load(path: Path, kernel: Kernel, mode: str) -> Arrays:
    """Read and check the inputs of `kernel` in `mode`. Raises InputError with the key at fault."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays: Arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as an .npz file: {error}") from error
    unknown = sorted(set(arrays) - set(kernel.inputs))
    if unknown:
        raise InputError(
            f"{path}: {kernel.name} has no input {', '.join(unknown)}; it takes {', '.join(kernel.inputs)}"
        )
    for name, array in arrays.items():
        arrays[name] = _checked(path, name, array)
    required = _REQUIRED.get((kernel.name, mode), tuple(key for key in kernel.inputs if key not in kernel.optional))
    missing = [key for key in required if key not in arrays]
    if missing:
        raise InputError(f"{path}: missing {', '.join(missing)} for {kernel.name} {mode}".rstrip())
    _check_shapes(path, kernel.name, mode, arrays)
    return arrays


def _checked(path: Path, name: str, array: np.ndarray[Any, Any]) -> Any:
    if name in _INTEGERS or name == "scale":
        if array.ndim or array.dtype.kind not in ("iu" if name in _INTEGERS else "iuf"):
            raise InputError(f"{path}: {name} must be one {'integer' if name in _INTEGERS else 'number'}")
        value = array.item()
        if name in _INTEGERS and not 0 <= value < 1 << 32:
            raise InputError(f"{path}: {name} = {value} is outside 0..2^32-1")
        return value
    if array.dtype.name not in _DTYPES[name]:
        raise InputError(f"{path}: {name} is {array.dtype.name}, expected {' or '.join(_DTYPES[name])}")
    if name == "p" and not _are_probabilities(array):
        bits = abi.EXP2_BITS + 1
        raise InputError(f"{path}: p must be at most 2^{abi.P_FRACTION_BITS}, with at most {bits} significant bits")
    return np.ascontiguousarray(array)


def _are_probabilities(p: np.ndarray[Any, Any]) -> bool:
    """True if every value fits the width of softmax's output, which is also the width of the multipliers."""
    wide = p.astype(np.int64)
    lowest = wide & -wide
    return bool((wide <= 1 << abi.P_FRACTION_BITS).all() and (wide <= lowest * ((2 << abi.EXP2_BITS) - 1)).all())


def _check_shapes(path: Path, name: str, mode: str, a: Arrays) -> None:
    """One set of names for the axes of all inputs: every name must have one length."""
    axes = {
        "argtopk": {"keys": "n"},
        "page_filter": {"pages": "b", "bitmap": "c"},
        "gemv": {"p": "gs", "v": "sd"} if mode == "accumulate" else {"q": "gd", "k": "sd"},
        "softmax": {"scores": "s", "valid": "s", "tail_scores": "t"},
        "attention": {"q": "gd", "k": "sd", "v": "sd", "valid": "s", "inline_scores": "gt", "inline_v": "td"},
    }[name]
    lengths: dict[str, tuple[int, str]] = {}
    for key, names in axes.items():
        if key not in a:
            continue
        if a[key].ndim != len(names):
            raise InputError(f"{path}: {key} has {a[key].ndim} dimensions, expected [{', '.join(names)}]")
        for axis, length in zip(names, a[key].shape, strict=True):
            first, owner = lengths.setdefault(axis, (length, key))
            if length != first:
                raise InputError(f"{path}: {key} and {owner} differ in {axis}: {length} and {first}")
    if name == "attention" and ("inline_scores" in a) != ("inline_v" in a):
        raise InputError(f"{path}: inline_scores and inline_v come together")
    if name == "page_filter" and a["bitmap"].size * 8 < a["rows"]:
        raise InputError(f"{path}: bitmap holds {a['bitmap'].size * 8} bits for {a['rows']} rows")


def save(path: Path, arrays: Arrays) -> None:
    """Write the outputs of a kernel, `status` included."""
    try:
        with private.whole_file(path) as stream:
            np.savez(stream, **arrays)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error

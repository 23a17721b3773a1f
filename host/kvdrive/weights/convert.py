"""Checkpoints into files of weights. A conversion that was stopped goes on where it was."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from kvdrive import private
from kvdrive._native import crc32c
from kvdrive.errors import InputError
from kvdrive.weights.bundles import EXPERTS, PAGE, RESIDENT, U8, Array, Part, Table
from kvdrive.weights.manifest import Manifest, header_of, read_front
from kvdrive.weights.neurons import matrices_in
from kvdrive.weights.sources import Source

OnArray = Callable[[int, int], None]  # arrays that are done, and all of them
_PARTIAL = ".partial"


def write(manifest: Manifest, source: Source, path: Path, on_array: OnArray = lambda done, total: None) -> int:
    """Write the file of weights `path`, which appears complete or not at all. Returns the arrays it went on from.

    A stopped conversion leaves `path` + ".partial"; the same call goes on with it. One layer's experts are in memory
    at a time. Raises InputError when the disk is too small, before anything is written, and while another conversion
    writes the file.
    """
    partial = path.with_name(path.name + _PARTIAL)
    private.make_folder(path.parent)
    _require_space(partial, manifest)
    with _alone(partial) as file:
        ready, table = _resume(file, partial, manifest)
        if not ready:
            file.truncate(0)
            _begin(file, manifest)
        for number, array in enumerate(manifest.arrays):
            if number >= ready:
                _write_array(file, array, manifest, source, table)
                if array.kind != RESIDENT or number + 1 == len(manifest.arrays):  # the others are small
                    _mark(file, manifest, table, number + 1)
            on_array(number + 1, len(manifest.arrays))
        partial.replace(path)
        private.flush_folder(path.parent)
    return ready


@contextmanager
def _alone(partial: Path) -> Iterator[BinaryIO]:
    """The file `partial`, locked. Raises InputError while another conversion has it."""
    with os.fdopen(private.open_descriptor(partial, os.O_RDWR), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(file.fileno()), partial.stat())
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:  # locked, or the other conversion has ended since the file was opened
            raise InputError(f"another conversion writes {partial}: wait for it, or choose another `weights_file`")
        yield file


def _resume(file: BinaryIO, partial: Path, manifest: Manifest) -> tuple[int, Table]:
    """How many arrays of an earlier conversion of the same checkpoint are there, and the table of checksums."""
    empty = np.zeros(manifest.pieces, np.uint32)
    try:
        header, found, table = read_front(file, partial)
    except (OSError, InputError):
        return 0, empty
    return (header.ready, table.copy()) if found == manifest else (0, empty)


def _require_space(partial: Path, manifest: Manifest) -> None:
    """Raises InputError when the disk has less space left than the file still needs."""
    there = partial.stat().st_blocks * 512 if partial.exists() else 0
    free, needed = shutil.disk_usage(partial.parent).free, manifest.file_bytes - there
    if free < needed:
        raise InputError(
            f"the weights take {manifest.file_bytes / 2**20:,.1f} MiB and the disk of {partial.parent} has "
            f"{free / 2**20:,.1f} MiB left: free some space, or name another disk with `weights_file`"
        )


def _begin(file: BinaryIO, manifest: Manifest) -> None:
    """Take the space, and write the manifest and a header that says that no array is ready. Raises InputError."""
    try:
        os.posix_fallocate(file.fileno(), 0, manifest.file_bytes)
    except OSError as error:
        size = f"{manifest.file_bytes / 2**20:,.1f} MiB"
        raise InputError(f"the disk has no {size} for the weights ({error.strerror}): free some space") from error
    file.seek(PAGE)
    file.write(manifest.to_bytes())
    _mark(file, manifest, np.zeros(manifest.pieces, np.uint32), 0)


def _mark(file: BinaryIO, manifest: Manifest, table: Table, ready: int) -> None:
    """Make data and table durable, then the header that counts `ready` arrays."""
    header = header_of(manifest, ready)
    file.seek(header.table_offset)
    file.write(table.tobytes())
    _sync(file)
    file.seek(0)
    file.write(header.to_page())
    _sync(file)


def _write_array(file: BinaryIO, array: Array, manifest: Manifest, source: Source, table: Table) -> None:
    """All bundles of an array, and their checksums into `table`."""
    tensors = {part: _tensor(array, part, source) for part in array.parts}
    piece = array.first_piece
    file.seek(array.offset)
    for index in range(array.count):
        bundle = np.zeros(array.stride, np.uint8)
        for part, tensor in tensors.items():
            one = tensor if array.kind == RESIDENT else tensor[index]
            bundle[part.offset : part.offset + part.bytes] = part.encode(one)
        for data in _pieces(bundle, manifest.piece_bytes):
            table[piece] = crc32c(data)
            piece += 1
        file.write(bundle.data)


def _tensor(array: Array, part: Part, source: Source) -> torch.Tensor:
    """A part of all bundles of an array, [bundles, ...]; of a resident tensor, that tensor."""
    if array.kind == RESIDENT:
        return source.read(part.name)
    if array.kind == EXPERTS:
        return source.read(f"{array.name}.{part.name}")
    *others, last = (source.read(f"{array.name}.{name}") for name in matrices_in(part.name))
    rows = torch.cat([*others, last.T], dim=1)
    missing = array.count * part.shape[0] - len(rows)
    return torch.nn.functional.pad(rows, (0, 0, 0, missing)).view(array.count, *part.shape)


def _pieces(bundle: U8, piece_bytes: int) -> Iterator[U8]:
    for begin in range(0, len(bundle), piece_bytes):
        yield bundle[begin : begin + piece_bytes]


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fdatasync(file.fileno())

"""The beginning of a file of weights: a header page, the manifest as JSON, and the table of checksums.

The header is written last, so a file whose conversion was stopped says how much of it is there. All numbers are little
endian; docs/design/runtime.md has the layout.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kvdrive._native import crc32c
from kvdrive.errors import InputError
from kvdrive.weights.bundles import EXPERTS, NEURONS, PAGE, RESIDENT, Array, Table, rounded_up

MAGIC = b"KVDRIVEW"
VERSION = 1
_HEADER = struct.Struct("<8sIIQQQI")  # magic, version, CRC of the manifest, its bytes, pieces, arrays there, CRC
_TABLE_ENTRY = 4


@dataclass(frozen=True)
class Manifest:
    """What a file of weights holds. `config` and `source` identify the model and its checkpoint (`fingerprint`)."""

    model_type: str
    config: str
    source: str
    piece_bytes: int
    arrays: tuple[Array, ...]

    @property
    def pieces(self) -> int:
        """Checksums in the table."""
        return sum(array.count * array.pieces_of_bundle(self.piece_bytes) for array in self.arrays)

    @property
    def experts(self) -> tuple[Array, ...]:
        """The modules whose experts are read on demand, in the order of the model."""
        return tuple(array for array in self.arrays if array.kind == EXPERTS)

    @property
    def neurons(self) -> tuple[Array, ...]:
        """The feed-forward parts whose neurons are read on demand, in the order of the model."""
        return tuple(array for array in self.arrays if array.kind == NEURONS)

    @property
    def resident(self) -> tuple[Array, ...]:
        """The tensors that stay in memory."""
        return tuple(array for array in self.arrays if array.kind == RESIDENT)

    @property
    def file_bytes(self) -> int:
        """Bytes of the whole file."""
        return max((array.offset + array.bytes for array in self.arrays), default=0)

    def to_bytes(self) -> bytes:
        """As JSON, the same bytes for the same manifest."""
        fields = {
            "model_type": self.model_type,
            "config": self.config,
            "source": self.source,
            "piece_bytes": self.piece_bytes,
            "arrays": [array.as_json() for array in self.arrays],
        }
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Manifest:
        """The manifest of this JSON. Raises ValueError, KeyError, TypeError for anything else."""
        fields = json.loads(text)
        arrays = tuple(Array.from_json(array) for array in fields["arrays"])
        return cls(fields["model_type"], fields["config"], fields["source"], fields["piece_bytes"], arrays)


@dataclass(frozen=True)
class Header:
    """The header page. `ready`: arrays that are complete in the file."""

    manifest_crc: int
    manifest_bytes: int
    pieces: int
    ready: int

    def to_page(self) -> bytes:
        """As a page, with its own checksum."""
        fields = (MAGIC, VERSION, self.manifest_crc, self.manifest_bytes, self.pieces, self.ready)
        page = bytearray(PAGE)
        _HEADER.pack_into(page, 0, *fields, 0)
        checksum = crc32c(np.frombuffer(bytes(page), np.uint8))
        _HEADER.pack_into(page, 0, *fields, checksum)
        return bytes(page)

    @classmethod
    def from_page(cls, page: bytes, path: Path) -> Header:
        """The header in this page. Raises InputError."""
        if len(page) < PAGE or not page.startswith(MAGIC):
            raise InputError(f"{path} is no file of weights: `kvdrive convert` writes one")
        _, version, manifest_crc, manifest_bytes, pieces, ready, checksum = _HEADER.unpack_from(page)
        blank = bytearray(page)
        blank[_HEADER.size - 4 : _HEADER.size] = bytes(4)
        if version != VERSION:
            raise InputError(f"{path} has version {version} of the format, and this is {VERSION}: convert it again")
        if crc32c(np.frombuffer(bytes(blank), np.uint8)) != checksum:
            raise InputError(f"the header of {path} is damaged: convert the checkpoint again")
        return cls(manifest_crc, manifest_bytes, pieces, ready)

    @property
    def table_offset(self) -> int:
        """Byte offset of the table of checksums."""
        return PAGE + rounded_up(self.manifest_bytes, PAGE)


def data_offset(manifest_bytes: int, pieces: int) -> int:
    """Byte offset of the first bundle."""
    return PAGE + rounded_up(manifest_bytes, PAGE) + rounded_up(pieces * _TABLE_ENTRY, PAGE)


def header_of(manifest: Manifest, ready: int) -> Header:
    """The header of a file with this manifest."""
    text = manifest.to_bytes()
    return Header(crc32c(np.frombuffer(text, np.uint8)), len(text), manifest.pieces, ready)


def read_front(file: BinaryIO, path: Path) -> tuple[Header, Manifest, Table]:
    """Header, manifest and table of checksums of an open file. Raises InputError for damage."""
    file.seek(0)
    header = Header.from_page(file.read(PAGE), path)
    text = file.read(header.manifest_bytes)
    if len(text) != header.manifest_bytes or crc32c(np.frombuffer(text, np.uint8)) != header.manifest_crc:
        raise InputError(f"the manifest of {path} is damaged: convert the checkpoint again")
    try:
        manifest = Manifest.from_bytes(text)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds a manifest that this version does not know: convert it again") from error
    file.seek(header.table_offset)
    table = np.frombuffer(file.read(_TABLE_ENTRY * header.pieces), np.uint32)
    if manifest.pieces != header.pieces or len(table) != header.pieces:
        raise InputError(f"the table of checksums of {path} is not complete: convert the checkpoint again")
    return header, manifest, table

"""Weights as values of a drive (namespace 4), beside K and V on the same flash.

The front of the file of weights (header, manifest, checksums) is one value; the bundles of each array follow in values
of up to 256 MiB. The front is stored last, so weights whose copy was stopped are not there. Keys begin with the
fingerprint of the model's configuration: a drive holds the weights of many models, one set for each.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvdrive import abi
from kvdrive._native import crc32c
from kvdrive.errors import InputError, TargetError
from kvdrive.nvme import wire
from kvdrive.nvme.errors import CommandError, MissingKeyError
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.weights.bundles import U8, Array, Table
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.manifest import Manifest, data_offset, read_front

OnArray = Callable[[int, int], None]  # arrays that are done, and all of them
VALUE_BYTES = 256 << 20  # of the bundles in one value, unless one bundle is larger
_PREFIX, _DIGITS = b"kvw", 18  # the fingerprint's first 9 bytes
_PREFIX_BYTES = 12  # of a key; the others are a number
_FRONT = 0xFFFFFFFF
_PART_BITS = 8  # values of an array


@dataclass(frozen=True)
class Place:
    """Where a bundle lies: byte `offset` of the value `key`."""

    key: bytes
    offset: int


def front_key(config: str) -> bytes:
    """The key of the front of a model's weights; `config`: the fingerprint of its configuration (`fingerprint`)."""
    return _key(config, _FRONT)


def bundles_in_value(array: Array) -> int:
    """Bundles of an array in each of its values but the last."""
    return max(1, VALUE_BYTES // array.stride)


def place_of(manifest: Manifest, array: Array, index: int) -> Place:
    """Where bundle `index` of an array of the manifest lies."""
    each = bundles_in_value(array)
    number = manifest.arrays.index(array) << _PART_BITS | index // each
    return Place(_key(manifest.config, number), index % each * array.stride)


def _key(config: str, number: int) -> bytes:
    return _PREFIX + bytes.fromhex(config[:_DIGITS]) + number.to_bytes(4, "big")


def store(file: WeightsFile, values: KeyValueNamespace, on_array: OnArray = lambda done, total: None) -> None:
    """Copy complete weights to a drive, in place of those of the same model. They survive a loss of power then.

    Each bundle is checked on the way. Raises InputError for a drive that is too small, and for bundles of more than
    1 GiB; TargetError. Without an error, or with one after the first array, earlier weights of the model are gone.
    """
    manifest = file.manifest
    if any(array.stride > wire.MAX_VALUE_BYTES for array in manifest.arrays):
        raise InputError(f"a bundle of {file.path} is larger than 1 GiB, the largest value of a drive")
    values.delete(front_key(manifest.config))
    values.flush()
    prefix = front_key(manifest.config)[:_PREFIX_BYTES]
    for key in list(itertools.takewhile(lambda key: key.startswith(prefix), values.keys(prefix))):
        values.delete(key)  # what an earlier copy has left
    try:
        for number, array in enumerate(manifest.arrays):
            for first in range(0, array.count, bundles_in_value(array)):
                _store_bundles(file, values, array, first)
            on_array(number + 1, len(manifest.arrays))
        values.store(front_key(manifest.config), _front(file), durable=True)
    except CommandError as error:
        if error.status != abi.NvmeStatus.CAPACITY_EXCEEDED:
            raise
        raise InputError(
            f"the drive has no room for the weights, which take {manifest.file_bytes / 2**20:,.1f} MiB beside K and V: "
            "take a larger drive, or remove sessions and values"
        ) from error


def _store_bundles(file: WeightsFile, values: KeyValueNamespace, array: Array, first: int) -> None:
    """One value: the bundles of an array from `first` on."""
    count = min(bundles_in_value(array), array.count - first)
    memory = aligned(count * array.stride)
    tickets = [file.start(array, first + i, memory[i * array.stride : (i + 1) * array.stride]) for i in range(count)]
    for i, ticket in enumerate(tickets):
        file.wait(ticket, array, first + i)
    values.store(place_of(file.manifest, array, first).key, memory)


def _front(file: WeightsFile) -> bytes:
    """Header, manifest and checksums, as they are in the file."""
    with file.path.open("rb") as stored:
        return stored.read(data_offset(len(file.manifest.to_bytes()), file.manifest.pieces))


def read_manifest(values: KeyValueNamespace, config: str, place: str) -> tuple[Manifest, Table]:
    """Manifest and checksums of a model's weights on a drive. Raises InputError where they are not, TargetError."""
    try:
        front = values.retrieve(front_key(config))
    except MissingKeyError as error:
        raise InputError(
            f"{place} does not hold the weights of this model: `kvdrive convert --drive` puts them there"
        ) from error
    header, manifest, table = read_front(io.BytesIO(front), Path(place))
    if header.ready < len(manifest.arrays):
        raise InputError(f"the weights in {place} are not complete: convert the checkpoint again")
    return manifest, table


def check_complete(values: KeyValueNamespace, manifest: Manifest, place: str) -> None:
    """Raises InputError if a value of the weights is missing or shorter than its bundles, TargetError."""
    for array in manifest.arrays:
        each = bundles_in_value(array)
        for first in range(0, array.count, each):
            wanted = min(each, array.count - first) * array.stride
            try:
                found = values.size(place_of(manifest, array, first).key)
            except MissingKeyError:
                found = 0
            if found != wanted:
                raise InputError(
                    f"the weights in {place} are truncated: {array.name} has {found:,} of {wanted:,} bytes; convert "
                    "the checkpoint again"
                )


def checked(data: U8, array: Array, table: Table, index: int, piece_bytes: int, place: str) -> None:
    """Compare a bundle with its checksums. Raises TargetError."""
    pieces = array.pieces_of_bundle(piece_bytes)
    for number in range(pieces):
        piece = np.ascontiguousarray(data[number * piece_bytes : (number + 1) * piece_bytes])
        if crc32c(piece) != table[array.first_piece + index * pieces + number]:
            raise TargetError(
                f"bundle {index} of {array.name} in {place} is damaged (piece {number}): convert the checkpoint again"
            )

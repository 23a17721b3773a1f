"""Sessions as files: K, V, tokens and record, for another drive or another machine.

The file is an uncompressed .npz, whose parts carry checksums. K and V are read by KV_READ, so that damaged groups
are not exported, and get new groups when they are imported; the index entry follows when they are durable.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi, private
from kvdrive.errors import InputError
from kvdrive.kvcache.backing import drop
from kvdrive.kvcache.drive_sequence import DriveSequence, places_of
from kvdrive.kvcache.slices import gather
from kvdrive.prefix.chain import GrowingChain
from kvdrive.prefix.entry import Entry, describe
from kvdrive.prefix.metadata import Metadata, read_tokens
from kvdrive.prefix.record import Record
from kvdrive.prefix.stored import StoredSessions
from kvdrive.targets.group import split

_VERSION = 1


def export(stored: StoredSessions, entry: Entry, path: Path) -> int:
    """Write a session to `path`. Returns its bytes of K and V. Raises InputError, CommandError, TargetError."""
    record = Record.of(entry.record)
    if record.inputs is not None:
        raise InputError(
            "the session holds layer inputs, whose K and V another machine may round otherwise: export one that was "
            "saved without X-cache"
        )
    if record.state is not None:
        raise InputError(
            "the session has a state of its model's layers in memory, which a file does not hold: let the "
            "other machine compute it"
        )
    sequence = stored.open(entry)
    head = {"version": _VERSION, "record": asdict(replace(record, part=0, first=0, last=0))}
    tokens = sequence.each(lambda session: read_tokens(session, entry.tokens + record.removed))[0]
    size = 0
    try:
        with private.whole_file(path) as whole, zipfile.ZipFile(whole, "w") as file:
            _put(file, "head", np.frombuffer(json.dumps(head).encode(), np.uint8))
            _put(file, "tokens", np.array(tokens, np.uint32))
            for layer, kind, _, head_dim in record.lists():
                rows = np.concatenate(gather(sequence.start_read(layer, kind, entry.tokens, head_dim)))
                _put(file, _part(kind, layer), rows)
                size += rows.nbytes
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    return size


def import_file(stored: StoredSessions, path: Path, name: str = "") -> int:
    """Store the session of a file on the drives, as `name` if one is given. Returns its number.

    Raises InputError for a file that is damaged or a name that is taken, CommandError, TargetError.
    """
    try:
        with np.load(path) as file:
            head = json.loads(file["head"].tobytes())
            if head["version"] != _VERSION:
                raise InputError(f"{path} was exported by another version: export it again")
            return _store(stored, Record(**head["record"]), file, name)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no exported session, or damaged: export it again") from error


def _store(stored: StoredSessions, record: Record, file: Any, name: str) -> int:
    backing, index = stored.backing, stored.index
    tokens: list[int] = file["tokens"].tolist()
    held, _ = record.split(tokens)
    heads = max(layer["kv_heads"] for layer in record.layers)
    parts = split(1, heads, len(backing.queues))[0]
    record = replace(record, name=name or record.name, parts=len(parts))
    if record.name and index.named(record.name, record.tenant) is not None:
        raise InputError(f"there is a session '{record.name}' already: choose another name")
    sequence = DriveSequence.open(backing.queues, parts, record.append_options, bytes.fromhex(record.model))
    try:
        for layer in record.indices:
            k, v = (file[_part(kind, layer)] for kind in abi.KvKind)
            sequence.append(layer, 0, k, v, lambda seconds: None).wait()
        Metadata().write(sequence.slices, record, tokens)
        backing.flush()
    except BaseException:
        drop([sequence])
        raise
    keys = GrowingChain(record.chain)
    keys.extend(held)
    entry = describe(record, places_of(sequence, backing.queues), held, keys)
    with index.transaction():
        return index.add(entry, keys.keys)


def _part(kind: abi.KvKind, layer: int) -> str:
    return f"{'k' if kind == abi.KvKind.KEYS else 'v'}{layer}"


def _put(file: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with file.open(f"{name}.npy", "w", force_zip64=True) as part:
        np.lib.format.write_array(part, array)

"""Caches that outlive their process. The sessions stay on the drives; a file has the record of each row, and its place.

It does for batches, padding and positions of all kinds what the index does for single sequences, whose records it
shares. It is written after the drives have made everything durable, and replaces the old one atomically. If the process
is killed at any moment, the last saved state remains. Sessions carry the model's fingerprint on the drive itself.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kvdrive import private
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.kvcache import formats, states
from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.drive_sequence import places_of, stored_at
from kvdrive.kvcache.history import Call
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.rows import format_of
from kvdrive.prefix.layouts import Layouts
from kvdrive.prefix.record import Record
from kvdrive.prefix.verify import as_stored

log = logging.getLogger(__name__)
_VERSION, _EARLIER = 4, 3


def save(batch: Batch, path: Path) -> None:
    """Make the batch durable and describe it in `path`. This process can go on using it.

    What layers in memory hold is in the file itself. Raises UnsupportedError when its tokens are not known, or a layer
    holds something that cannot be stored, CommandError, TargetError, OSError.
    """
    if not batch.drive_layers:
        raise UnsupportedError("no layer of this cache is on drives: it cannot be saved on them")
    ids, mask, positions = batch.token_ids(), batch.history.last_mask(), batch.history.position_ids()
    if batch.removals and positions is not None:
        raise UnsupportedError("a cache that lost tokens is saved only if its positions are the numbers of its tokens")
    batch.write_all()
    shared, layer = batch.part.shared, batch.drive_layers[0]
    shared.backing.flush()
    layouts = Layouts(shared.backing, (layer.kv_heads, layer.head_dim), "", int(shared.append_options))
    rows = [
        {
            "record": asdict(layouts.record(batch, row)),
            "slices": places_of(sequence, shared.backing.alive),
            "positions": sequence.positions if isinstance(sequence, InputSequence) else None,
        }
        for row, sequence in enumerate(batch.sequences)
    ]
    content = {
        "version": _VERSION,
        "drives": len(shared.backing.alive),
        "rows": rows,
        "token_ids": ids.tolist(),
        "mask": None if mask is None else mask.long().tolist(),
        "positions": None if positions is None else positions.tolist(),
        "state": None if batch.is_on_drives else b64encode(states.pack(batch.others)).decode(),
    }
    private.make_folder(path.parent)
    private.write_text(path, json.dumps(content))
    batch.saved_at = path
    batch.retain()


def reopen(batch: Batch, path: Path, device: torch.device) -> None:
    """Fill the empty `batch` with what `save` left in `path`, also after a crash of the process that saved it.

    `device`: the model's.

    Raises InputError when the file, the drives or the model are not those, CommandError, TargetError.
    """
    found = _read(path)
    shared, backing, rows = batch.part.shared, batch.part.shared.backing, found["rows"]
    records = [Record(**row["record"]) for row in rows]
    if found["drives"] != len(backing.alive):
        raise InputError(f"{path} lies on {found['drives']} drives, not {len(backing.alive)}: attach those")
    for record in records:
        _check(batch, record, path)
    record = records[0]
    shared.append_options = record.append_options
    try:
        before = [stored_at(row["slices"], backing.alive, shared.append_options) for row in rows]
        labels = {label for sequence in before for label in sequence.each(Session.label)}
    except CommandError as error:
        raise InputError(f"{path} names sessions that the drives do not have: start anew ({error})") from error
    if labels != {backing.label}:
        raise InputError(f"a session that {path} names now belongs to another model: start anew")
    ids = torch.tensor(found["token_ids"])
    held = ids.shape[1] - record.removed
    forks = [
        as_stored(sequence.fork(held), backing, one, held, row["positions"])
        for sequence, one, row in zip(before, records, rows, strict=True)
    ]
    if batch.adopt(forks, ids, record.layers, record.events):
        _restore(batch, found.get("state"), path, device)
    if found["mask"] is not None or found["positions"] is not None:
        mask = None if found["mask"] is None else torch.tensor(found["mask"], dtype=torch.bool)
        positions = None if found["positions"] is None else torch.tensor(found["positions"])
        batch.history.events[-1] = Call(ids, positions, mask, True)
    save(batch, path)
    gather([future for sequence in before for future in sequence.close()])


def _restore(batch: Batch, state: str | None, path: Path, device: torch.device) -> None:
    """Fill the layers in memory. Raises InputError where they are others by now; the batch is empty then."""
    try:
        if batch.others or state is not None:
            states.unpack(b64decode(state or "", validate=True), batch.others, device)
    except (ValueError, TypeError, KeyError) as error:
        batch.truncate(0)
        raise InputError(f"{path} holds layers that this model does not have ({error}): start anew") from error


def _check(batch: Batch, record: Record, path: Path) -> None:
    """Raises InputError where a row cannot be used by this model as it is attached."""
    backing = batch.part.shared.backing
    if record.inputs is not None:
        if backing.xcache is None:
            raise InputError(f"{path} was saved with X-cache: attach the model with it")
        there, here = record.inputs["arithmetic"], backing.xcache.arithmetic()
        if there != here:
            raise InputError(
                f"{path} was saved with X-cache on {there}; here it is {here}: use that setting, so that K and V "
                "become the same bits, or start anew"
            )
    if record.model != backing.label.hex():
        raise InputError(
            f"{path} was saved by another model, other weights or another precision, or with other scales of K and V: "
            "attach that model, or start anew"
        )
    if len(record.layers) != len(batch.drive_layers):
        raise InputError(f"{path} describes {len(record.layers)} layers: it was made by another version")
    if (stored_as := format_of(record.append_options)) != backing.stored_as:
        name = formats.name_of(stored_as)
        raise InputError(f"{path} was saved with K and V as {name}: attach the model with kv_format {name!r}")


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read the saved cache {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is no saved cache: choose another file") from error
    version = found.get("version") if isinstance(found, dict) else None
    if version == _EARLIER:
        log.warning("%s was saved by an earlier version: it is converted", path)
        return found | {"rows": [_converted(found, row) for row in range(len(found["rows"]))]}
    if version != _VERSION:
        raise InputError(f"{path} is no saved cache of this version: choose another file")
    return found


def _converted(found: dict[str, Any], row: int) -> dict[str, Any]:
    """A row of a file of version 3, which had one description for all rows and no records."""
    slices, inputs = found["rows"][row], found["inputs"][row]
    record = Record(
        found["fingerprint"], "", "", found["append_options"], 0, list(range(len(found["layers"]))), found["layers"],
        parts=len(slices), removals=found["removals"],
        inputs=inputs and {"arithmetic": found["arithmetic"], "layers": inputs["layers"]},
    )  # fmt: skip
    return {"record": asdict(record), "slices": slices, "positions": inputs and inputs["positions"]}

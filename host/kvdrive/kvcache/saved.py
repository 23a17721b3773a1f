"""Caches that outlive their process. The sessions stay on the drives; a small file describes where and of which model.

The file is written after the drives have made everything durable, and replaces the old one atomically. If the process
is killed at any moment, the last saved state remains. Sessions carry the model's fingerprint on the drive itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from kvdrive import private
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.kvcache import formats
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.drive_sequence import DriveSequence, places_of, stored_at
from kvdrive.kvcache.history import Call
from kvdrive.kvcache.overflow import Removal
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.errors import CommandError

_VERSION = 3


def save(batch: Batch, path: Path) -> None:
    """Make the batch durable and describe it in `path`. This process can go on using it.

    Raises UnsupportedError when its tokens are not known or not all on drives, CommandError, TargetError, OSError.
    """
    batch.require_on_drives()
    ids = batch.token_ids()
    if batch.removals and batch.history.position_ids() is not None:
        raise UnsupportedError("a cache that lost tokens is saved only if its positions are the numbers of its tokens")
    batch.write_all()
    batch.part.shared.backing.flush()
    _write(path, _describe(batch, ids))
    batch.saved_at = path
    batch.retain()


def reopen(batch: Batch, path: Path) -> None:
    """Fill the empty `batch` with what `save` left in `path`, also after a crash of the process that saved it.

    Raises InputError when the file, the drives or the model are not those, CommandError, TargetError.
    """
    found = _read(path)
    shared, backing = batch.part.shared, batch.part.shared.backing
    _check_inputs(backing, found, path)
    if bytes.fromhex(found["fingerprint"]) != backing.label:
        raise InputError(
            f"{path} was saved by another model, other weights or another precision, or with other scales of K and V: "
            "attach that model, or start anew"
        )
    if found["drives"] != len(backing.alive):
        raise InputError(f"{path} lies on {found['drives']} drives, not {len(backing.alive)}: attach those")
    if len(found["layers"]) != len(batch.drive_layers):
        raise InputError(f"{path} describes {len(found['layers'])} layers: it was made by another version")
    tokens = found["tokens"]
    if formats.format_of(found["append_options"]) != backing.stored_as:
        name = formats.name_of(formats.format_of(found["append_options"]))
        raise InputError(f"{path} was saved with K and V as {name}: attach the model with kv_format {name!r}")
    shared.append_options = found["append_options"]
    try:
        before = [stored_at(row, backing.alive, shared.append_options) for row in found["rows"]]
        labels = {label for sequence in before for label in sequence.each(Session.label)}
    except CommandError as error:
        raise InputError(f"{path} names sessions that the drives do not have: start anew ({error})") from error
    if labels != {backing.label}:
        raise InputError(f"a session that {path} names now belongs to another model: start anew")
    ids = torch.tensor(found["token_ids"])
    removals = [Removal(*one) for one in found["removals"]]
    held = tokens - sum(removal.tokens for removal in removals)
    forks = [
        _restored(backing, sequence.fork(held), held, inputs)
        for sequence, inputs in zip(before, found["inputs"], strict=True)
    ]
    batch.adopt(forks, ids, found["layers"], removals)
    if found["mask"] is not None or found["positions"] is not None:
        mask = None if found["mask"] is None else torch.tensor(found["mask"], dtype=torch.bool)
        positions = None if found["positions"] is None else torch.tensor(found["positions"])
        batch.history.events[-1] = Call(ids, positions, mask, True)
    save(batch, path)
    gather([future for sequence in before for future in sequence.close()])


def _describe(batch: Batch, ids: torch.Tensor) -> dict[str, Any]:
    shared = batch.part.shared
    mask = batch.history.last_mask()
    positions = batch.history.position_ids()
    return {
        "version": _VERSION,
        "fingerprint": shared.backing.label.hex(),
        "drives": len(shared.backing.alive),
        "tokens": ids.shape[1],
        "removals": [[removal.at, removal.tokens] for removal in batch.removals],
        "append_options": int(shared.append_options),
        "rows": [places_of(row, shared.backing.alive) for row in batch.sequences],
        "inputs": [row.describe() for row in batch.sequences],
        "arithmetic": None if shared.backing.xcache is None else shared.backing.xcache.arithmetic(),
        "layers": batch.describe_layers(),
        "token_ids": ids.tolist(),
        "mask": None if mask is None else mask.long().tolist(),
        "positions": None if positions is None else positions.tolist(),
    }


def _check_inputs(backing: Backing, found: dict[str, Any], path: Path) -> None:
    """Raises InputError where rows of the file are stored as layer inputs that cannot be used here."""
    if not any(found["inputs"]):
        return
    if backing.xcache is None:
        raise InputError(f"{path} was saved with X-cache: attach the model with it")
    if found["arithmetic"] != backing.xcache.arithmetic():
        raise InputError(
            f"{path} was saved with X-cache on {found['arithmetic']}; here it is {backing.xcache.arithmetic()}: "
            "use that setting, so that K and V become the same bits, or start anew"
        )


def _restored(backing: Backing, sequence: DriveSequence, tokens: int, inputs: dict[str, Any] | None) -> Sequence:
    """A row as it was saved; `inputs` describes one that is stored as X."""
    if inputs is None:
        return sequence
    assert backing.xcache is not None
    return InputSequence.restored(sequence, backing.xcache, tokens, inputs)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read the saved cache {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is no saved cache: choose another file") from error
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise InputError(f"{path} is no saved cache of this version: choose another file")
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replace the file atomically. Its name is durable when this returns."""
    private.make_folder(path.parent)
    private.write_text(path, json.dumps(content))

"""The prefix store of an attached model."""

from __future__ import annotations

from transformers import PreTrainedModel

from kvdrive.config.resolve import part_of
from kvdrive.config.table import SESSIONS, require
from kvdrive.errors import UnsupportedError
from kvdrive.plugins.batches import Batches
from kvdrive.plugins.storage import Storage
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.prefix.opening import open_store
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.store import PrefixStore


def open_prefix_store(
    model: PreTrainedModel, storage: Storage, batches: Batches, options: SessionOptions
) -> PrefixStore:
    """Open it. Raises InputError, TargetError, UnsupportedError, ConflictError."""
    require([SESSIONS, part_of(storage.policy)])
    identity = storage.watched.identity
    if identity.reason:
        raise UnsupportedError(f"no sessions of this model can be stored: {identity.reason}")
    _, kv_heads, head_dim = heads_of(decoder_config(model))
    store = open_store(storage.backing, (kv_heads, head_dim), batches, options)
    storage.watched.changed = store.model_changed
    return store

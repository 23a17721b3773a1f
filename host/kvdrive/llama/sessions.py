"""Sequences that outlive their process: kept on the drive, found by their tokens, continued without moving a row."""

from __future__ import annotations

from kvdrive.llama.context import Context, Sequence
from kvdrive.llama.kept import KeptSequence
from kvdrive.llama.kept_store import KeptStore


class Sessions:
    """The sessions of a model and its only context. Raises UnsupportedError for a model whose cache cannot be kept."""

    def __init__(self, context: Context, store: KeptStore) -> None:
        assert store.shape, "all layers have one"
        self.store = store
        self._kept = {one.number: KeptSequence(store, one) for one in context.sequences}

    def of(self, sequence: Sequence) -> KeptSequence:
        """One of the context's sequences, as the drive keeps it."""
        return self._kept[sequence.number]

    def forget(self) -> None:
        """Erase all sessions of the drive's index. Raises CommandError, TargetError."""
        self.store.stored.erase([entry.id for entry in self.store.index.entries()])
        for one in self._kept.values():
            one.forget()

"""What a batch has written and read so far."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import asdict
from typing import Any

from kvdrive.kvcache.part import Part
from kvdrive.kvcache.transfers import TransferStats
from kvdrive.kvcache.unread import UnreadMass


class Statistics:
    """Of the rows of `part`, and of `layers`, of which some may be on the host alone."""

    def __init__(self, part: Part, layers: Several[Any]) -> None:
        self._part = part
        self._layers = layers

    def bytes_read(self) -> int:
        """Bytes of K and V that attention has read. On drives, reads for other batches count too."""
        drives = sum(queue.target.stats().kv_bytes_read for queue in self._part.shared.backing.queues)
        return drives + sum(getattr(layer, "bytes_read", 0) for layer in self._layers)

    def writeback(self) -> dict[str, Any] | None:
        """Tokens written and pending, and the statistics below; None where no layer is on drives.

        Waits for the drives. Raises CommandError, TargetError.
        """
        part = self._part
        if not part.layers:
            return None
        part.writeback.land()
        part.writeback.transfers.finish()
        transfers = self.transfers()
        return {
            "spill": part.shared.backing.spill,
            "pending_tokens": part.layers[0].tokens - part.layers[0].stored,
            **asdict(transfers),
            "overlap": transfers.overlap,
            **self.ranges(),
            "xcache": self.inputs(),
            "unread": self.unread_mass(),
        }

    def transfers(self) -> TransferStats:
        """Bytes and times of the transfers of K and V to the drives."""
        return self._part.writeback.transfers.stats()

    def ranges(self) -> dict[str, int]:
        """`heads_scaled`: K and V heads, over layers and rows, that binary16 cannot hold without a power of two;
        `values_lost`: values of K and V that became zero; `values_saturated`: those beyond a scale that the checkpoint
        ships.
        """
        scales = [scale for layer in self._part.layers for scale in (layer.key_scale, layer.value_scale)]
        return {
            "heads_scaled": sum(scale.heads_scaled for scale in scales),
            "values_lost": sum(scale.lost for scale in scales),
            "values_saturated": sum(scale.saturated for scale in scales),
        }

    def inputs(self) -> dict[str, Any] | None:
        """The counters of X-cache (InputStats) and `alpha`, the share of the rows that is stored as X; None without."""
        xcache, sequences = self._part.shared.backing.xcache, self._part.sequences
        if xcache is None:
            return None
        stored = sum(sequence.needs_model for sequence in sequences)
        return {"alpha": stored / max(len(sequences), 1), **asdict(xcache.stats)}

    def unread_mass(self) -> dict[str, float] | None:
        """Share of the softmax that was probably not read: `mean` and `worst` of `steps` decode steps.

        They count from the last `measure_unread_anew` on. None if the policy reads everything, or does not know.
        """
        counted = self._part.shared.counted_unread
        return counted.summary() if counted else None

    def measure_unread_anew(self) -> None:
        """Forget what `unread_mass` has counted."""
        self._part.shared.unread = UnreadMass()

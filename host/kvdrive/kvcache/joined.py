"""One decode step of several batches of one sequence each: one call of the model, a row for each of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvdrive.errors import TargetError
from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.parts import RowsOf
from kvdrive.nvme.errors import CommandError


class JoinedStep:
    """The step of `batches`, no layer of which is on the host alone. `lengths`: their tokens before it."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self.lengths = [batch.length for batch in batches]

    @property
    def parts(self) -> list[RowsOf]:
        """What each row of the call is for."""
        return [(slice(row, row + 1), batch.rows) for row, batch in enumerate(self._batches)]

    def called(self, ids: torch.Tensor, positions: torch.Tensor) -> list[int]:
        """Tell the batches of a call with ids and positions [rows, 1]. Returns the rows that failed and were undone."""
        failed = []
        for row, batch in enumerate(self._batches):
            try:
                batch.called({"input_ids": ids[row : row + 1], "position_ids": positions[row : row + 1]})
            except (CommandError, TargetError):
                self._undo(row)
                failed.append(row)
        return failed

    def undo(self) -> None:
        """Go back to the tokens before the call, in all batches."""
        for row in range(len(self._batches)):
            self._undo(row)

    def _undo(self, row: int) -> None:
        """An append that failed is remembered: the row's next call, which is alone, raises its error and can repair."""
        batch = self._batches[row]
        failed = batch.transfers.failed()
        batch.undo(self.lengths[row])
        if failed:
            batch.transfers.add(0, failed)

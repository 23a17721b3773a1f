"""Completion queue entries as values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.nvme.entries import EntryLayout
from kvdrive.nvme.errors import CommandError

_ENTRY = EntryLayout(abi.Cqe)
_STATUS_MASK = 0x7FF  # status code and status code type


@dataclass(frozen=True)
class Completion:
    """`status`: status code type << 8 | code, 0 on success. `data`: what the drive sent to the host.

    `cause`: why a command failed with INTERNAL_ERROR, where the drive is in this process.
    """

    identifier: int
    status: int
    result: int
    retry: bool
    data: NDArray[np.uint8]
    cause: str = ""

    def check(self, opcode: int) -> Completion:
        """Return this completion. Raises CommandError when the command failed."""
        if self.status:
            raise CommandError(opcode, self.status, self.result, self.retry, self.cause)
        return self


def decode(entry: bytes, data: NDArray[np.uint8]) -> Completion:
    """A 16-byte completion queue entry with the command's data to the host."""
    result, _, _, identifier, word = _ENTRY.unpack(entry)
    return Completion(
        identifier=identifier,
        status=word >> abi.CQE_STATUS_SHIFT & _STATUS_MASK,
        result=result,
        retry=not word & abi.CQE_DO_NOT_RETRY,
        data=data,
    )

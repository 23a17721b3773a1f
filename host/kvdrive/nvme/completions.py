"""Completion queue entries as values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.nvme.errors import CommandError

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
    fields = np.frombuffer(entry, abi.Cqe)[0]
    word = int(fields["status"])
    return Completion(
        identifier=int(fields["cid"]),
        status=word >> abi.CQE_STATUS_SHIFT & _STATUS_MASK,
        result=int(fields["result"]),
        retry=not word & abi.CQE_DO_NOT_RETRY,
        data=data,
    )

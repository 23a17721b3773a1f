"""SparQ attention (Ribar et al., ICML 2024): SparF's choices with a budget that counts the bytes of both passes."""

from __future__ import annotations

from typing import ClassVar

from kvdrive import abi
from kvdrive.policies.base import share
from kvdrive.policies.sparf import SparF


class SparQ(SparF):
    """The rows of the first pass and the tokens of the second each take half of `ratio` of the bytes of K and V.

    So it chooses half as many tokens as SparF at the same ratio. The arithmetic is the same, and the drive runs both
    alike. SparQ was made for memory that reads single rows: the flash pages that it reads exceed its byte budget.
    """

    name: ClassVar[str] = "sparq"

    def chosen(self, tokens: int) -> int:
        count = tokens if self.ratio == 1 else share(tokens, self.ratio / 2)
        return min(count, abi.MAX_TOP_K)

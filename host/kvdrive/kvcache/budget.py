"""How much memory the running sequences of one attached model may take."""

from __future__ import annotations

from dataclasses import dataclass

from kvdrive.errors import UnsupportedError


@dataclass(frozen=True)
class MemoryOptions:
    """`bytes`: K and V of all sequences in memory; 0: no bound. `read_buffer`: loaded before the layers before them
    were computed. `write_buffer`: in transfer to the drives.
    """

    bytes: int = 0
    read_buffer: int = 256 << 20
    write_buffer: int = 64 << 20


class Budget:
    """`limit` bytes, 0: no limit. `used`: what caches have or have claimed for what they will need."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def fits(self, size: int) -> bool:
        """True if so many bytes are free."""
        return not self.limit or self.used + size <= self.limit

    def claim(self, size: int) -> Claim:
        """Claim `size` bytes for one cache. Raises UnsupportedError where they are not free."""
        claim = Claim(self)
        claim.claim(size)
        return claim


class Claim:
    """What one cache may take: first what was claimed, then what is free."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._claimed = 0
        self._used = 0

    def claim(self, size: int) -> None:
        """Claim `size` bytes in all. Raises UnsupportedError."""
        more = size - self._claimed
        if more > 0 and not self._budget.fits(more):
            raise UnsupportedError(
                f"K and V in memory need {self._budget.used + more:,} bytes, and {self._budget.limit:,} are given: "
                "raise `memory`, or attend in the drive with `active=drive`"
            )
        self._budget.used += more
        self._claimed = size

    def reserve(self, size: int) -> None:
        """Take `size` bytes; a negative number gives bytes back, and with them what was claimed and not taken."""
        self._used += size
        if size < 0 or self._used > self._claimed:
            try:
                self.claim(self._used)
            except UnsupportedError:
                self._used -= size
                raise

    def release(self) -> None:
        """The cache is gone."""
        self._used = 0
        self.claim(0)

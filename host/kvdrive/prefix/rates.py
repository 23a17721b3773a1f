"""Measured seconds of one machine from which a request's resume strategy is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rates:
    """Seconds on this machine, for a whole model on its drives. `calibration.measure` makes them.

    `token`: of a prefill, each; `step`: a decode step; both without attention. `pair`: attention in memory, for each
    pair of a prefill's token and a token that it sees; `step_pair`: the same in a decode step. `load_byte`,
    `load_command`: reading K and V. `open`: finding a session, forking it and comparing its tokens. `attend_token`:
    attention in the drive, for each token that asks; `attend_pair`: for each token that it sees.
    """

    token: float
    pair: float
    step: float
    step_pair: float
    load_byte: float
    load_command: float
    open: float
    attend_token: float
    attend_pair: float

    def prefill(self, first: int, tokens: int) -> float:
        """Computing `tokens` tokens behind `first` others that are in memory."""
        return self.token * tokens + self.pair * tokens * (first + (tokens + 1) / 2)


def costs_file(index: Path | str) -> Path | None:
    """Where the rates are stored: beside the index."""
    return index.with_suffix(".costs") if isinstance(index, Path) else None

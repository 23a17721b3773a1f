"""Where a model's weights are, and how they are read from there."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from kvdrive import choices
from kvdrive.errors import InputError
from kvdrive.targets.opening import DriveOptions
from kvdrive.weights.acceptance import Accepted

EXACT = "exact"


@dataclass(frozen=True)
class FlashOptions:
    """`weights`: all of them are in memory; or experts, or the neurons of a dense model, are on flash or on a drive.

    `weights_file`: None for its place in the cache; `weights_copy`: of the file, on another disk (see `WeightsFile`).
    `weights_memory`, `weights_cache`, `look_ahead`, `weights_window` and `accepted`: see `loading.WeightsOptions`.
    `ffn`: "exact", "predictor", or see `cuts.cuts_of`; "drive": the drive that holds the weights computes.
    `on_drive`: the drives whose first one holds the weights, for `weights` "drive" (`RunConfig.stored` fills it in).
    """

    weights_file: Path | None = None
    weights_memory: int | Fraction = Fraction(1, 2)
    weights_cache: str = "lfu"
    look_ahead: choices.LookAhead = "auto"
    weights_window: int = 5
    ffn: str = EXACT
    weights_copy: Path | None = None
    accepted: Accepted = 1.0
    on_drive: DriveOptions | None = None
    weights: Literal["memory", "flash", "drive"] = "flash"

    def __post_init__(self) -> None:
        if self.accepted != "auto" and not 0 < self.accepted <= 1:
            raise InputError(f"`accepted={self.accepted:g}` is no share: give a number above 0 and up to 1, or auto")

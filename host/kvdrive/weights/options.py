"""Where a model's weights are, and how they are read from there."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from kvdrive import choices
from kvdrive.config.option import Needs, option
from kvdrive.config.sizes import share_or_auto, share_or_bytes_or_auto
from kvdrive.errors import InputError
from kvdrive.targets.options import DriveOptions
from kvdrive.weights.acceptance import Accepted
from kvdrive.weights.eviction import EVICTIONS

EXACT, PREDICTOR, DRIVE = "exact", "predictor", "drive"  # of FlashOptions.ffn


_FLASH = Needs("`weights=flash` or `weights=drive`", lambda given: given["weights"] in ("flash", "drive"))
_ANY = Needs("`weights=flash`, `weights=drive` or `weights=stream`", lambda given: given["weights"] != "memory")


@dataclass(frozen=True)
class FlashOptions:
    """Where the weights are, and how they are read; `loading.WeightsOptions` says more.

    `weights_file`: None for its place in the cache. `on_drive`: the drives whose first one holds the weights, for
    `weights` "drive" (`RunConfig.stored` fills it in).
    """

    weights_file: Path | None = option(
        None, "the file that `kvdrive convert` has made; default: in your cache", path="file"
    )
    weights_memory: int | Fraction | Literal["auto"] = option(
        "auto",
        "for all weights, with `weights=flash` and others: a share as 50%, or a size with K, M, G, T; auto: half of "
        "them, or the least that the model needs where that is more",
        read=share_or_bytes_or_auto,
        typed="auto",
        needs=_ANY,
    )
    weights_cache: str = option(
        "lfu",
        f"which expert is evicted from memory. {choices.explained(EVICTIONS)}",
        choices=tuple(EVICTIONS),
        needs=_FLASH,
    )
    look_ahead: choices.LookAhead = option(
        "auto",
        "read the experts that the next layer will probably need while this one computes. auto: while enough of the "
        "guesses are right; on, off: always, never",
        needs=_FLASH,
    )
    weights_window: int = option(
        5, "neurons that none of the last so many tokens used are evicted from memory", low=1, needs=_FLASH
    )
    ffn: str = option(
        EXACT,
        "of dense models on flash. exact; fatrelu:THRESHOLD: activations of a smaller magnitude count as zero; "
        "fatrelu:SHARE as fatrelu:70%: the thresholds of `kvdrive sparsify`; predictor: that of `kvdrive "
        "train-predictor` says which neurons count. drive: the drive of `weights=drive` computes feed-forward parts",
    )
    weights_copy: Path | None = option(
        None, "a copy of this file on another drive: both serve reads, and errors", path="file"
    )
    accepted: Accepted = option(
        1.0,
        "of dense models on flash: neurons that the first tokens of a verifying call used stay in memory. The share of "
        "the tokens, 0 to 1; auto: the share that has been accepted so far",
        read=share_or_auto,
        typed="auto",
        needs=Needs(
            "`assistant` and `weights=flash`",
            lambda given: given["assistant"] and given["weights"] in ("flash", "drive"),
        ),
    )
    on_drive: DriveOptions | None = None
    weights: Literal["memory", "flash", "drive", "stream"] = option(
        "flash",
        "flash: experts, or the neurons of a dense model, are read when a token needs them, with the same tokens; "
        "`kvdrive convert` makes their file. drive: the same from the first drive of `folder` or `target`, beside K "
        "and V; `kvdrive convert --drive` puts them there. stream: layers that do not fit into memory are read in "
        "every call, from the checkpoint's own files",
        typed="memory",
    )

    def __post_init__(self) -> None:
        if self.accepted != "auto" and not 0 < self.accepted <= 1:
            raise InputError(f"`accepted={self.accepted:g}` is no share: give a number above 0 and up to 1, or auto")

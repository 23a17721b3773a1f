"""Dense models whose neurons stay on flash, but for those that recent tokens used."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import torch

from kvdrive.errors import InputError
from kvdrive.weights.acceptance import Acceptance
from kvdrive.weights.loading import WeightsOptions
from kvdrive.weights.managing import Managing
from kvdrive.weights.memory import bytes_in, size
from kvdrive.weights.neurons import SparseSum, activation_of, has_gates, install, neurons_of
from kvdrive.weights.predictor import Predictors, install_predictors
from kvdrive.weights.reader import Reader
from kvdrive.weights.resident import resident_model
from kvdrive.weights.window import Window

LEAST = 16  # a window holds at least one 16th of its layer


class SparseWeights:
    """A model and the file with its neurons. The tokens are those of the model in memory.

    `model` has the resident tensors in `dtype`. `predictors`: what is not foreseen counts as zero. `acceptance` counts
    how drafts were verified. Raises InputError if the memory is too small.
    """

    def __init__(
        self,
        file: Reader,
        config: Any,
        dtype: torch.dtype,
        options: WeightsOptions,
        predictors: Predictors | None = None,
    ) -> None:
        self.file = file
        arrays = file.manifest.neurons
        self._resident = sum(array.bytes_in(dtype) for array in file.manifest.resident)
        self._resident += predictors.bytes if predictors else 0
        self._whole = self._resident + sum(array.count * array.bytes_in(dtype) for array in arrays)
        share = self._share(options.memory, dtype)
        self.model = resident_model(file, config, dtype)
        gates = has_gates(arrays[0].parts[0].name)
        blocks = neurons_of(self.model, gates)
        if [(array.name, array.parts[0].name) for array in arrays] != [(n, b.part) for n, b in blocks.items()]:
            raise InputError(f"{file.path} holds the neurons of another model: convert this one")
        self._managing = Managing(file)
        self._windows = [Window(file, one, max(1, int(one.count * share)), options.window) for one in arrays]
        self.acceptance = Acceptance.of(options.accepted)
        self._sums = []
        for array, window, block in zip(arrays, self._windows, blocks.values(), strict=True):
            activate = activation_of(block.module) if gates else None
            self._sums.append(SparseSum(window, block, array.count, dtype, self._managing, activate))
            self._sums[-1].acceptance = self.acceptance
            install(block, self._sums[-1], predictors.parts[array.name].foreseen if gates and predictors else None)
        if predictors and not gates:
            install_predictors(self.model, predictors)

    def _share(self, memory: int | Fraction | Literal["auto"], dtype: torch.dtype) -> Fraction:
        """The share of its neurons that each layer holds within a budget. Raises InputError."""
        arrays = self.file.manifest.neurons
        stored = sum(array.bytes for array in arrays)
        if not all(part.is_in(dtype) for array in arrays for part in array.parts):
            stored += max(array.count * array.bytes_in(dtype) for array in arrays)  # a window in the other precision
        least = self._resident + stored // LEAST + 1
        limit = bytes_in(memory, self._whole, least)
        share = min(Fraction(1), Fraction(max(0, limit - self._resident), stored))
        if share < Fraction(1, LEAST):
            raise InputError(
                f"{size(limit)} hold less than the resident weights ({size(self._resident)}) and a {LEAST}th of the "
                f"neurons: give `weights_memory={size(least)}` or more; all weights "
                f"take {size(self._whole)}"
            )
        return share

    @property
    def parameters(self) -> int:
        """Numbers in all neurons on flash."""
        return sum(array.count * part.numbers for array in self.file.manifest.neurons for part in array.parts)

    def report(self) -> dict[str, Any]:
        """Counters for the report of a generation; hits and misses count groups of neurons."""
        hits = sum(window.counters.hits for window in self._windows)
        misses = sum(window.counters.misses for window in self._windows)
        active, total = (sum(getattr(one, name) for one in self._sums) for name in ("active", "total"))
        reads = self.file.counters()
        return {
            "bytes": self._whole,
            "resident_bytes": self._resident,
            "neurons_in_memory": sum(window.capacity * window.neurons for window in self._windows),
            "neurons": sum(array.count * array.parts[0].shape[0] for array in self.file.manifest.neurons),
            "active": active / max(1, total),
            "hits": hits,
            "misses": misses,
            "hit_rate": hits / max(1, hits + misses),
            "waited_ns": self.file.waited_ns,
            "managing_ns": self._managing.ns,
            "around_page_cache": self.file.around_cache,
            **{f"flash_{name}": value for name, value in reads.items()},
        }

    def close(self) -> None:
        """Close the file; nothing is in flight between two calls of the model."""
        self.file.close()
        for window in self._windows:
            window.close()

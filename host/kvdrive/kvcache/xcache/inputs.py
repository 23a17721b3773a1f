"""What the X-cache of an attached model shares: the layers' inputs of the call that runs, and counters."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.errors import UnsupportedError
from kvdrive.identity.content import only_looks
from kvdrive.kvcache.xcache.attention import MemoryAttention
from kvdrive.kvcache.xcache.projections import Projections, arithmetic_of
from kvdrive.kvcache.xcache.rows import InputRows
from kvdrive.targets.queue import WorkQueue

Inputs = tuple[torch.Tensor, NDArray[np.int64]]  # X [batch, tokens, width] and positions [batch or 1, tokens]


@dataclass
class InputStats:
    """Bytes of X written and read, seconds of rebuilding K and V, tokens rebuilt (a layer's token counts once each
    time), and numbers of K and V that were stored because a rebuilt one has another last bit."""

    bytes_written: int = 0
    bytes_read: int = 0
    rebuild_seconds: float = 0.0
    tokens_rebuilt: int = 0
    corrected: int = 0


class LayerInputs:
    """The inputs of the attention modules' calls that run now, by layer, noted by hooks until `remove`.

    A call whose inputs nobody takes, such as one without a cache, leaves nothing when it ends, but for calls inside
    `retained`.
    """

    def __init__(self, modules: Mapping[int, torch.nn.Module]) -> None:
        self._latest: dict[int, tuple[torch.Tensor, dict[str, Any]]] = {}
        self._forgets = True
        self._hooks = []
        for layer, module in modules.items():
            self._hooks.append(module.register_forward_pre_hook(self._noter(layer), with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._forgetter(layer), always_call=True))

    def take(self, layer: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """X [batch, tokens, width] of the layer's call and the call's other arguments. Forgets them."""
        return self._latest.pop(layer)

    @contextmanager
    def retained(self) -> Iterator[None]:
        """Inside, the inputs of a call outlive it, until they are taken or the block ends."""
        self._forgets = False
        try:
            yield
        finally:
            self._forgets = True
            self._latest.clear()

    def remove(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _noter(self, layer: int) -> Any:
        def note(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            self._latest[layer] = (x, kwargs)

        return only_looks(note)

    def _forgetter(self, layer: int) -> Any:
        def forget(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._forgets:
                self._latest.pop(layer, None)

        return only_looks(forget)


class XCache:
    """The X-cache of an attached model. `share`: of all sequences that are opened, so many are stored as X.

    K and V are rebuilt, and attended to, in the thread of `worker`.
    """

    def __init__(self, share: float, rows: InputRows, projections: Projections) -> None:
        self.share = share
        self.rows = rows
        self.projections = projections
        self.inputs = LayerInputs(projections.modules)
        self.attention = MemoryAttention(torch.get_num_threads())
        self.worker = WorkQueue(self.attention, "kvdrive-xcache")
        self.stats = InputStats()
        self._first = min(projections.modules)
        self._owed = 0.0  # sequences as X that the share asked for and rounding has not given yet
        self.lock = threading.Lock()  # of the counters

    def sequences_of(self, batch: int) -> int:
        """How many of the next `batch` sequences are stored as X: all that were opened have the share, rounded."""
        return int(self._owed + self.share * batch + 0.5)

    def opened(self, batch: int, as_inputs: int) -> None:
        """Note that `as_inputs` of `batch` new sequences are stored as X."""
        self._owed += self.share * batch - as_inputs

    def call(self, layer: int) -> Inputs:
        """The inputs of the layer's call that runs now.

        Raises UnsupportedError where the call's rotary positions are not those of the table.
        """
        x, kwargs = self.inputs.take(layer)
        rotary = self.projections.rotary
        if rotary is None:
            return x.detach(), np.zeros((1, x.shape[1]), np.int64)
        given = kwargs.get("position_ids")
        if given is None:
            raise UnsupportedError("the model does not tell its layers the positions of tokens: attach without X-cache")
        positions: NDArray[np.int64] = given.detach().cpu().numpy().astype(np.int64)
        if layer == self._first and not self._are_tabled(positions, kwargs["position_embeddings"]):
            raise UnsupportedError("the model's rotary positions are not those of its table: attach without X-cache")
        return x.detach(), positions

    def _are_tabled(self, positions: NDArray[np.int64], given: tuple[torch.Tensor, torch.Tensor]) -> bool:
        """True if rotary `given` for `positions` [batch or 1, tokens], which all layers share, is that of the table."""
        assert self.projections.rotary is not None
        for row, tokens in enumerate(positions):
            tabled = self.projections.rotary.rows(tokens)
            if not all(
                torch.equal(one[min(row, len(one) - 1)], table[0]) for one, table in zip(given, tabled, strict=True)
            ):
                return False
        return True

    def arithmetic(self) -> str:
        """What the bits of a projection depend on beside the model."""
        return arithmetic_of(self.projections.device)

    def close(self) -> None:
        """Remove the hooks and end the thread."""
        self.inputs.remove()
        self.worker.close()

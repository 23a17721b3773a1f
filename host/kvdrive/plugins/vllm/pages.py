"""How a stored block lies in the engine's KV tensors, taken from the tensors themselves.

vLLM hands out, for each layer, a view [blocks, page] in bytes. A stored block is `blocks_per_chunk` consecutive blocks
of a sequence: for each layer their pages, one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvdrive.errors import UnsupportedError


@dataclass(frozen=True)
class Layer:
    """Bytes of a layer: `view` [blocks, page] int8, of which the first `page_bytes` are the layer's."""

    view: torch.Tensor
    page_bytes: int


class Pages:
    """The layers of one KV cache group. Raises UnsupportedError for tensors that are not views of bytes per block."""

    def __init__(self, layers: Sequence[Layer], blocks_per_chunk: int) -> None:
        for layer in layers:
            view = layer.view
            if view.dim() != 2 or view.element_size() != 1 or view.stride(1) != 1 or view.shape[1] < layer.page_bytes:
                raise UnsupportedError(
                    f"a KV tensor is {view.dtype} {tuple(view.shape)} with strides {view.stride()}: "
                    "this plugin needs [blocks, bytes of a page]"
                )
            if view.device.type != "cpu":
                raise UnsupportedError(
                    f"the KV tensors are on '{view.device}': this plugin is for vLLM on the processor, because copies "
                    "from other devices have to wait for their streams, and none was there to test that"
                )
        self.blocks_per_chunk = blocks_per_chunk
        self._parts = []
        first = 0
        for layer in layers:
            self._parts.append((layer.view[:, : layer.page_bytes], first, layer.page_bytes))
            first += layer.page_bytes * blocks_per_chunk
        self.bytes = first

    @property
    def layout(self) -> list[int]:
        """What else than the model decides where a byte of a stored block belongs."""
        return [self.blocks_per_chunk, *(page for _, _, page in self._parts)]

    def gather(self, blocks: Sequence[int], stored: torch.Tensor) -> None:
        """Copy all blocks of a stored block to `stored` [bytes] int8."""
        numbers = torch.tensor(blocks)
        for view, first, page in self._parts:
            torch.index_select(view, 0, numbers, out=stored[first : first + len(blocks) * page].view(len(blocks), page))

    def scatter(self, stored: torch.Tensor, skip: int, blocks: Sequence[int]) -> None:
        """Copy `stored` [bytes] int8, without its first `skip` blocks, to `blocks` of the engine."""
        numbers = torch.tensor(blocks)
        for view, first, page in self._parts:
            begin = first + skip * page
            view.index_copy_(0, numbers, stored[begin : begin + len(blocks) * page].view(len(blocks), page))

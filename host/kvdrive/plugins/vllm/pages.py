"""How a stored block lies in the engine's KV tensors, taken from the tensors themselves.

vLLM hands out, for each layer, a view [blocks, page] in bytes. A stored block is `blocks_per_chunk` consecutive blocks
of a sequence: for each layer their pages, one behind the other.

Pages are copied with numpy: a copy by torch in a thread of ours would start OpenMP threads that compete with the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kvdrive.errors import UnsupportedError
from kvdrive.prefix.blocks.buffers import Bytes


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
        # For each layer: [blocks, page], its first byte in a stored block, bytes of a page.
        self._parts: list[tuple[Bytes, int, int]] = []
        first = 0
        for layer in layers:
            pages = layer.view.numpy().view(np.uint8)[:, : layer.page_bytes]
            self._parts.append((pages, first, layer.page_bytes))
            first += layer.page_bytes * blocks_per_chunk
        self.bytes = first

    @property
    def layout(self) -> list[int]:
        """What else than the model decides where a byte of a stored block belongs."""
        return [self.blocks_per_chunk, *(size for _, _, size in self._parts)]

    def gather(self, blocks: Sequence[int], stored: Bytes) -> None:
        """Copy all blocks of a stored block to `stored` [bytes]."""
        assert len(blocks) == self.blocks_per_chunk, "vLLM stores whole blocks only"
        for pages, first, size in self._parts:
            rows = stored[first : first + len(blocks) * size].reshape(-1, size)
            for row, block in zip(rows, blocks, strict=True):  # np.take would first copy pages that are apart
                row[:] = pages[block]

    def scatter(self, stored: Bytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy `stored` [bytes], without its first `skip` blocks, to `blocks` of the engine."""
        numbers = np.asarray(blocks)
        for pages, first, size in self._parts:
            begin = first + skip * size
            pages[numbers] = stored[begin : begin + len(blocks) * size].reshape(-1, size)

    def split(self, skip: int, blocks: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
        """The engine's `blocks` of each stored block, if those of the first one are without its first `skip` blocks.

        Yields `skip` and `blocks` of `scatter`.
        """
        first = 0
        while first < len(blocks):
            count = self.blocks_per_chunk - skip
            yield skip, blocks[first : first + count]
            first, skip = first + count, 0

"""How a stored block lies in the engine's KV tensors, taken from the tensors themselves.

vLLM hands out, for each layer, a view [blocks, page] in bytes. A stored block is `blocks_per_chunk` consecutive blocks
of a sequence: for each layer their pages, one behind the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.copies import Mark, current_mark
from kvdrive.prefix.blocks.buffers import Bytes


@dataclass(frozen=True)
class Layer:
    """Bytes of a layer: `view` [blocks, page] int8, of which the first `page_bytes` are the layer's."""

    view: torch.Tensor
    page_bytes: int


@dataclass(frozen=True)
class LayerPart:
    """`pages` [blocks, bytes of a page] of a layer, and where they begin in a stored block."""

    pages: torch.Tensor
    first: int

    @property
    def size(self) -> int:
        """Bytes of a page."""
        return int(self.pages.shape[1])


class Pages(ABC):
    """The layers of one KV cache group. Raises UnsupportedError for tensors that are not views of bytes per block."""

    def __init__(self, layers: Sequence[Layer], blocks_per_chunk: int) -> None:
        self.blocks_per_chunk = blocks_per_chunk
        self.device = layers[0].view.device
        self.parts: list[LayerPart] = []
        first = 0
        for layer in layers:
            view = layer.view
            if view.dim() != 2 or view.element_size() != 1 or view.stride(1) != 1 or view.shape[1] < layer.page_bytes:
                raise UnsupportedError(
                    f"a KV tensor is {view.dtype} {tuple(view.shape)} with strides {view.stride()}: "
                    "this plugin needs [blocks, bytes of a page]"
                )
            self.parts.append(LayerPart(view.view(torch.uint8)[:, : layer.page_bytes], first))
            first += layer.page_bytes * blocks_per_chunk
        self.bytes = first

    @property
    def layout(self) -> list[int]:
        """What else than the model decides where a byte of a stored block belongs."""
        return [self.blocks_per_chunk, *(part.size for part in self.parts)]

    def given(self) -> Mark:
        """A mark behind what the engine has given its device so far: a copy that is asked for now runs behind it."""
        return current_mark(self.device)

    @abstractmethod
    def gather(self, blocks: Sequence[int], stored: Bytes, after: Mark) -> None:
        """Copy all blocks of a stored block, as they are at `after`, to `stored` [bytes]."""

    @abstractmethod
    def scatter(self, stored: Bytes, skip: int, blocks: Sequence[int], after: Mark) -> None:
        """Copy `stored` [bytes], without its first `skip` blocks, to `blocks` of the engine, behind `after`."""

    def split(self, skip: int, blocks: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
        """The engine's `blocks` of each stored block, if those of the first one are without its first `skip` blocks.

        Yields `skip` and `blocks` of `scatter`.
        """
        first = 0
        while first < len(blocks):
            count = self.blocks_per_chunk - skip
            yield skip, blocks[first : first + count]
            first, skip = first + count, 0


class HostPages(Pages):
    """See Pages. They are in the host's memory, where computations end before a copy is asked for.

    Copied with numpy: a copy by torch in a thread of ours would start OpenMP threads that compete with the model.
    """

    def __init__(self, layers: Sequence[Layer], blocks_per_chunk: int) -> None:
        super().__init__(layers, blocks_per_chunk)
        self._arrays: list[tuple[Bytes, int, int]] = [
            (part.pages.numpy(), part.first, part.size) for part in self.parts
        ]

    def gather(self, blocks: Sequence[int], stored: Bytes, after: Mark) -> None:
        assert len(blocks) == self.blocks_per_chunk, "vLLM stores whole blocks only"
        for pages, first, size in self._arrays:
            rows = stored[first : first + len(blocks) * size].reshape(-1, size)
            for row, block in zip(rows, blocks, strict=True):  # np.take would first copy pages that are apart
                row[:] = pages[block]

    def scatter(self, stored: Bytes, skip: int, blocks: Sequence[int], after: Mark) -> None:
        numbers = np.asarray(blocks)
        for pages, first, size in self._arrays:
            begin = first + skip * size
            pages[numbers] = stored[begin : begin + len(blocks) * size].reshape(-1, size)

"""Blocks of an engine on a device that works by itself: copied on a stream of their own, beside the engine's computing.

The same code runs on tensors of the processor, where streams are empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.copies import Mark, copies_of, host_tensor, sent
from kvdrive.plugins.vllm.pages import HostPages, Layer, Pages
from kvdrive.prefix.blocks.buffers import Bytes


class DevicePages(Pages):
    """See Pages. A copy has ended when its call returns. Blocks in memory of the device itself are not copied to the
    host. Called by several threads.
    """

    def __init__(self, layers: Sequence[Layer], blocks_per_chunk: int) -> None:
        super().__init__(layers, blocks_per_chunk)
        self._copies = copies_of(self.device)

    def gather(self, blocks: Sequence[int], stored: Bytes | torch.Tensor, after: Mark) -> None:
        assert len(blocks) == self.blocks_per_chunk, "vLLM stores whole blocks only"
        with self._copies.running():
            self._copies.follow_mark(after)
            numbers = sent(torch.tensor(blocks), self.device)
            whole = torch.cat([part.pages.index_select(0, numbers).flatten() for part in self.parts])
            if isinstance(stored, torch.Tensor):
                stored[: self.bytes].copy_(whole)
            else:
                host = host_tensor((self.bytes,), torch.uint8, self.device)
                host.copy_(whole, non_blocking=True)
            mark = self._copies.mark()
        mark.synchronize()
        if not isinstance(stored, torch.Tensor):
            stored[: self.bytes] = host.numpy()

    def scatter(self, stored: Bytes | torch.Tensor, skip: int, blocks: Sequence[int], after: Mark) -> None:
        with self._copies.running():
            self._copies.follow_mark(after)
            numbers = sent(torch.tensor(blocks), self.device)
            host = stored if isinstance(stored, torch.Tensor) else torch.from_numpy(stored[: self.bytes])
            whole = sent(host, self.device)
            for part in self.parts:
                begin = part.first + skip * part.size
                rows = whole[begin : begin + len(blocks) * part.size].view(-1, part.size)
                part.pages.index_copy_(0, numbers, rows)
            mark = self._copies.mark()
        mark.synchronize()


def pages_of(layers: Sequence[Layer], blocks_per_chunk: int) -> Pages:
    """The pages of tensors of the processor or of CUDA. Raises UnsupportedError for other devices, as Pages does."""
    devices = sorted({str(layer.view.device) for layer in layers})
    kind = layers[0].view.device.type
    if len(devices) > 1 or kind not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"the KV tensors are on {', '.join(map(repr, devices))}: this plugin is for vLLM on the processor or on "
            "one CUDA device"
        )
    if kind == "cpu":
        return HostPages(layers, blocks_per_chunk)
    return DevicePages(layers, blocks_per_chunk)

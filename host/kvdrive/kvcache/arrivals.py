"""Tensors in transfer from the device that computes the model to the host, beside the device's next work.

A GPU rounds large tensors to binary16 itself. They go to pinned memory on a stream of copies; their event says when
they are there, and nothing else is waited for. A model on a CPU needs none of this: its tensors are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from kvdrive.nvme.commands import Halves

_FEW = 1 << 14  # numbers that a GPU does not round itself: starting its kernels takes longer than rounding them here


@dataclass(frozen=True)
class Rounded:
    """fl16(`source`), [batch, heads, tokens, d], on the host.

    `largest`: the bits of the largest magnitude, where Inf and NaN come last. `lost`: values that were not zero and
    became zero.
    """

    halves: Halves
    largest: int
    lost: int
    source: torch.Tensor


@dataclass(frozen=True)
class Arriving:
    """A tensor, and `copies` of it, or of what it was rounded to, that are on the host when `event` says so."""

    source: torch.Tensor
    copies: tuple[torch.Tensor, ...]
    event: torch.cuda.Event

    def wait(self) -> torch.Tensor | Rounded:
        """The tensor on the host; rounded if its device has done that."""
        self.event.synchronize()
        if len(self.copies) == 1:
            return self.copies[0]
        halves, facts = self.copies
        largest, lost = facts.tolist()
        return Rounded(halves.numpy(), largest, lost, self.source)


def arrives_later(tensor: torch.Tensor) -> bool:
    """True if the host can do something else until a tensor has come from its device."""
    return bool(tensor.is_cuda)


def depart(tensor: torch.Tensor) -> Arriving:
    """Start copying K or V [batch, heads, tokens, d] from a GPU to the host. Does not wait."""
    tensor = tensor.detach()
    if tensor.numel() <= _FEW:
        return _copied(tensor, (tensor,), torch.cuda.current_stream(tensor.device))
    stream = _copy_stream(tensor.device)
    stream.wait_stream(torch.cuda.current_stream(tensor.device))
    with torch.cuda.stream(stream):  # beside the next layer's compute, as the copies
        parts = round_there(tensor)
    tensor.record_stream(stream)
    return _copied(tensor, parts, stream)


def arrived(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the host, as it is. What departed before and is small has arrived then, too."""
    if not tensor.is_cuda:
        return tensor
    tensor = tensor.detach()
    found = _copied(tensor, (tensor,), torch.cuda.current_stream(tensor.device)).wait()
    assert isinstance(found, torch.Tensor)
    return found


def round_there(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """fl16(x), contiguous, and int64 [largest, lost] (see Rounded); computed where the tensor is."""
    halves = tensor.to(torch.float16).contiguous()
    largest = halves.view(torch.int16).bitwise_and(0x7FFF).amax()
    lost = torch.count_nonzero(tensor) - torch.count_nonzero(halves)
    return halves, torch.stack([largest.to(torch.int64), lost])


def host_halves(shape: tuple[int, ...], device: torch.device) -> Halves:
    """An array for numbers that go to `device` later; its contents are undefined."""
    if device.type != "cuda":
        return np.empty(shape, np.float16)
    found: Halves = torch.empty(shape, dtype=torch.float16, pin_memory=True).numpy()
    return found


def to_device(halves: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Numbers of `host_halves` on the device and in the precision of `like`; they are converted there."""
    return halves.to(like.device, non_blocking=True).to(like.dtype)


# What follows runs on machines with CUDA only.


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _copied(source: torch.Tensor, parts: tuple[torch.Tensor, ...], stream: torch.cuda.Stream) -> Arriving:
    """Copy `parts` to pinned memory on `stream`, behind what the current stream has been given so far."""
    event = torch.cuda.Event()
    stream.wait_stream(torch.cuda.current_stream(source.device))
    with torch.cuda.stream(stream):
        copies = tuple(torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in parts)
        for copy, part in zip(copies, parts, strict=True):
            copy.copy_(part, non_blocking=True)
            part.record_stream(stream)
        event.record(stream)
    return Arriving(source, copies, event)

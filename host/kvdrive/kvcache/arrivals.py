"""Tensors in transfer from the device that computes the model to the host, beside the device's next work.

A GPU rounds large tensors to binary16 itself, and encodes them as drives store them. These rows go to pinned memory on
a stream of copies; marks say when they are there, and nothing else is waited for. A model on a CPU needs none of this:
its tensors are here, and the native encoder is faster there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kvdrive.kvcache.codes import encoded_there
from kvdrive.kvcache.copies import CopyStream, Mark, copies_of, current_mark, host_tensor
from kvdrive.nvme.commands import Halves
from kvdrive.nvme.rows import Bytes, decoded
from kvdrive.nvme.wire import RowFormat

_FEW = 1 << 14  # numbers that a GPU does not round itself: starting its kernels takes longer than rounding them here


@dataclass(frozen=True)
class Rounded:
    """`rows` on the host, uint8 [batch, heads, tokens, bytes_of_row]: `source`, [batch, heads, tokens, d], rounded to
    binary16 and encoded in the format `stored_as`.

    `largest`: the bits of the largest magnitude in binary16, where Inf and NaN come last. `lost`: values that were not
    zero and became zero, in binary16 or in e4m3.
    """

    rows: Bytes
    stored_as: RowFormat
    largest: int
    lost: int
    source: torch.Tensor

    def halves(self) -> Halves:
        """What the rows stand for, [batch, heads, tokens, d]. For finite numbers."""
        return decoded(self.rows, self.stored_as, self.source.shape[-1])


@dataclass(frozen=True)
class Arriving:
    """`source`, a tensor that is not rounded, and its `copy` on the host when the device has passed `mark`."""

    source: torch.Tensor
    copy: torch.Tensor
    mark: Mark

    def wait(self) -> torch.Tensor:
        """The tensor on the host."""
        self.mark.synchronize()
        return self.copy


@dataclass(frozen=True)
class ArrivingHalves:
    """`source`, which its device has rounded to `there`, binary16, and copies on the host: `facts`, int64
    [largest, lost], when the device has passed `known`, and `rows`, which are `there` in the format `stored_as`, uint8
    [batch, heads, tokens, bytes_of_row], when it has passed `mark`. See Rounded.
    """

    source: torch.Tensor
    there: torch.Tensor
    facts: torch.Tensor
    known: Mark
    rows: torch.Tensor
    stored_as: RowFormat
    mark: Mark

    def largest(self) -> int:
        """See Rounded. Waits for the rounding and not for the copy: `there` is whole then."""
        self.known.synchronize()
        return int(self.facts[0])

    def wait(self) -> Rounded:
        """What has arrived."""
        self.mark.synchronize()
        largest, lost = self.facts.tolist()
        return Rounded(self.rows.numpy(), self.stored_as, largest, lost, self.source)


def arrives_later(tensor: torch.Tensor) -> bool:
    """True if the host can do something else until a tensor has come from its device."""
    return bool(tensor.is_cuda)


def depart(tensor: torch.Tensor, stored_as: RowFormat) -> Arriving | ArrivingHalves:
    """Start copying K or V [batch, heads, tokens, d] to the host; large ones are rounded and encoded. Does not wait."""
    tensor = tensor.detach()
    if tensor.numel() <= _FEW:
        return depart_as_is(tensor)
    copies = copies_of(tensor.device)
    copies.follow()
    with copies.running():  # beside the next layer's compute, as the copies
        there, rows, found = round_there(tensor, stored_as)
        facts = _copied(found, copies)
        known = copies.mark()
        arriving = _copied(rows, copies)
        mark = copies.mark()
    copies.uses(tensor)
    return ArrivingHalves(tensor, there, facts, known, arriving, stored_as, mark)


def depart_as_is(tensor: torch.Tensor) -> Arriving:
    """Start copying a tensor to the host in its own precision. Does not wait.

    Small ones go with the computations, so that what departed before is there when they are; large ones beside them.
    """
    tensor = tensor.detach()
    if tensor.numel() <= _FEW:
        copy = host_tensor(tuple(tensor.shape), tensor.dtype, tensor.device)
        copy.copy_(tensor, non_blocking=True)
        return Arriving(tensor, copy, current_mark(tensor.device))
    copies = copies_of(tensor.device)
    copies.follow()
    with copies.running():
        return Arriving(tensor, _copied(tensor, copies), copies.mark())


def arrived(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the host, as it is. What departed before and is small has arrived then, too."""
    return depart_as_is(tensor).wait() if arrives_later(tensor) else tensor


def round_there(tensor: torch.Tensor, stored_as: RowFormat) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """fl16(x), contiguous; its rows as stored; int64 [largest, lost] (see Rounded). Computed where the tensor is."""
    halves = tensor.to(torch.float16).contiguous()
    largest = halves.view(torch.int16).bitwise_and(0x7FFF).amax()
    rows = encoded_there(halves, stored_as)
    # The smallest number of e4m3 is larger than that of binary16; its zeros are 0.
    left = rows if stored_as == RowFormat.FP8 else halves
    lost = torch.count_nonzero(tensor) - torch.count_nonzero(left)
    return halves, rows, torch.stack([largest.to(torch.int64), lost])


def host_halves(shape: tuple[int, ...], device: torch.device) -> Halves:
    """An array for numbers that go to `device` later; its contents are undefined."""
    if device.type != "cuda":
        return np.empty(shape, np.float16)
    found: Halves = host_tensor(shape, torch.float16, device).numpy()
    return found


def to_device(halves: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Numbers of `host_halves` on the device and in the precision of `like`; they are converted there."""
    return halves.to(like.device, non_blocking=True).to(like.dtype)


def _copied(tensor: torch.Tensor, copies: CopyStream) -> torch.Tensor:
    """A copy on the host, made on the stream of copies; inside `copies.running()`."""
    copy = host_tensor(tuple(tensor.shape), tensor.dtype, tensor.device)
    copy.copy_(tensor, non_blocking=True)
    copies.uses(tensor)
    return copy

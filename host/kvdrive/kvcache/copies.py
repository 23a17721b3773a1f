"""Copies between the host and the device that computes the model, beside the device's own work.

On CUDA they run on a stream of their own, and a mark says when they are done. On a CPU there is no such stream: work is
done when it is given, and a mark has passed at once. So the same code runs on both.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Protocol, cast

import torch


class Mark(Protocol):
    """A place in what a device was given to do."""

    def synchronize(self) -> None:
        """Wait until the device is there."""


class CopyStream:
    """Work on `device` that does not wait for the device's next computations. Safe to share between threads."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def follow(self) -> None:
        """What is given from now on runs behind all that this thread has given the device so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))

    def follow_mark(self, mark: Mark) -> None:
        """What is given from now on runs behind `mark`."""
        if self._stream is not None:
            self._stream.wait_event(cast(torch.cuda.Event, mark))

    def running(self) -> AbstractContextManager[object]:
        """Inside, what this thread gives the device runs here."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def mark(self) -> Mark:
        """A mark behind everything that was given."""
        return _Passed() if self._stream is None else self._stream.record_event()

    def uses(self, tensor: torch.Tensor) -> None:
        """The memory of `tensor` is not used for another one before the work given so far is done."""
        if self._stream is not None:
            tensor.record_stream(self._stream)


class _Passed:
    """A mark on a device that does everything at once."""

    def synchronize(self) -> None:
        """Returns at once."""


@cache
def copies_of(device: torch.device) -> CopyStream:
    """The stream of copies of a device, for the whole process."""
    return CopyStream(device)


def current_mark(device: torch.device) -> Mark:
    """A mark behind everything that this thread has given the device."""
    return torch.cuda.current_stream(device).record_event() if device.type == "cuda" else _Passed()


def let_compute_follow(mark: Mark, device: torch.device) -> None:
    """What this thread gives the device from now on runs behind `mark`. Does not wait."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).wait_event(cast(torch.cuda.Event, mark))


def computed_here(tensor: torch.Tensor) -> None:
    """The memory of `tensor`, made on another stream, stays until what this thread has given the device is done."""
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))


def host_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory of the host for copies from or to `device`; pinned where that is CUDA. Its contents are undefined."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host on `device`, on the current stream and without waiting; the same one where it is there."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)

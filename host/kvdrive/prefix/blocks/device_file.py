"""A file that a device reads and writes itself: kvikio with GPUDirect Storage, its compatibility mode, or the host.

Which of them is known when a file is opened. kvikio moves bytes between an NVMe drive and a GPU without the host's
memory where the driver nvidia-fs and the file system allow it, and through buffers of its own where they do not
(kvikio's compat mode, which it chooses itself). Without kvikio, or without a GPU, the host reads and writes here.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Protocol

import torch

from kvdrive.kvcache.copies import copies_of, host_tensor

log = logging.getLogger(__name__)


class DeviceFile(Protocol):
    """`how`: "gds", "compat" or "host". Offsets and sizes are multiples of 4096. Several threads may call it."""

    how: str

    def read(self, buffer: torch.Tensor, offset: int) -> int:
        """Fill `buffer`, contiguous uint8 [bytes], from the file; returns the bytes that were there. Raises OSError."""

    def write(self, buffer: torch.Tensor, offset: int) -> int:
        """Write `buffer`, which is computed already; returns the bytes that were written. Raises OSError."""

    def close(self) -> None:
        """Close the file."""


def open_device_file(path: Path, device: torch.device) -> DeviceFile:
    """The existing file `path`, for buffers on `device`. Raises OSError."""
    if device.type == "cuda":
        try:
            return KvikioFile(path)
        except (ImportError, RuntimeError, OSError) as error:
            log.warning("%s is read through the host's memory, because kvikio cannot: %s", path, error)
    return HostFile(path, device)


class KvikioFile:
    """See DeviceFile. For buffers of CUDA. Raises ImportError, RuntimeError, OSError."""

    def __init__(self, path: Path) -> None:
        import kvikio
        import kvikio.defaults

        self._file: Any = kvikio.CuFile(path, "r+")
        self.how = "compat" if kvikio.defaults.is_compat_mode_preferred() else "gds"

    def read(self, buffer: torch.Tensor, offset: int) -> int:
        """See DeviceFile."""
        return self._moved(lambda: self._file.read(buffer, file_offset=offset))

    def write(self, buffer: torch.Tensor, offset: int) -> int:
        """See DeviceFile."""
        return self._moved(lambda: self._file.write(buffer, file_offset=offset))

    def close(self) -> None:
        """See DeviceFile."""
        self._file.close()

    def _moved(self, move: Any) -> int:
        try:
            return int(move())
        except RuntimeError as error:  # what kvikio raises for errors of the system
            raise OSError(str(error)) from error


class HostFile:
    """See DeviceFile. Bytes go through pinned memory of the host. Raises OSError."""

    how = "host"

    def __init__(self, path: Path, device: torch.device) -> None:
        self._device = device
        self._copies = copies_of(device)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def read(self, buffer: torch.Tensor, offset: int) -> int:
        """See DeviceFile."""
        host = host_tensor(tuple(buffer.shape), torch.uint8, self._device)
        there = os.preadv(self._file, [host.numpy().data], offset)
        with self._copies.running():
            buffer[:there].copy_(host[:there], non_blocking=True)
            mark = self._copies.mark()
        mark.synchronize()
        return there

    def write(self, buffer: torch.Tensor, offset: int) -> int:
        """See DeviceFile."""
        host = host_tensor(tuple(buffer.shape), torch.uint8, self._device)
        with self._copies.running():
            host.copy_(buffer, non_blocking=True)
            mark = self._copies.mark()
        mark.synchronize()
        return os.pwrite(self._file, host.numpy().data, offset)

    def close(self) -> None:
        """See DeviceFile."""
        os.close(self._file)

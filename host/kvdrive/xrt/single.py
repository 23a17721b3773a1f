"""Single kernels on a card through `pyxrt`: the vendor's module, or ours of the same names over this machine's XRT."""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.xrt.image import read_text

IMAGE_VARIABLE, DEVICE_VARIABLE = "KVDRIVE_XRT_IMAGE", "KVDRIVE_XRT_DEVICE"
_DEADLINE_S = 30.0
_POLL_S = 0.0005
_STATUS_REGISTER = 0x10  # ap_return
_COMPLETED = "COMPLETED"
_ENDED = (_COMPLETED, "ERROR", "ABORT", "TIMEOUT", "NORESPONSE")


def provider() -> ModuleType:
    """Raises UnsupportedError where neither module is there."""
    for name in ("pyxrt", "kvdrive._pyxrt"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise UnsupportedError(
        "no pyxrt: install the vendor's XRT and source its setup.sh, or scripts/system_packages.sh xrt and make setup"
    )


class XrtBoard:
    """A card with an image loaded. Raises InputError without an image, TargetError where it cannot be loaded."""

    def __init__(self, device: int | None = None, image: Path | None = None) -> None:
        named = os.environ.get(IMAGE_VARIABLE)
        if image is None and not named:
            raise InputError(f"engine xrt needs an image: `image=X.xclbin`, or {IMAGE_VARIABLE} in the environment")
        self._path = image or Path(str(named))
        self.tops = tuple(read_text(self._path).kernels)
        self._xrt = provider()
        number = int(os.environ.get(DEVICE_VARIABLE, "0")) if device is None else device
        try:
            self._device = self._xrt.device(number)
            self._uuid = self._device.load_xclbin(str(self._path))
        except RuntimeError as error:
            raise TargetError(f"card {number} does not take {self._path}: {error}") from error

    def run(self, top: str, buffers: list[NDArray[np.uint8]], scalars: list[int]) -> int:
        xrt = self._xrt
        kernel = xrt.kernel(self._device, self._uuid, top, xrt.kernel.cu_access_mode.exclusive)
        placed: dict[int, Any] = {}
        for index, array in enumerate(buffers):
            if id(array) not in placed:
                placed[id(array)] = xrt.bo(self._device, array.size, xrt.bo.flags.normal, kernel.group_id(index))
                placed[id(array)].write(array.tobytes(), 0)
                placed[id(array)].sync(xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)
        run = kernel(*[placed[id(array)] for array in buffers], *scalars)
        self._wait(run, top)
        for array in {id(array): array for array in buffers}.values():
            buffer = placed[id(array)]
            buffer.sync(xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE)
            array[:] = np.frombuffer(buffer.read(array.size, 0), np.uint8)
        return int(kernel.read_register(_STATUS_REGISTER))

    @staticmethod
    def _wait(run: Any, top: str) -> None:
        """XRT's own wait never ends in emulation when a kernel hangs, so the state is asked for."""
        end = time.monotonic() + _DEADLINE_S
        while (state := str(run.state()).rpartition("ERT_CMD_STATE_")[2]) not in _ENDED:
            if time.monotonic() > end:
                raise TargetError(f"{top} did not end within {_DEADLINE_S:.0f} s: reset the card (xbutil reset)")
            time.sleep(_POLL_S)
        if state != _COMPLETED:
            raise TargetError(f"{top} ended with {state}")

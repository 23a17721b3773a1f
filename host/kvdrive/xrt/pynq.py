"""Single kernels on a Zynq board through pynq: an overlay (.bit and .hwh), buffers, the registers of the manifest.

Not run on a board yet. The tests run the same calls on emulated registers and the compiled kernels.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.tree import ROOT

OVERLAY_VARIABLE = "KVDRIVE_PYNQ_OVERLAY"
_START, _DONE = 1, 2
_DEADLINE_S = 30.0
_CONTROL = ("ap_ctrl", "gie", "ier", "isr", "ap_return", "bus_error")


class Ip(Protocol):
    """The part of pynq.DefaultIP that is used: 32-bit registers by offset."""

    def read(self, offset: int) -> int: ...
    def write(self, offset: int, value: int) -> None: ...


# pynq.allocate: an array whose memory the kernels reach, with `device_address`, `flush` and `invalidate`.
Allocate = Callable[..., Any]


def open_board() -> PynqBoard:
    """The overlay that the environment names. Raises InputError, UnsupportedError where pynq is not installed."""
    named = os.environ.get(OVERLAY_VARIABLE)
    if not named:
        raise InputError(f"engine pynq needs an overlay: {OVERLAY_VARIABLE}=X.bit, with X.hwh beside it")
    try:
        import pynq
    except ImportError as error:
        raise UnsupportedError("engine pynq runs on a Zynq board: pip install 'kvdrive[pynq]' there") from error
    overlay = pynq.Overlay(named)
    tops = {name: getattr(overlay, ip) for ip in overlay.ip_dict for name in [_top_of(ip, overlay)] if name}
    return PynqBoard(tops, pynq.allocate)


def _top_of(ip: str, overlay: Any) -> str:
    """The kernel behind a name in the overlay, by the type of its IP; "" for the platform's own parts."""
    kind: str = overlay.ip_dict[ip]["type"].split(":")[2]
    return kind if (ROOT / f"bitstreams/{kind}.json").is_file() else ""


class PynqBoard:
    """`kernels`: the overlay's kernels by the name of their top."""

    def __init__(self, kernels: Mapping[str, Ip], allocate: Allocate) -> None:
        self.tops = tuple(kernels)
        self._kernels, self._allocate = kernels, allocate

    def run(self, top: str, buffers: list[NDArray[np.uint8]], scalars: list[int]) -> int:
        kernel, placed = self._kernels[top], {}
        for array in buffers:
            if id(array) not in placed:
                buffer = placed[id(array)] = self._allocate(shape=array.shape, dtype=np.uint8)
                buffer[:] = array
                buffer.flush()
        values = [placed[id(array)].device_address for array in buffers] + scalars
        registers = _registers(top)
        for (offset, width), value in zip(registers.arguments, values, strict=True):
            for word in range(width // 32):
                kernel.write(offset + 4 * word, value >> 32 * word & 0xFFFFFFFF)
        kernel.write(registers.control, _START)
        end = time.monotonic() + _DEADLINE_S
        while not kernel.read(registers.control) & _DONE:
            if time.monotonic() > end:
                raise TargetError(f"{top} did not end within {_DEADLINE_S:.0f} s: load the overlay again")
        for array in buffers:
            buffer = placed[id(array)]
            buffer.invalidate()
            array[:] = buffer
        return kernel.read(registers.status)


class _Registers:
    """Offsets in bytes. `arguments`: offset and width in bits, in the order of the kernel's arguments."""

    def __init__(self, path: Path) -> None:
        listed = json.loads(path.read_text())["registers"]["registers"]
        offsets = {register["name"]: register["offset"] for register in listed}
        self.control, self.status = offsets["ap_ctrl"], offsets["ap_return"]
        self.arguments = [(r["offset"], r["width"]) for r in listed if r["name"] not in _CONTROL]


def _registers(top: str) -> _Registers:
    return _Registers(ROOT / f"bitstreams/{top}.json")

# SPDX-License-Identifier: Apache-2.0
"""The engine `pynq` on emulated registers in front of the compiled kernels. Not run on a board."""

from __future__ import annotations

import ctypes
import json

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.kernels.card import CardEngine
from kvdrive.kernels.compare import differences
from kvdrive.kernels.native import NativeKernels
from kvdrive.kernels.oracle import GoldenKernels
from kvdrive.xrt.pynq import OVERLAY_VARIABLE, PynqBoard, open_board
from rtl.kernels import ROOT
from xrt.images import describe, kernels_library
from xrt.memory import CardMemory
from xrt.units import Fault, FunctionBody, Register, Unit


class EmulatedIp:
    """Registers of 32 bits, as pynq.DefaultIP has them."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def read(self, offset: int) -> int:
        return int.from_bytes(self._unit.read(offset, 4), "little")

    def write(self, offset: int, value: int) -> None:
        self._unit.write(offset, value.to_bytes(4, "little"), Fault(""), lambda: None)


class Buffer(np.ndarray):
    """As pynq.allocate gives it: the same memory for processor and kernels."""

    device_address = 0

    def flush(self) -> None: ...
    def invalidate(self) -> None: ...


def emulated_board(*tops: str) -> PynqBoard:
    library, memory, kernels = ctypes.CDLL(str(kernels_library(*tops))), CardMemory(1 << 30), {}
    for kernel in describe(list(tops)).kernels:
        registers = [Register(a.name, a.offset, a.size, a.type, bool(a.port)) for a in kernel.arguments]
        unit = Unit(kernel.name, 0, registers, FunctionBody(library, kernel.name, registers, memory))
        kernels[kernel.name] = EmulatedIp(unit)
    used = [0x1000]

    def allocate(shape: tuple[int, ...], dtype: type) -> Buffer:
        size = int(np.prod(shape))
        at = ctypes.cast(memory.pointer(used[0], size), ctypes.POINTER(ctypes.c_uint8))
        buffer = np.ctypeslib.as_array(at, (size,)).view(Buffer)
        buffer.device_address = used[0]
        used[0] += (size + 4095) // 4096 * 4096
        return buffer

    return PynqBoard(kernels, allocate)


def test_kernels_give_the_golden_bits() -> None:
    board = NativeKernels(CardEngine("pynq", emulated_board("attention_g1", "argtopk")))
    rng = np.random.default_rng(3)
    rows = {name: rng.standard_normal((n, 64)).astype(np.float16) for name, n in (("q", 1), ("k", 90), ("v", 90))}
    keys = {"keys": rng.standard_normal(700).astype(np.float32), "k_top": np.array(33)}
    for kernel, arrays, mode in (("attention", rows, "exact"), ("argtopk", keys, "")):
        got = getattr(board, kernel)(arrays, mode)
        expected = getattr(GoldenKernels(), kernel)(arrays, mode)
        found = differences("pynq", got, "golden", expected)
        assert found
        assert all(row.identical for row in found)


def test_a_kernel_that_the_overlay_lacks_is_named() -> None:
    engine = CardEngine("pynq", emulated_board("argtopk"))
    memory = np.zeros(abi.AttentionJob.itemsize, np.uint8)
    memory.view(abi.AttentionJob)["group"] = 4
    with pytest.raises(UnsupportedError, match="no attention_g4, only argtopk"):
        engine.attention(memory, 0)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OVERLAY_VARIABLE, raising=False)
    with pytest.raises(InputError, match="needs an overlay"):
        open_board()
    monkeypatch.setenv(OVERLAY_VARIABLE, "x.bit")
    with pytest.raises(UnsupportedError, match=r"pip install 'kvdrive\[pynq\]'"):
        open_board()


def test_every_manifest_with_memory_ports_has_the_registers() -> None:
    for top in ("argtopk", "attention_g4"):
        listed = json.loads((ROOT / f"bitstreams/{top}.json").read_text())["registers"]["registers"]
        assert {"ap_ctrl", "ap_return"} <= {register["name"] for register in listed}

"""Run one kernel under several engines and say where they differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from kvdrive._native import Engine
from kvdrive.kernels.card import CardEngine
from kvdrive.kernels.native import Arrays, NativeKernels
from kvdrive.kernels.registry import Kernel
from kvdrive.kernels.rtl import RtlEngine


class Kernels(Protocol):
    """An engine's kernels by name. Each maps (arrays, mode) to arrays with `status`."""

    def argtopk(self, a: Arrays, mode: str) -> Arrays: ...
    def page_filter(self, a: Arrays, mode: str) -> Arrays: ...
    def gemv(self, a: Arrays, mode: str) -> Arrays: ...
    def softmax(self, a: Arrays, mode: str) -> Arrays: ...
    def attention(self, a: Arrays, mode: str) -> Arrays: ...


def kernels_of(engine: str) -> Kernels:
    """The implementation behind an engine's name (choices.KERNEL_ENGINES)."""
    if engine in ("hls", "fast"):
        return NativeKernels(Engine(engine, 1))
    if engine == "rtl":
        return NativeKernels(RtlEngine())
    if engine == "xrt":
        from kvdrive.xrt.single import XrtBoard

        return NativeKernels(CardEngine(engine, XrtBoard()))
    if engine == "pynq":
        from kvdrive.xrt.pynq import open_board

        return NativeKernels(CardEngine(engine, open_board()))
    from kvdrive.kernels import oracle

    return oracle.GoldenKernels() if engine == "golden" else oracle.Float64Kernels()


def run(kernel: Kernel, engine: str, arrays: Arrays, mode: str) -> Arrays:
    """Outputs of `kernel` under `engine`; `status` is 0 on success (abi.Status bits otherwise).

    The engine `rtl` adds `cycles`. Raises UnsupportedError where an engine cannot run here.
    """
    kernels = kernels_of(engine)
    result: Arrays = getattr(kernels, kernel.name)(arrays, mode)
    cycles = kernels.cycles if isinstance(kernels, NativeKernels) else None
    return result if cycles is None else result | {"cycles": cycles}


@dataclass(frozen=True)
class Difference:
    """One output of two engines: equal bits, or how many values differ and by how much at most."""

    output: str
    engine: str
    reference: str
    identical: bool
    values: int
    different: int
    max_abs_error: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _bytes_of(values: Any) -> Any:
    """One row per value."""
    return values.reshape(-1).view(np.uint8).reshape(values.size, values.dtype.itemsize)


def _difference(output: str, engine: str, reference: str, got: Any, expected: Any) -> Difference:
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape:
        return Difference(output, engine, reference, False, b.size, max(a.size, b.size), None)
    if a.dtype == b.dtype:
        unequal = _bytes_of(a) != _bytes_of(b)
        different = int(unequal.any(axis=1).sum())
    else:
        different = int((a != b).sum())
    error = None
    if output == "acc" and a.size:  # outputs are 128-bit integers or real numbers, which have no common dtype
        error = None
    elif a.size:
        with np.errstate(invalid="ignore"):
            error = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
    return Difference(output, engine, reference, different == 0, b.size, different, error)


def differences(engine: str, got: Arrays, reference: str, expected: Arrays) -> list[Difference]:
    """Differences of each output that both engines give."""
    shared = [name for name in expected if name in got]
    return [_difference(name, engine, reference, got[name], expected[name]) for name in shared]


def compare(kernel: Kernel, engines: list[str], arrays: Arrays, mode: str) -> list[Difference]:
    """Compare every engine with the first one, output by output."""
    reference, *others = engines
    expected = run(kernel, reference, arrays, mode)
    return [
        row for engine in others for row in differences(engine, run(kernel, engine, arrays, mode), reference, expected)
    ]


def exact(row: Difference) -> bool:
    """True if this row must be identical. Only the float64 reference may differ."""
    return "float64" not in (row.engine, row.reference)

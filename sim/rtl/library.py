# SPDX-License-Identifier: Apache-2.0
"""A verilated top as a shared library in build/rtl/<top>, and the class that calls it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openhls import store
from openhls.cosim import simulate
from openhls.cosim.driver import connections
from openhls.errors import OpenHlsError
from rtl.build import OUT, Built, build, hash_files, stamp_of
from rtl.kernels import ROOT, Top

HERE = Path(__file__).resolve().parent
HARNESS = [HERE / "model.hpp", HERE / "library.hpp", *sorted(simulate.HARNESS.glob("*.hpp"))]
PATIENCE = 200_000  # cycles without a word on any port until a job counts as stuck; any pass on the chip takes less
DDR4 = -1.0  # used in place of a latency: selects the model of one DDR4-2400 channel

Words = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


class JobFailed(OpenHlsError):
    """The RTL stopped or broke a protocol. The message shows the state of its ports."""


class Model:
    """One kernel, which runs one job after the other. `latency` of its memory in cycles, or DDR4."""

    def __init__(self, library: Path, clock_mhz: float, latency: float) -> None:
        self._calls = _load(library)
        self._model = self._calls.model_new(clock_mhz, latency)

    def __del__(self) -> None:
        if hasattr(self, "_model"):
            self._calls.model_delete(self._model)

    def set(self, **scalars: int) -> None:
        """Arguments of the C++ function by name; pointers take addresses of `add_buffer`."""
        for name, value in scalars.items():
            self._check(self._calls.model_set(self._model, name.encode(), value & (1 << 64) - 1))

    def feed(self, stream: str, words: Words) -> None:
        """All words of an input stream, each as 32-bit pieces with the low one first: uint32 [words, pieces]."""
        data = np.ascontiguousarray(words, np.uint32)
        self._check(self._calls.model_feed(self._model, stream.encode(), data.ctypes.data, data.size))

    def add_buffer(self, data: Bytes) -> int:
        """Memory that the kernel may touch, with these bytes in it; returns its address, a multiple of 4096."""
        data = np.ascontiguousarray(data)
        address: int = self._calls.model_add_buffer(self._model, data.ctypes.data, data.size)
        return address

    def read_buffer(self, number: int, size: int) -> Bytes:
        """The first bytes of the buffer that was added as the `number`-th, from 0."""
        data = np.zeros(size, np.uint8)
        self._check(self._calls.model_read_buffer(self._model, number, data.ctypes.data, size))
        return data

    def clear_buffers(self) -> None:
        self._calls.model_clear_buffers(self._model)

    def run(self) -> int:
        """Reset the kernel and run one job. Returns its cycles from start to end. Raises JobFailed."""
        return self._check(self._calls.model_run(self._model, PATIENCE))

    def words(self, stream: str, pieces: int) -> Words:
        """The words of an output stream: uint32 [words, pieces]."""
        found = ctypes.POINTER(ctypes.c_uint32)()
        count = self._check(self._calls.model_words(self._model, stream.encode(), ctypes.byref(found)))
        if count == 0:
            return np.zeros((0, pieces), np.uint32)
        return np.ctypeslib.as_array(found, (count,)).copy().reshape(-1, pieces)

    def get(self, output: str) -> int:
        """A result, as an unsigned number: `return` or an argument by reference."""
        value = ctypes.c_uint64()
        self._check(self._calls.model_get(self._model, output.encode(), ctypes.byref(value)))
        return value.value

    def _check(self, result: int) -> int:
        if result < 0:
            raise JobFailed(self._calls.model_problem(self._model).decode())
        return result


def _load(library: Path) -> ctypes.CDLL:
    calls = ctypes.CDLL(str(library))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    signed, unsigned = ctypes.c_int64, ctypes.c_uint64
    signatures: dict[str, tuple[list[type], type | None]] = {
        "model_new": ([ctypes.c_double, ctypes.c_double], pointer),
        "model_delete": ([pointer], None),
        "model_problem": ([pointer], text),
        "model_set": ([pointer, text, unsigned], signed),
        "model_feed": ([pointer, text, pointer, size], signed),
        "model_add_buffer": ([pointer, pointer, size], unsigned),
        "model_read_buffer": ([pointer, size, pointer, size], signed),
        "model_clear_buffers": ([pointer], None),
        "model_run": ([pointer, unsigned], signed),
        "model_words": ([pointer, text, pointer], signed),
        "model_get": ([pointer, text, pointer], signed),
    }
    for name, (arguments, result) in signatures.items():
        function = getattr(calls, name)
        function.argtypes, function.restype = arguments, result
    return calls


@functools.cache
def library_of(top: Top, out: Path = OUT) -> Path:
    """The library of `top`, built if its C++, the compiler or the harness changed since the last process.

    Raises OpenHlsError.
    """
    with store.alone(out / f"{top.name}.lock"):
        stamp = stamp_of(top, out)
        built = None if stamp is not None else build(top, out)
        key = hashlib.sha256(f"{stamp_of(top, out)} {hash_files(HARNESS)} {simulate.tools()}".encode()).hexdigest()[:16]
        library = out / top.name / f"library-{key}.so"
        if not library.exists():
            simulate.verilator()
            for old in library.parent.glob("library-*.so"):
                old.unlink()
            _compile(built or build(top, out), library)
    return library


def compile_netlist(built: Built, files: list[Path], library: Path) -> None:
    """The same for a netlist of cells in `files`, with their models, that has the ports of `built`."""
    _compile(built, library, lambda folder: simulate.verilate_cells(files, built.design.top, "Vtop", folder))


def _compile(built: Built, library: Path, verilate: Callable[[Path], None] | None = None) -> None:
    folder = built.folder / "library"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if verilate is None:
        simulate.verilate(list(built.design.files), built.design.top, "Vtop", folder)
    else:
        verilate(folder)
    (folder / "model.cpp").write_text(_model_text(built))
    flags = ["-fPIC", "-DVL_TIME_CONTEXT", f"-I{HERE}"]
    level = "-O1" if verilate is None else "-O0"  # a netlist is large and runs small jobs
    objects = simulate.compile_verilated(folder, flags, ROOT, ["model.cpp"], level)
    objects += simulate.library_objects()
    simulate.run(["g++", "-shared", "-pthread", *objects, "-o", library.with_suffix(".part")])
    library.with_suffix(".part").rename(library)
    shutil.rmtree(folder)


def _model_text(built: Built) -> str:
    body = "\n    ".join(connections(built.design))
    return f"""#include "model.hpp"
#include "Vtop.h"

// What has no reset starts with random bits.
struct Kernel : kvdrive::rtl::Model<Vtop> {{
  explicit Kernel(openhls::Timing timing) : Model((Verilated::randReset(2), timing)) {{
    auto& harness = *this;
    auto& top = this->top();
    {body}
  }}
}};

#include "library.hpp"
"""

"""Compiles the C++ programs of this folder, and writes the cases of kernels."""

import functools
import math
import struct
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from compiled.store import Store
from csim import build, run, vectors
from openhls.backend import store


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """program("dataflow", sanitize=True) compiles dataflow.cpp once and returns the executable."""
    store = Store(tmp_path_factory.mktemp("programs"))

    @functools.cache
    def compiled(name: str, sanitize: bool = False) -> Path:
        source = Path(__file__).with_name(f"{name}.cpp")
        return build.compile_program([source], name, sanitize=sanitize, store=store)

    return compiled


def read_cases(path: Path) -> list[bytes]:
    """The cases of a file (csim/vectors.py), as they lie there."""
    data = path.read_bytes()
    at, found = len(vectors.MAGIC), []
    while at < len(data):
        start = at
        (arrays,) = struct.unpack_from("<I", data, at)
        at += 4
        for _ in range(arrays):
            at += 2 + struct.unpack_from("<H", data, at)[0] + 1
            item, dimensions = struct.unpack_from("<BB", data, at)
            extents = struct.unpack_from(f"<{dimensions}Q", data, at + 2)
            at += 2 + 8 * dimensions + item * math.prod(extents)
        found.append(data[start:at])
    return found


SIM = Path(run.__file__).parents[1]
SEED = 20


@pytest.fixture(scope="session")
def cases_of() -> Callable[..., Path]:
    """cases_of("gemv"): the file of a kernel's reduced cases, computed by the golden model once for each state of the
    two folders that it comes from. cases_of("gemv", 3): of every third."""

    @functools.cache
    def written(kernel: str, step: int = 1) -> Path:
        sources = [path for folder in ("golden", "csim") for path in sorted((SIM / folder).rglob("*.py"))]
        parts = [kernel, str(SEED), metadata.version("numpy"), *store.texts(sources)]
        if step == 1:
            kept = store.kept("cases", parts, lambda out: run.write_cases(out / "cases", kernel, SEED, small=True))
            return kept / "cases"
        every = read_cases(written(kernel))

        def thin(folder: Path) -> None:
            (folder / "cases").write_bytes(b"".join([vectors.MAGIC, *every[::step]]))

        return store.kept("some-cases", [*parts, Path(__file__).read_bytes(), str(step)], thin) / "cases"

    return written

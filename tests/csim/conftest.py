"""Compiles the C++ programs of this folder, and writes the cases of kernels."""

import functools
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from compiled.store import Store
from csim import build, run
from openhls import store


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """program("dataflow", sanitize=True) compiles dataflow.cpp once and returns the executable."""
    store = Store(tmp_path_factory.mktemp("programs"))

    @functools.cache
    def compiled(name: str, sanitize: bool = False) -> Path:
        source = Path(__file__).with_name(f"{name}.cpp")
        return build.compile_program([source], name, sanitize=sanitize, store=store)

    return compiled


SIM = Path(run.__file__).parents[1]
SEED = 20


@pytest.fixture(scope="session")
def cases_of() -> Callable[[str], Path]:
    """cases_of("gemv"): the file of a kernel's reduced cases, computed by the golden model once for each state of the
    two folders that it comes from."""

    @functools.cache
    def written(kernel: str) -> Path:
        sources = [path for folder in ("golden", "csim") for path in sorted((SIM / folder).rglob("*.py"))]
        parts = [kernel, str(SEED), metadata.version("numpy"), *store.texts(sources)]
        return (
            store.kept("cases", parts, lambda out: run.write_cases(out / "cases", kernel, SEED, small=True)) / "cases"
        )

    return written

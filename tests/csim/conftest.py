"""Compiles the C++ programs of this folder."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from compiled.store import Store
from csim import build


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """program("dataflow", sanitize=True) compiles dataflow.cpp once and returns the executable."""
    store = Store(tmp_path_factory.mktemp("programs"))

    @functools.cache
    def compiled(name: str, sanitize: bool = False) -> Path:
        source = Path(__file__).with_name(f"{name}.cpp")
        return build.compile_program([source], name, sanitize=sanitize, store=store)

    return compiled

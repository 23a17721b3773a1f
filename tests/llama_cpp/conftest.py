"""Stock llama.cpp with and without the plugin, on the project's model mini."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from llama_host import LLAMA, PLUGIN, SAME, Host, Outcome, compile_host, divergences


@pytest.fixture(scope="session")
def built() -> None:
    """Skips where the plugin is not built."""
    if not PLUGIN.exists() or not (LLAMA / "complete").exists():
        pytest.skip("llama.cpp's plugin is not built: make get WHAT=llama-plugin")


@pytest.fixture(scope="session")
def parts(built: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The program and the model."""
    pytest.importorskip("gguf", reason="the Python package gguf is missing")
    import mini_gguf

    folder = tmp_path_factory.mktemp("llama")
    compile_host(folder / "host", LLAMA / "bin")
    mini_gguf.write(folder / "mini.gguf")
    return folder / "host", folder / "mini.gguf"


@pytest.fixture
def host(parts: tuple[Path, Path], tmp_path: Path) -> Host:
    return Host(*parts, tmp_path)


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """The file of a drive that does not exist yet."""
    return tmp_path / "drive.kv"


@pytest.fixture
def as_stock(host: Host, drive: Path) -> Callable[..., tuple[Outcome, Outcome]]:
    """Runs commands with the plugin, and without it with each of stock's two kernels of attention.

    The results must be close to one of the two in every row. Prompts are computed with the kernel that stock uses with
    flash attention. Steps are closer to stock without it, because its steps with it sum V in binary16: with one and
    with two threads they differ by up to a thousand times as much.
    """

    def compare(commands: Sequence[str], **options: object) -> tuple[Outcome, Outcome]:
        plain, flash = (host.run(commands, fa=kernel, **options) for kernel in ("off", "on"))
        ours = host.run(commands, drive=drive, **options)
        assert (plain.code, ours.code) == (0, 0), ours.errors
        assert plain.lines == ours.lines == ["ok"] * len(commands), ours.errors
        nearest = np.minimum(divergences(plain.logits, ours.logits), divergences(flash.logits, ours.logits))
        assert nearest.max() < SAME
        assert ours.counters["drive"]["queries"] > 0
        return plain, ours

    return compare

"""Engine `hls` loads each kernel when it is first used; what it cannot load, it names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiled.build import shared_object

pytest.importorskip("kvdrive._native", reason="the native extension is not built: make setup")

USE = """
import numpy, kvdrive._native as native
pages, wanted = numpy.arange(4096, dtype=numpy.uint8), numpy.array([0xFF, 1, 0, 0xF0], numpy.uint8)
found = [native.Engine(engine).page_filter(pages, wanted, 32, 128, 4096) for engine in ("hls", "fast")]
assert all((a == b).all() if hasattr(a, "all") else a == b for a, b in zip(*found))
"""


@pytest.fixture
def library() -> Path:
    return shared_object(["page_filter"])


def use(**environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", USE], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


def test_a_folder_of_kernels_needs_no_compiler(library: Path, tmp_path: Path) -> None:
    (tmp_path / "page_filter.so").write_bytes(library.read_bytes())
    assert use(KVDRIVE_KERNELS=str(tmp_path), PATH="") == (0, "")


@pytest.mark.parametrize("left", [0, 1000, -100])
def test_a_kernel_that_was_cut_short_is_named(library: Path, tmp_path: Path, left: int) -> None:
    path = tmp_path / "page_filter.so"
    path.write_bytes(library.read_bytes()[:left])
    status, said = use(KVDRIVE_KERNELS=str(tmp_path))
    assert status == 1
    assert said.startswith("kvdrive.errors.TargetError: the kernel page_filter cannot be loaded (it is damaged or not")
    assert f"remove {path} and start again" in said


def test_another_shared_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "page_filter.so").write_bytes(shared_object(["softmax"]).read_bytes())
    status, said = use(KVDRIVE_KERNELS=str(tmp_path))
    assert status == 1
    assert "the kernel page_filter is of another version (it has no call_page_filter): install kvdrive again" in said


def test_without_a_compiler_the_engine_says_what_to_install(tmp_path: Path) -> None:
    status, said = use(PATH=str(tmp_path))
    assert status == 1
    assert "TargetError: the kernel page_filter cannot be compiled: g++ not found: install it with" in said


def test_only_the_kernel_in_use_is_loaded(library: Path) -> None:
    listed = "{line.split('/')[-1].split('-')[0] for line in open('/proc/self/maps') if '/kernels/' in line}"
    done = subprocess.run([sys.executable, "-c", f"{USE}print({listed})"], capture_output=True, text=True, check=True)
    assert done.stdout == "{'page_filter'}\n"

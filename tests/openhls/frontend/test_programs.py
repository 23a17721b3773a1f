# SPDX-License-Identifier: Apache-2.0
"""Every test program means the same to the front end as to g++."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from program_choices import CHOICES

from openhls.frontend.toolchain import COMMON

PROGRAMS = Path(__file__).parents[1] / "programs"
ELEMENTS = 256  # behind each pointer


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.cpp")))
def test_the_interpreter_agrees_with_gxx(name: str, differences: Callable[..., list[str]], tmp_path: Path) -> None:
    source = PROGRAMS / f"{name}.cpp"
    assert differences(source, name, tmp_path, cases=30, choices=CHOICES.get(name, ()), elements=ELEMENTS) == []


def test_software_gives_a_vector_as_many_elements_as_it_has(tmp_path: Path) -> None:
    source, program = tmp_path / "lanes.cpp", tmp_path / "lanes"
    source.write_text(
        "#include <hls_vector.h>\nint main(int count, char**) {\n"
        "  const hls::vector<int, 3> lanes = count > 1 ? hls::vector<int, 3>{1, 2, 3} : hls::vector<int, 3>{1, 2};\n"
        "  return lanes[1];\n}\n"
    )
    subprocess.run(["g++", "-std=gnu++17", f"-I{COMMON}", "-o", program, source], check=True)
    assert subprocess.run([program, "three"], check=False).returncode == 2
    failed = subprocess.run([program], check=False, capture_output=True, text=True)
    assert "values.size() == N" in failed.stderr


KERNELS = {
    "page_filter": ("page_count=0:3", "rows=0:60", "row_bytes=32:128:32,33", "page_bytes=4096,5000"),
    "softmax": ("dense=0:70", "tail=0:40", "masked=0:1"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_mean_the_same_as_to_gxx(name: str, differences: Callable[..., list[str]], tmp_path: Path) -> None:
    kernels = Path(__file__).parents[3] / "hls"
    found = differences(
        kernels / name / f"{name}.cpp",
        name,
        tmp_path,
        cases=12,
        choices=KERNELS[name],
        includes=(kernels,),
        function=f"kvdrive::{name}",
    )
    assert found == []

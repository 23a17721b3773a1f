# SPDX-License-Identifier: Apache-2.0
"""Every test program means the same to the front end as to g++."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from openhls.frontend.toolchain import COMMON

PROGRAMS = Path(__file__).parents[1] / "programs"
CHOICES = {
    "scalars": ("flag=0:1", "a=-32768,-5:5,32767", "b=0:255", "one=0:1", "wide=-1000:1000", "both=-16:15"),
    "scale": ("n=0:20", "factor=0:127", "offset=-256:255"),
    "two_pass": ("rows=0:4", "columns=0:64"),
    "arithmetic": ("n=20",),
    "histogram": ("n=0:100",),
    "lanes": ("n=0:20", "pick=0:7"),
    "stages": ("words=0:24", "shift=0:31", "negate=0:1"),
    "search": ("n=0:8", "mode=0:8"),
    "passes": ("n=0:32", "count=0:4"),
    "blend": ("rows=0:4", "columns=0:60", "weight=0:16", "skip=0:1"),
    "vectors": ("n=0:40", "flag=0:1"),
    "strides": ("n=0:16", "first=-8:20", "count=0:20", "pitch=0:8", "few=0:15"),
    "memory_order": ("n=0:20", "mode=0:2", "around=0:255"),
    "memory_stages": ("passes=0:3", "count=0:20"),
    "odd_memory": ("n=0:40", "step=-9:9", "both=-64:63"),
    "ranges": ("n=0:20",),
    "channels": ("n=0:20",),
    "stream_arrays": ("n=0:20", "first=0:9"),
    "pieces": ("n=0:20", "count=0:12"),
    "part_copies": (),
    "sequences": (),
    "blocks": ("n=0:8",),
    "fixed": ("n=0:20",),
    "signs": ("n=0:20",),
    "forwarding": ("n=0:40",),
    "answers": ("n=0:20",),
    "in_turns": ("n=0:4",),
    "statics": ("n=0:20",),
    "array_ports": ("n=-20:20",),
}

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

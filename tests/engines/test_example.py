# SPDX-License-Identifier: Apache-2.0
"""The engine of docs/design/extend.md compiles as it stands there, and gives the golden model's bits."""

import os
import shutil
import subprocess

import numpy as np
import pytest
from extend_page import ROOT, blocks

import golden
from compiled.build import shared_object
from golden.abi import AttentionResult, Mode
from golden.gemv import COMMAND_SHAPES
from kvdrive.kernels.job import JobMemory

LIBRARIES = [ROOT / "build/native" / name for name in ("libhls_engine.a", "libfast_engine.a")]
MAIN = """
#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

int main(int, char** files) {  // runs the job at byte 0 of a memory image; the new image begins with the status word
  std::ifstream in(files[1], std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(in), {}};
  kvdrive::CardEngine engine;
  const auto memory = engine.memory().use(image.size());
  std::copy(image.begin(), image.end(), reinterpret_cast<char*>(memory.data()));
  const std::uint32_t status = engine.attend(0, nullptr);
  std::ofstream out(files[2], std::ios::binary);
  out.write(reinterpret_cast<const char*>(&status), sizeof status);
  const auto result = engine.memory().used();
  out.write(reinterpret_cast<const char*>(result.data()), static_cast<std::streamsize>(result.size()));
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    missing = [library.name for library in LIBRARIES if not library.exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)} not in build/native: make setup")
    (source,) = blocks("Add an engine", "cpp")
    folder = tmp_path_factory.mktemp("engine")
    (folder / "card.cpp").write_text(source + MAIN)
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/hls", f"-I{ROOT}/sim/drive", "-pthread"]
    built = subprocess.run(
        ["g++", *flags, "card.cpp", *map(str, LIBRARIES), "-ldl", "-o", "card"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder / "card"


@pytest.mark.parametrize(("group", "d", "built"), [(1, 32, [1]), (3, 40, [4]), (10, 32, [8, 2])])
def test_the_example_gives_the_bits_of_the_golden_model(program, group, d, built):
    for size in built:  # the kernels that run the job
        shutil.copyfile(shared_object([f"attention_g{size}"]), program.with_name(f"attention_g{size}.so"))
    rng = np.random.default_rng(group)
    job = JobMemory(Mode.EXACT, group, d, tokens=33, scale_log2e=golden.scale_bits(None, d))
    for name, rows in (("q", group), ("k", 33), ("v", 33)):
        job.place(name, rng.standard_normal((rows, d)).astype(np.float16))
    job.reserve("result", -(-group // 8) * AttentionResult.itemsize)
    job.reserve("out", group * d * 2)
    expected = job.image().copy()
    program.with_name("in").write_bytes(expected.tobytes())
    environment = os.environ | {"KVDRIVE_KERNELS": str(program.parent)}
    subprocess.run([program, program.with_name("in"), program.with_name("out")], check=True, env=environment)
    found = np.frombuffer(program.with_name("out").read_bytes(), np.uint8)
    status = golden.job.run(expected, 0, shapes=COMMAND_SHAPES)
    assert found[:4].view(np.uint32)[0] == status == 0
    np.testing.assert_array_equal(found[4:], expected)

# SPDX-License-Identifier: Apache-2.0
"""The command of docs/extend.md, made as the page says: a drive built with it passes the page's test and its own."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from extend_page import ROOT, apply, python

BUILD = ROOT / "build/native"
NINJA = Path(sys.executable).with_name("ninja")


def commands(target: str) -> list[str]:
    """What the native build runs for a target, last the command that makes it."""
    listed = subprocess.run([NINJA, "-t", "commands", target], cwd=BUILD, check=True, capture_output=True, text=True)
    return listed.stdout.splitlines()


def build(tree: Path) -> None:
    """The native module of `tree`, whose only other source is kv.cpp. Other objects are those of the native build.

    The sources of a folder are compiled together, so that the new object takes the place of one in the library.
    """
    (module,) = (path.name for path in BUILD.glob("_native.*.so"))
    together = "CMakeFiles/drive.dir/Unity/unity_commands_cxx.cxx"
    sources = (BUILD / together).read_text().replace(str(ROOT), str(tree))
    (tree / "commands.cpp").write_text(sources)
    command = commands(f"{together}.o")[-1]
    for folder in ("hls", "sim"):
        command = command.replace(f"-I{ROOT / folder}", f"-I{tree / folder}")
    compiled = shlex.split(command)
    compiled[compiled.index("-c") + 1] = str(tree / "commands.cpp")
    compiled[compiled.index("-o") + 1] = str(tree / "commands.o")
    compiled[compiled.index("-MF") + 1] = str(tree / "commands.d")
    linked = shlex.split(re.sub(r"^: && | && :$", "", commands(module)[-1]))
    linked[linked.index("-o") + 1] = str(tree / "host/kvdrive" / module)
    linked.insert(linked.index("libdrive.a"), str(tree / "commands.o"))
    compiled = [option for option in compiled if option != "-O3"]  # it is run for a second
    for command in (compiled, linked):
        subprocess.run(command, cwd=BUILD, check=True)


@pytest.mark.slow  # a build; a test of tests/host holds the changes of all pages against the sources
@pytest.mark.skipif(not (NINJA.exists() and (BUILD / "build.ninja").exists()), reason="no native build: make setup")
def test_the_command_of_the_page_works(tmp_path):
    hidden = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in ("abi", "hls/common", "host/kvdrive", "sim/drive", "sim/golden", "tests/drive/nvme"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=hidden)
    apply("Add a command", tmp_path)
    python(tmp_path, "abi/generate.py")
    build(tmp_path)
    tests = ["test_session_tokens.py", "test_dispatch.py"]  # the second one walks all opcodes
    options = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist"]
    python(tmp_path, "-m", "pytest", *options, *tests, folder="tests/drive/nvme")
    assert "SESSION_TOKENS = 0x94" in (tmp_path / "host/kvdrive/abi.py").read_text()

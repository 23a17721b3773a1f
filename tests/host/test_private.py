# SPDX-License-Identifier: Apache-2.0
"""Files, folders and sockets that hold K, V, tokens, prompts or weights are their owner's alone, and appear whole."""

from __future__ import annotations

import ast
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import kvdrive
from kvdrive import private

PACKAGE = Path(kvdrive.__file__).parent
# What makes a file or folder by its name, in this package and the libraries that it uses.
MAKES = {
    "mkdir", "makedirs", "write_text", "write_bytes", "touch", "savefig", "save_file", "savez", "savez_compressed",
    "mkfifo", "mknod", "copyfile", "copytree", "symlink_to", "hardlink_to", "tofile", "NamedTemporaryFile", "to_csv",
    "save_pretrained", "ZipFile",
}  # fmt: skip
MAKES_OF = {
    "shutil": {"copy", "copy2", "move"},
    "sqlite3": {"connect"},
    "torch": {"save"},
    "np": {"save"},
    "os": {"link"},
}
# These make what is meant for everybody, or make it private in another way.
HARMLESS = {
    ("private.py", "mkdir"): "the helper itself",
    ("private.py", "open"): "the helper itself",
    ("private.py", "write_bytes"): "the helper itself",
    ("database.py", "connect"): "the file is made by the helper before",
    ("study/figures_page.py", "write_text"): "pages of the documentation, in the source tree",
    ("study/draw.py", "savefig"): "the same",
    ("study/cli/figures.py", "mkdir"): "the same",
    ("study/cli/figures.py", "write_text"): "the same",
    ("study/cli/ledger.py", "write_text"): "the same",
    ("study/attention_store/record.py", "write_text"): "the same",
    ("xrt/image.py", "write_text"): "an image of kernels, which belongs to a card and not to a user",
    ("generation/gguf.py", "save_pretrained"): "into a temporary folder, whose files `close_to_others` changes",
}


def makes(call: ast.Call, private_files: set[str]) -> str:
    """The name of what a call makes a file with; "" if it makes none, or writes into one of `private_files`."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = function.value.id if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) else ""
    first = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else ""
    if owner == "private" or first in private_files:
        return ""
    if name == "open" and owner == "os":
        return name if "O_CREAT" in ast.dump(call) else ""
    if name == "open":
        places = call.args[:1] if isinstance(function, ast.Attribute) else call.args[1:2]
        modes = [word.value for word in call.keywords if word.arg == "mode"] + places
        text = next((mode.value for mode in modes if isinstance(mode, ast.Constant)), "r")
        return name if isinstance(text, str) and len(text) <= 3 and set(text) & set("wxa+") else ""
    return name if name in MAKES or name in MAKES_OF.get(owner, ()) else ""


def names_of_private_files(tree: ast.AST) -> set[str]:
    """The variables that `with private.whole_file(...)` and `open_file` give."""
    items = [item for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    return {
        item.optional_vars.id
        for item in items
        if isinstance(item.optional_vars, ast.Name) and "private" in ast.unparse(item.context_expr)
    }


def test_no_other_module_makes_files_or_folders():
    """Whoever adds a call finds the helper here, or says why the file is for everybody."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        names = names_of_private_files(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (name := makes(node, names)):
                found.add((path.relative_to(PACKAGE).as_posix(), name))
    assert found - HARMLESS.keys() == set()
    assert HARMLESS.keys() - found == set()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_the_helper_makes_everything_for_the_owner_alone(tmp_path, open_umask):
    private.make_folder(tmp_path / "a" / "b")
    assert private.make_file(tmp_path / "a" / "new")
    assert not private.make_file(tmp_path / "a" / "new")
    private.write_text(tmp_path / "a" / "text", "x")
    private.open_file(tmp_path / "a" / "log", "a+").close()
    os.close(private.open_descriptor(tmp_path / "a" / "slots", os.O_RDWR))
    made = {path.name: mode(path) for path in (tmp_path / "a").rglob("*")}
    assert made == {"b": 0o700, "new": 0o600, "text": 0o600, "log": 0o600, "slots": 0o600}
    assert mode(tmp_path / "a") == 0o700


def test_a_file_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    private.write_text(path, "old")

    def fail():
        with private.whole_file(path) as file:
            file.write(b"half of the n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_is_taken_over(tmp_path):
    beside = private.unfinished(tmp_path / "file")
    beside.write_text("never finished")
    private.write_text(tmp_path / "file", "whole")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    beside.write_text("never finished")
    private.remove_unfinished(tmp_path / "file")
    assert not beside.exists()


def test_a_file_that_is_being_written_is_left_alone(tmp_path):
    beside = private.unfinished(tmp_path / "file")
    with private.whole_file(tmp_path / "file"):
        private.remove_unfinished(tmp_path / "file")
        assert beside.exists()
        with pytest.raises(BlockingIOError), beside.open() as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "file")
    private.write_text(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text() == "x"


def test_a_pipe_is_written_as_it_is():
    code = "from pathlib import Path; from kvdrive import private; private.write_text(Path('/dev/stdout'), 'text')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "text"


def test_files_that_others_can_use_are_named(tmp_path):
    closed, readable = tmp_path / "closed", tmp_path / "readable"
    closed.touch(0o600)
    readable.touch()
    readable.chmod(0o640)
    assert private.open_to_others([closed, readable, tmp_path / "missing"]) == [
        f"{readable} can be used by others than its owner (rw-r-----): chmod go= {readable}"
    ]


def test_what_others_remove_meanwhile_is_left_out(tmp_path, monkeypatch):
    """Temporary drives come and go in the cache folder while `kvdrive doctor` looks at it."""
    for name in ("going/inner", "staying"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    scandir = os.scandir

    def removed_before(folder):
        if str(folder).endswith("going"):
            shutil.rmtree(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", removed_before)
    assert tmp_path / "staying/file" in private.below(tmp_path)

"""sim/compiled: a kernel is compiled at its first use, once for all processes, and made again when it is damaged."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from compiled import recipe, store
from compiled.recipe import ROOT

TOML = '[kernel]\nname = "tiny"\nsources = ["tiny.cpp"]\n'
SOURCE = '#include "tiny/tiny.hpp"\nextern "C" int tiny() { return kAnswer; }\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with one small kernel, and a compiler that keeps a list of its calls in `calls`."""
    folder = tmp_path / "tree"
    for part in ("sim/compiled", "sim/csim"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "hls/tiny").mkdir(parents=True)
    (folder / "hls/tiny/kernel.toml").write_text(TOML)
    (folder / "hls/tiny/tiny.cpp").write_text(SOURCE)
    (folder / "hls/tiny/tiny.hpp").write_text("constexpr int kAnswer = 41;\n")
    (folder / "pyproject.toml").touch()
    tools = tmp_path / "tools"
    tools.mkdir()
    real = shutil.which("g++")
    (tools / "g++").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {real} "$@"\n')
    (tools / "g++").chmod(0o755)
    return folder


def start(tree: Path, *arguments: str, path: str = "") -> subprocess.Popen[str]:
    environment = os.environ | {
        "PATH": path or f"{tree.parent / 'tools'}:/usr/bin:/bin",
        "CCACHE_DISABLE": "1",
        "XDG_CACHE_HOME": str(tree.parent / "cache"),
    }
    command = [sys.executable, str(tree / "sim/compiled"), *(arguments or ("tiny",))]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask(tree: Path, *arguments: str, path: str = "") -> tuple[int, str]:
    process = start(tree, *arguments, path=path)
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return process.returncode, out.strip()


def answer(path: str) -> int:
    return int(ctypes.CDLL(path).tiny())


def compilations(tree: Path) -> int:
    return sum(" -c " in line for line in (tree.parent / "calls").read_text().splitlines())


def test_a_missing_kernel_is_compiled_and_kept(tree: Path) -> None:
    status, path = ask(tree)
    assert status == 0
    assert Path(path).is_relative_to(tree / "build/kernels")
    assert answer(path) == 41
    assert ask(tree) == (0, path)
    assert compilations(tree) == 1


def test_processes_that_need_a_kernel_at_once_compile_it_once(tree: Path) -> None:
    processes = [start(tree) for _ in range(4)]
    paths = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(paths) == 1
    assert answer(paths.pop()) == 41
    assert compilations(tree) == 1
    assert not list((tree / "build/kernels").glob("*.part"))


def test_kernels_of_a_folder_are_compiled_together_and_used_by_each(tree: Path) -> None:
    """A macro of one source, also from a header that is included once a source, does not reach the next one."""
    (tree / "hls/tiny/kernel.toml").write_text(TOML.replace('"tiny.cpp"', '"tiny.cpp", "other.cpp"'))
    (tree / "hls/tiny/top.hpp").write_text(
        '#include "tiny/tiny.hpp"\n#ifdef PLUS\n#define SUM +PLUS\n#else\n#define SUM\n#endif\n'
        'extern "C" int NAME() { return kAnswer SUM; }\n'
    )
    (tree / "hls/tiny/tiny.hpp").write_text("#pragma once\nconstexpr int kAnswer = 41;\n")
    (tree / "hls/tiny/tiny.cpp").write_text('#define NAME tiny\n#define PLUS 1\n#include "tiny/top.hpp"\n')
    (tree / "hls/tiny/other.cpp").write_text('#define NAME other\n#include "tiny/top.hpp"\n')
    assert ask(tree, "--all") == (0, "[1/1] kernels of hls/tiny compiled")
    assert ask(tree, "--all") == (0, "")
    assert compilations(tree) == 1
    paths = [ask(tree, name)[1] for name in ("tiny", "other")]
    assert paths[0] == paths[1]
    assert compilations(tree) == 1
    library = ctypes.CDLL(paths[0])
    assert (library.tiny(), library.other()) == (42, 41)


def test_the_widest_integers_are_allowed_from_the_first_source_on() -> None:
    text = recipe.units_of_family("attention_codes")[0].text().splitlines()
    assert text[0] == '#include "attention_codes/attention_codes4_g4.cpp"'
    assert len([line for line in text if line.startswith("#include")]) == 4
    assert not [line for line in text if "AP_INT_MAX_W" in line]


def test_a_changed_header_makes_another_kernel(tree: Path) -> None:
    before = ask(tree)[1]
    (tree / "hls/tiny/tiny.hpp").write_text("constexpr int kAnswer = 42;\n")
    after = ask(tree)[1]
    assert (before != after, answer(after)) == (True, 42)


@pytest.mark.parametrize("damage", ["cut", "changed", "no sum"])
def test_a_damaged_kernel_is_made_again(tree: Path, damage: str) -> None:
    path = Path(ask(tree)[1])
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:1000])
    elif damage == "changed":
        path.write_bytes(whole[:1000] + b"?" + whole[1001:])
    else:
        path.with_name(path.name + ".sha256").unlink()
    assert ask(tree) == (0, str(path))
    assert answer(str(path)) == 41


def test_without_a_compiler_one_sentence_says_what_to_install(tree: Path) -> None:
    status, said = ask(tree, path=str(tree))
    assert status == 1
    assert said.startswith("the kernel tiny cannot be compiled: g++ not found: install it with")
    assert "\n" not in said


def test_a_source_that_does_not_compile_shows_the_compilers_words(tree: Path) -> None:
    (tree / "hls/tiny/tiny.cpp").write_text(SOURCE + "int broken(\n")
    status, said = ask(tree)
    assert status == 1
    assert "error: expected" in said
    assert not list((tree / "build/kernels").glob("tiny*"))
    assert ask(tree, "--all")[0] == 1


def test_copies_take_the_name_of_the_kernel(tree: Path, tmp_path: Path) -> None:
    assert ask(tree, "--list") == (0, "tiny")
    assert ask(tree, "--out", str(tmp_path / "out"), "tiny") == (0, str(tmp_path / "out/tiny.so"))
    assert answer(str(tmp_path / "out/tiny.so")) == 41


def test_an_unknown_kernel_is_named(tree: Path) -> None:
    assert ask(tree, "huge") == (1, "the kernel huge cannot be compiled: no kernel is called huge: choose one of tiny")


def test_a_tree_that_cannot_be_written_uses_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the user can read what is kept there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("compiled.store.os.access", lambda *_: False)
    entry = store.Store().get("a", "0123", ".so", lambda path: path.write_text("made") and None)
    assert entry == tmp_path / "kvdrive/kernels/a-0123.so"
    assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o77 == 0 for path in entry.parent.glob("a-*"))


def test_a_maker_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        store.Store(tmp_path).get("a", "0123", ".o", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".a-0123.o.lock"]


def test_every_top_is_in_a_kernel_and_headers_count() -> None:
    kernels = recipe.kernels()
    assert {"attention_g1", "attention_codes4_g4", "group_choice_g5", "gemv", "ffn"} <= set(kernels)
    names = {path.name for path in recipe.Unit("x", (kernels["attention_g4"],)).files()}
    assert {"attention_g4.cpp", "top.hpp", "abi.hpp", "simulation.hpp", "ap_int.h"} <= names
    assert [unit.name for unit in recipe.units_of("gemv")] == ["gemv", "gemv-calls"]

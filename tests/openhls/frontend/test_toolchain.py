# SPDX-License-Identifier: Apache-2.0
"""Clang is asked once for the same text, wherever it lies, and places are those of the file."""

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from openhls.frontend import toolchain

TEXT = "int helper(int a) { return a * 3; }\nint top(int a) { return helper(a) + NUMBER; }\n"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENHLS_CACHE", str(tmp_path / "store"))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that ran, but for those that preprocess."""
    found: list[list[str]] = []
    run = toolchain._run

    def noted(command: list[str], given: str | None = None) -> str:
        if "-E" not in command:
            found.append(command)
        return run(command, given)

    toolchain._versions()
    monkeypatch.setattr(toolchain, "_run", noted)
    return found


def compiled(folder: Path, number: str = "1", text: str = TEXT) -> str:
    folder.mkdir(exist_ok=True)
    source = folder / "top.cpp"
    source.write_text(text)
    return toolchain.compile_source(source, "top", defines=(f"NUMBER={number}",)).text


def test_the_same_text_in_another_folder_is_compiled_once(tmp_path: Path, commands: list[list[str]]) -> None:
    one = compiled(tmp_path / "one")
    assert [command[0] for command in commands] == [toolchain.CLANG, toolchain.OPT]
    other = compiled(tmp_path / "other")
    assert len(commands) == 2
    assert f'filename: "{tmp_path}/other/top.cpp"' in other
    assert other == one.replace(f"{tmp_path}/one/", f"{tmp_path}/other/")
    assert compiled(tmp_path / "one", "2") != one
    assert len(commands) == 4


def test_an_error_names_the_file_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with pytest.raises(OpenHlsError, match=f"{tmp_path}/{name}/top.cpp:2:"):
            compiled(tmp_path / name, "missing")

# SPDX-License-Identifier: Apache-2.0
"""What a compilation of C++ reads: everything counts but the folders, and what is not clear is not kept."""

from pathlib import Path

import pytest

from openhls.cosim.texts import all_texts

MAIN = '#include "near.hpp"\n#include <far.hpp>\n#include <string>\nint main() { return NEAR + FAR; }\n'


def write(folder: Path, main: str = MAIN, near: str = "#define NEAR 1\n", far: str = "#define FAR 2\n") -> Path:
    (folder / "headers").mkdir(parents=True, exist_ok=True)
    (folder / "main.cpp").write_text(main)
    (folder / "near.hpp").write_text(near)
    (folder / "headers/far.hpp").write_text(far)
    return folder


def read(folder: Path) -> list[str | bytes] | None:
    return all_texts(folder / "main.cpp", [folder / "headers"])


def test_the_same_texts_in_another_folder_are_the_same(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    one, other = (write(folder, MAIN.replace("near.hpp", f"{folder}/near.hpp")) for folder in folders)
    assert read(one) == read(other) is not None


@pytest.mark.parametrize("changed", [{"main": MAIN + "//"}, {"near": "#define NEAR 2\n"}, {"far": "\n#define FAR 2\n"}])
def test_each_text_counts(changed: dict[str, str], tmp_path: Path) -> None:
    before = read(write(tmp_path))
    assert read(write(tmp_path, **changed)) not in (before, None)


def test_headers_of_headers_and_headers_that_appear_count(tmp_path: Path) -> None:
    before = read(write(tmp_path, near='#include "../deep.hpp"\n'))
    (tmp_path.parent / "deep.hpp").write_text("")
    appeared = read(tmp_path)
    (tmp_path.parent / "deep.hpp").write_text("#define NEAR 1\n")
    assert None not in (before, appeared)
    assert len({str(found) for found in (before, appeared, read(tmp_path))}) == 3


def test_headers_that_include_each_other_are_read_once(tmp_path: Path) -> None:
    assert read(write(tmp_path, near='#pragma once\n#include "main.cpp"\n')) is not None


@pytest.mark.parametrize(
    "line",
    [
        "#include NAME",
        "%:include <far.hpp>",
        "# /* */ include <far.hpp>",
        "#if __has_include(<far.hpp>)\n#endif",
        "#inc\\\nlude NAME",
        "#include_next <far.hpp>",
        'asm(".incbin \\"data\\"");',
    ],
)
def test_what_is_not_clear_is_told(line: str, tmp_path: Path) -> None:
    assert read(write(tmp_path, main=f"{MAIN}{line}\n")) is None

# SPDX-License-Identifier: Apache-2.0
"""The private copy of the runtime: one byte is changed, and only in code that is the known one."""

from pathlib import Path

import pytest

from xrt.prefix import SHIMS, RuntimeMissing, make_prefix, repair, system_libraries


@pytest.fixture
def libraries() -> Path:
    try:
        return system_libraries()
    except RuntimeMissing as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", SHIMS)
def test_one_byte_is_changed(libraries: Path, name: str) -> None:
    before = (libraries / name).read_bytes()
    after = repair(before, SHIMS[name])
    changed = [at for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert [(before[at], after[at]) for at in changed] == [(0xE6, 0xDF)]


@pytest.mark.parametrize("name", SHIMS)
def test_other_code_is_refused(libraries: Path, name: str) -> None:
    before = (libraries / name).read_bytes()
    after = repair(before, SHIMS[name])
    with pytest.raises(RuntimeMissing, match="not the known one"):
        repair(after, SHIMS[name])
    with pytest.raises(RuntimeMissing, match="no function"):
        repair(before, b"_ZN9somewhere4elseEv")
    with pytest.raises(RuntimeMissing, match="ELF"):
        repair(b"no library", SHIMS[name])


def test_the_copy_links_to_the_rest(libraries: Path, tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path / "xrt", libraries)
    assert (prefix / "lib/libxrt_core.so.2").resolve() == (libraries / "libxrt_core.so.2").resolve()
    assert not (prefix / "lib/libxrt_swemu.so.2").is_symlink()

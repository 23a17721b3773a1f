# SPDX-License-Identifier: Apache-2.0
"""What is built once for the same text, by whichever process comes first."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openhls import store
from openhls.errors import OpenHlsError


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENHLS_CACHE", str(tmp_path / "store"))
    return tmp_path / "store"


def make(folder: Path) -> None:
    (folder / "made").write_text("")


def refuse(folder: Path) -> None:
    (folder / "half").write_text("")
    raise OpenHlsError("refused")


def test_equal_parts_are_made_once_and_others_anew() -> None:
    made = store.kept("kind", ["a", "bc"], make)
    assert store.kept("kind", ["a", "bc"], refuse) == made
    assert (made / "made").exists()
    for parts in (["ab", "c"], ["a", "bc", ""], ["bc", "a"]):
        with pytest.raises(OpenHlsError):
            store.kept("kind", parts, refuse)
    with pytest.raises(OpenHlsError):
        store.kept("other kind", ["a", "bc"], refuse)


def test_what_fails_leaves_nothing(own_store: Path) -> None:
    with pytest.raises(OpenHlsError):
        store.kept("kind", ["a"], refuse)
    assert [path for path in own_store.iterdir() if path.is_dir()] == []


def test_of_processes_at_the_same_time_one_builds(own_store: Path, tmp_path: Path) -> None:
    text = (
        "import os, sys; from pathlib import Path; from openhls import store\n"
        "def make(folder):\n"
        "    with open(sys.argv[1], 'a') as log: log.write('made\\n')\n"
        "store.kept('kind', ['a'], make)\n"
    )
    command = [sys.executable, "-c", text, str(tmp_path / "log")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: subprocess.run(command, env=environment, check=True), range(4)))
    assert (tmp_path / "log").read_text() == "made\n"


def test_what_was_used_least_recently_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        store.kept("kind", [str(number)], lambda folder: (folder / "data").write_bytes(bytes(100)))
        for number in range(4)
    ]
    for age, place in enumerate(places):
        os.utime(place, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(store, "LIMIT_BYTES", 350)
    monkeypatch.setattr(store, "CLEANED_S", 0.0)
    store.kept("kind", ["new"], make)
    assert [place.exists() for place in places] == [True, True, True, False]
    monkeypatch.setattr(store, "LIMIT_BYTES", 0)
    new = store.kept("kind", ["newest"], make)
    assert [place.exists() for place in places] == [False] * 4
    assert new.exists()  # it may be in use

# SPDX-License-Identifier: Apache-2.0
"""What really lies on the disk after the work, under a umask that gives everything to everybody."""

from __future__ import annotations

import io
import os
import stat
import tempfile
from pathlib import Path

import in_process
import numpy as np
import pytest
from rich.console import Console
from server_process import Server
from small_models import CONFIGS, prompts, random_model

from kvdrive import private
from kvdrive._native import Drive, RingServer, Subsystem
from kvdrive.doctor import storage
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.blocks.file import blocks_in_file
from kvdrive.prefix.blocks.store import BlockOptions
from kvdrive.prefix.transfer import export
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.temporary import temporary_folder
from kvdrive.weights.eviction.prior import Prior
from kvdrive.weights.making import make_file


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Whatever others than its owner can use: files, folders, sockets, pipes."""
    return [f"{stat.filemode(one.lstat().st_mode)} {one.relative_to(folder)}" for one in sorted(folder.rglob("*"))
            if stat.S_IMODE(one.lstat().st_mode) & 0o077]  # fmt: skip


def test_sessions_while_they_are_open_and_afterwards(tmp_path):
    model, ids = random_model(CONFIGS["llama"]), prompts(1, 70)
    path = tmp_path / "made" / "drive.kv"
    with Emulator(path, "fast", capacity_bytes=1 << 24) as drive, attach(model, drive, sessions=True) as attached:
        cache = attached.sessions.cache(ids, "notes")
        greedy(model, ids, 10, past_key_values=cache)
        number = attached.sessions.release(cache)
        with attached.sessions.index.transaction():
            attached.sessions.index.set(number, pinned=True)
        export(attached.sessions.stored, attached.sessions.index.get(number), tmp_path / "made" / "exported")
        plain = attached.cache()
        model(ids, past_key_values=plain)
        attached.save(plain, tmp_path / "made" / "saved" / "cache.json")
        names = {one.name for one in (tmp_path / "made").rglob("*")}
        assert {"drive.kv", "drive.kv.sessions", "drive.kv.sessions-wal", "drive.kv.sessions-shm", "exported", "saved",
                "drive.kv.sessions.pins", "cache.json"} <= names  # fmt: skip
        assert open_to_others(tmp_path) == []
    assert open_to_others(tmp_path) == []


def test_a_damaged_index_that_was_set_aside(tmp_path):
    model = random_model(CONFIGS["llama"])
    for _ in range(2):
        with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 24) as drive:
            attach(model, drive, sessions=True).detach()
        (tmp_path / "drive.kv.sessions").write_bytes(b"x" * 5000)
    assert (tmp_path / "drive.kv.sessions.damaged").exists()
    assert open_to_others(tmp_path) == []


def test_blocks_sockets_and_temporary_folders(tmp_path):
    blocks = blocks_in_file(tmp_path / "vllm" / "blocks", 5000, BlockOptions(1 << 20))
    with temporary_folder(tmp_path) as folder:
        Drive(folder / "drive.kv", "fast", 1, 1 << 22)
        subsystem = Subsystem(Drive(tmp_path / "drive.kv", "fast", 1, 1 << 22))
        server = RingServer(subsystem, tmp_path / "socket")
        assert (tmp_path / "socket").is_socket()
        assert open_to_others(tmp_path) == []
        del server
    blocks.close()
    assert open_to_others(tmp_path) == []


def test_the_command_line(tmp_path):
    """What libraries write for a command is private too: the command sets the umask."""
    small = ["--capacity", "4M"]
    for arguments in (
        ["drive", "create", tmp_path / "drive.kv", *small],
        ["drive", "kv", "put", tmp_path / "drive.kv", "key", "/etc/hostname"],
        ["drive", "kv", "get", tmp_path / "drive.kv", "key", tmp_path / "value"],
        ["drive", "recover", tmp_path / "drive.kv", tmp_path / "new.kv"],
    ):
        done = in_process.kvdrive(*arguments)
        assert done.returncode == 0, done.stderr + done.stdout
    assert {one.name for one in tmp_path.iterdir()} == {"drive.kv", "value", "new.kv"}
    assert open_to_others(tmp_path) == []


def test_files_of_earlier_versions_are_named_when_they_are_opened(tmp_path, caplog):
    path = tmp_path / "drive.kv"
    Drive(path, "fast", 1, 1 << 22)
    (tmp_path / "drive.kv.sessions").touch()
    path.chmod(0o640)
    with Emulator(path, "fast"):
        pass
    named = [message for message in caplog.messages if "others than its owner" in message]
    assert [message.split()[0] for message in named] == [str(path), str(tmp_path / "drive.kv.sessions")]
    assert f"chmod go= {path}" in named[0]


def test_doctor_names_files_that_others_can_use(tmp_path):
    tmp_path.chmod(0o755)
    Drive(tmp_path / "drive.kv", "fast", 1, 1 << 22)
    (tmp_path / "weights").write_bytes(np.zeros(8, np.uint8).tobytes())
    found = list(storage.rights([tmp_path]))
    assert [one.detail.split()[0] for one in found] == [str(tmp_path), str(tmp_path / "weights")]
    assert found[1].remedy == f"chmod go= {tmp_path / 'weights'}"
    tmp_path.chmod(0o700)  # nobody else can look into it
    (sound,) = storage.rights([tmp_path, tmp_path / "drive.kv"])
    assert sound.state == "ok"
    private.write_text(tmp_path / "drive.kv.sessions.pins", "{}")
    (tmp_path / "drive.kv.sessions.pins").chmod(0o604)
    assert [one.state for one in storage.rights([tmp_path / "drive.kv"])] == ["missing"]


def test_weights_on_flash(tmp_path):
    random_model(CONFIGS["llama"]).save_pretrained(tmp_path)
    for one in tmp_path.iterdir():
        one.chmod(0o600)  # the checkpoint is not ours
    tmp_path.chmod(0o700)
    made = make_file(tmp_path, tmp_path / "kept" / "w.kvw", "auto", Console(quiet=True)).path
    assert made.exists()
    prior = Prior(made.with_name("prior.json"))
    prior.counts[0, 0] += 1
    prior.save()
    assert open_to_others(tmp_path) == []


def test_every_command_that_generates(checkpoint, tmp_path, monkeypatch):
    """Below a home of their own; those of the process `serve` while it runs, too."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir(0o700)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "The drive"}\n')
    for name, value in {"HOME": home, "XDG_CACHE_HOME": home / ".cache", "TMPDIR": work}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(tempfile, "tempdir", None)  # TMPDIR is read again
    monkeypatch.setattr("sys.stdin", io.StringIO("Who keeps the keys?\n"))
    model, few = ["--model", checkpoint, "--threads", "1"], ["--max-new-tokens", "2"]
    for command in (
        ["generate", *model, *few, "--prompt", "The drive", "--drive", work / "drive", "--session", "notes",
         "--report", work / "report"],
        ["chat", *model, *few],
        ["batch", tmp_path / "prompts.jsonl", "--out", work / "answers.jsonl", *model, *few],
        ["run", "--model", "mini", "--threads", "1", "--prompt-tokens", "140", "--max-new-tokens", "2",
         "--report", work / "run-report"],
    ):  # fmt: skip
        done = in_process.kvdrive(*command)
        assert done.returncode == 0, done.stderr + done.stdout
    made = {one.name for folder in (home, work) for one in folder.rglob("*")}
    assert {"drive.kv", "drive.kv.sessions", "report", "messages.json", "answers.jsonl", "run-report"} <= made
    assert open_to_others(tmp_path / "home") == open_to_others(tmp_path / "work") == []

    server = Server(checkpoint, home, "--drive", work / "served")
    try:
        server.complete(prompt="The drive keeps the keys", max_tokens=2)
        assert {one.suffix for one in (work / "served").iterdir()} >= {".kv", ".sessions"}
        assert open_to_others(home) == open_to_others(work) == []
    finally:
        server.close()
    assert open_to_others(home) == open_to_others(work) == []

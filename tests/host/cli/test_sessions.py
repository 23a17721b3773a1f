"""`kvdrive sessions`: what a drive keeps, moved, pinned and removed from the command line."""

import json
import os

import pytest
import torch
from small_models import prompts
from typer.testing import CliRunner

import kvdrive
from kvdrive.cli.main import app
from kvdrive.generation.generate import greedy
from kvdrive.targets.opening import DriveOptions

PROMPT = prompts(1, 150)


@pytest.fixture
def place(model, tmp_path):
    """A folder with a drive that keeps a session with a name and one without."""
    folder = tmp_path / "drives"
    for name, ids in (("notes", PROMPT), ("", prompts(1, 80, seed=4))):
        with attach(model, folder) as attached:
            greedy(model, ids, 10, past_key_values=attached.sessions.cache(ids, name))
    return folder


def attach(model, folder):
    options = DriveOptions(folder=folder, capacity_bytes=1 << 26)
    return kvdrive.attach(model, "emulator", options=options, sessions=True)


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["sessions", *map(str, arguments)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output if code == 0 else str(done.exception)


def test_sessions_are_listed_shown_and_pinned(place):
    rows = json.loads(run("list", place, "--json"))
    assert [(row["name"], row["tokens"], row["pinned"], row["open"]) for row in rows] == [
        ("", 89, False, False),
        ("notes", 159, False, False),
    ]
    assert "notes" in run("list", place / "drive.kv")
    run("pin", place, "notes")
    shown = json.loads(run("show", place, "notes", "--json"))
    assert (shown["pinned"], shown["blocks"], shown["block tokens"]) == (True, 2, 64)
    run("pin", place, "notes", "--off")
    assert not json.loads(run("show", place, rows[1]["number"], "--json"))["pinned"]
    found = json.loads(run("stats", place, "--json", "--quota", "1M"))
    assert (found["sessions"], found["blocks"], found["quota of the tenant"]) == (2, 3, 1 << 20)
    assert found["bytes"] == found["bytes written"] == (159 + 89) * shown["bytes per token"]


def test_a_session_moves_to_another_drive(place, model, tmp_path):
    file, other = tmp_path / "notes.kvs", tmp_path / "other"
    assert "159 tokens" in run("export", place, "notes", file)
    with attach(model, other):
        pass
    run("import", other, file)
    assert "already" in run("import", other, file, code=1)
    run("import", other, file, "--name", "copy")
    tokens = greedy(model, PROMPT, 10)
    with attach(model, other) as attached:
        cache = attached.sessions.cache(name="copy")
        assert torch.equal(cache.batch.token_ids(), tokens[:, :-1])
        more = greedy(model, tokens, 20, past_key_values=cache)
    assert torch.equal(more, greedy(model, PROMPT, 30))


def names(place):
    return [row["name"] for row in json.loads(run("list", place, "--json"))]


def test_a_damaged_file_is_refused(place, tmp_path):
    file = tmp_path / "notes.kvs"
    run("export", place, "notes", file)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    before = names(place)
    assert "damaged" in run("import", place, file, "--name", "x", code=1)
    assert names(place) == before
    assert "0 that no index names" in run("gc", place)


def test_sessions_are_removed(place, model):
    assert "1 sessions removed" in run("drop", place, "notes")
    assert [row["tokens"] for row in json.loads(run("list", place, "--json"))] == [89]
    assert "no session 'notes'" in run("drop", place, "notes", code=1)
    (place / "drive.kv.sessions").unlink()
    assert "no index" in run("list", place, code=1)
    run("gc", place)  # makes the index again
    assert [row["tokens"] for row in json.loads(run("list", place, "--json"))] == [89]
    assert "no drive" in run("list", place / "nothing", code=1)


def test_what_a_killed_process_left_is_removed(place, model):
    with attach(model, place) as attached:
        cache = attached.sessions.cache(PROMPT)
        cache.batch.listener = None
        cache.batch.hand_over()  # the fork stays on the drive, and no index names it
    assert "1 that no index names" in run("gc", place)
    assert len(json.loads(run("list", place, "--json"))) == 2


def test_a_drive_that_another_process_has_is_named_with_that_process(place, model):
    with attach(model, place):
        refused = run("drop", place, "notes", code=1)
    assert f"process {os.getpid()} (" in refused
    assert "DELETE /v1/sessions/NAME" in refused
    assert "1 sessions removed" in run("drop", place, "notes")

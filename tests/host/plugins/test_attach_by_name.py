"""`kvdrive.attach` with the name of a target or the path of a drive's file. It closes the drives that it opened."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from small_models import prompts, random_model
from transformers import BloomConfig

import kvdrive
from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

PROMPT = prompts(1, 30)
SMALL = {"threads": 1, "capacity_bytes": 1 << 26}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder for drives without one of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kvdrive"


@contextmanager
def as_stock(model, where, **options):
    """The attachment. Asserts that the attached model gives the tokens of transformers."""
    stock = greedy(model, PROMPT, 12)
    with kvdrive.attach(model, where, options=kvdrive.DriveOptions(**SMALL | options)) as attached:
        assert torch.equal(greedy(model, PROMPT, 12), stock)
        yield attached
    for drive in attached.target.drives:
        with pytest.raises(TargetError, match="closed"):
            drive.stats()


@pytest.mark.parametrize(("name", "kind"), [("emulator", Emulator), ("cpu", CpuDrive)])
def test_a_name_opens_empty_drives_for_the_context(llama, cache, name, kind):
    with as_stock(llama, name, drives=2) as attached:
        assert [type(drive) for drive in attached.target.drives] == [kind, kind]
        assert attached.target.stats().attention_jobs > 0
        assert len(list(cache.glob("*/*.kv"))) == 2
    assert list(cache.glob("*")) == []


def test_an_emulator_is_what_one_gets_without_a_name(llama):
    with kvdrive.attach(llama) as attached:
        assert isinstance(attached.target.drives[0], Emulator)


@pytest.mark.parametrize(("target", "kind"), [("emulator", Emulator), ("cpu", CpuDrive)])
def test_a_path_is_made_and_mounted_again_as_what_it_is(llama, tmp_path, target, kind):
    path, saved = tmp_path / "chat.kv", tmp_path / "chat.json"
    with as_stock(llama, path, target=target) as attached:
        assert isinstance(attached.target.drives[0], kind)
        kept = attached.cache()
        tokens = greedy(llama, PROMPT, 5, past_key_values=kept)
        attached.save(kept, saved)
    with kvdrive.attach(llama, str(path)) as attached:
        assert isinstance(attached.target.drives[0], kind)
        assert torch.equal(attached.reopen(saved).batch.token_ids(), tokens[:, :-1])


def test_drives_that_were_open_stay_so(llama, tmp_path):
    with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as drive:
        with kvdrive.attach(llama, drive):
            pass
        assert drive.stats().failed_commands == 0
        with pytest.raises(InputError, match="leave them out"):
            kvdrive.attach(llama, drive, options=kvdrive.DriveOptions())


def test_a_model_that_is_refused_leaves_nothing_open(tmp_path, cache):
    other = random_model(BloomConfig(vocab_size=300, hidden_size=64, n_head=2, n_layer=1))
    path = tmp_path / "drive.kv"
    for target in ("emulator", path):
        with pytest.raises(UnsupportedError, match="Bloom"):
            kvdrive.attach(other, target)
    assert list(cache.glob("*")) == []
    Emulator(path, "fast").close()  # the file is closed


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("emulater", {}, "there is no target 'emulater': choose emulator, cpu, tcp://"),
        (Path("drive.kv"), {"drives": 2}, "must name one drive's file"),
        (Path("."), {}, "must name one drive's file"),
    ],
)
def test_bad_names(llama, tmp_path, monkeypatch, target, options, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence):
        kvdrive.attach(llama, target, options=kvdrive.DriveOptions(**options))
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_no_drive(llama, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("something else " * 1000)
    with pytest.raises(TargetError, match="something else"):
        kvdrive.attach(llama, path)

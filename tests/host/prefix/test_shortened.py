"""Sessions that lost tokens from their middle: stored under their name, never taken for a whole prefix."""

import subprocess

import pytest
import torch
from small_models import CONFIGS, prompts, random_model

from kvdrive.generation.generate import greedy
from kvdrive.kvcache.session import Session
from kvdrive.plugins.transformers import attach
from kvdrive.prefix import metadata
from kvdrive.prefix.metadata import holds
from kvdrive.prefix.record import Record
from kvdrive.prefix.transfer import export, import_file
from kvdrive.targets.emulator import Emulator

PROMPT = prompts(1, 100)
TRIM = {"overflow": "trim", "context": 192}


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIGS["qwen3"])


@pytest.fixture
def opened(opened):
    return lambda model, folder="a", **options: opened(model, folder=folder, **TRIM | options)


@pytest.fixture(scope="module")
def text(model, tmp_path_factory):
    """The text of 240 new tokens in one process, without a store."""
    path = tmp_path_factory.mktemp("text") / "drive.kv"
    with Emulator(path, "fast", capacity_bytes=1 << 24) as target, attach(model, target, **TRIM):
        return greedy(model, PROMPT, 240)


@pytest.mark.parametrize("drives", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_named_session_continues_in_other_processes(opened, model, text, drives):
    at = 100
    for end in (150, 220, 290, 340):
        with opened(model, drives=drives) as attached:
            cache = attached.sessions.cache(text[:, :at], "talk")
            assert cache.get_seq_length() == (0 if at == 100 else at - 1)
            found = greedy(attached._model, text[:, :at], end - at, past_key_values=cache)
            assert torch.equal(found, text[:, :end])
            removed = cache.batch.removed
            attached.sessions.release(cache)
            entry = attached.sessions.index.named("talk", "")
            assert entry.tokens + removed == end - 1
        at = end
    assert removed > 0
    with opened(model, drives=drives) as attached:
        cache = attached.sessions.cache(name="talk")
        assert torch.equal(cache.batch.token_ids(), text[:, :339])
        assert cache.batch.removed == removed


@pytest.fixture(scope="module")
def kept(model, text, tmp_path_factory):
    """A folder whose drive, now closed, has a session "talk" that lost tokens."""
    folder = tmp_path_factory.mktemp("kept")
    with (
        Emulator(folder / "0.kv", "fast", capacity_bytes=1 << 24) as target,
        attach(model, target, sessions=True, **TRIM) as attached,
    ):
        cache = attached.sessions.cache(text[:, :100], "talk")
        greedy(model, text[:, :100], 150, past_key_values=cache)
        assert cache.batch.removed == 96
        attached.sessions.release(cache)
    return folder


@pytest.fixture
def shortened(kept, tmp_path):
    """That session is in the test's folder."""
    copy(kept, tmp_path / "a")


def copy(folder, there):
    subprocess.run(["cp", "-r", "--sparse=always", folder, there], check=True)


def test_a_session_that_was_changed_too_often_is_saved_no_more(opened, model, text, monkeypatch, caplog):
    """There is room for the first record, two for a removal, and one that says: the rest is unusable."""
    monkeypatch.setattr(metadata, "_RECORDS", 4)
    with opened(model) as attached:
        store = attached.sessions
        cache = store.cache(PROMPT, "talk")
        assert torch.equal(greedy(model, PROMPT, 200, past_key_values=cache), text[:, :300])
        assert cache.batch.removed == 2 * 96
        assert "no more changes can be noted" in caplog.text
        assert store.stats.evictions == store.stats.failed_saves == 0
        assert cache.batch.listener is None
        cache.reset()
        kept = store.index.named("talk", "")
        assert sum(tokens for _, tokens in Record.of(kept.record).removals) == 96
        end = kept.tokens + 96
    with opened(model) as attached:  # the rest was removed, what was kept is found
        assert attached._storage.backing.queues[0].target.sessions() == {kept.slices[0][1]}
        cache = attached.sessions.cache(text[:, : end + 1], "talk")
        assert (cache.get_seq_length(), cache.batch.removed) == (end, 96)
        assert torch.equal(greedy(model, text[:, : end + 1], 299 - end, past_key_values=cache), text[:, :300])


def test_a_save_in_the_background_that_finds_no_room_for_a_record_ends(opened, model, monkeypatch, caplog):
    """The model's thread stops keeping the sequence at its next call; it continues in memory."""
    monkeypatch.setattr(metadata, "_RECORDS", 1)  # which is for saying that the rest is unusable
    with opened(model, active="memory", overflow="error", context=0) as attached:
        store = attached.sessions
        cache = store.cache(PROMPT, "talk")
        assert greedy(model, PROMPT, 40, past_key_values=cache).shape[1] == PROMPT.shape[1] + 40
        assert "no more changes can be noted" in caplog.text
        assert cache.batch.listener is None
        assert store.index.named("talk", "") is None


@pytest.mark.parametrize("way", ["reset", "lost"])
def test_a_sequence_that_begins_anew_has_room_for_records(opened, model, monkeypatch, way):
    """What a save in the background found full was the session that is gone."""
    with opened(model, active="memory", overflow="error", context=0) as attached, monkeypatch.context() as full:
        store = attached.sessions
        cache = store.cache(PROMPT, "talk")
        full.setattr(metadata, "_RECORDS", 1)
        model(PROMPT, past_key_values=cache)
        cache.batch.listener.wait()
        assert "no more changes can be noted" in cache.batch.listener.full
        full.undo()
        if way == "reset":
            cache.reset()
            model(PROMPT, past_key_values=cache)
        else:
            attached._calls.recovery.recompute(cache.batch)
        assert store.release(cache) == store.index.named("talk", "").id
        assert store.index.named("talk", "").tokens == PROMPT.shape[1]


def test_records_are_counted_with_few_reads(target, monkeypatch):
    monkeypatch.setattr(metadata, "_RECORDS", 40)
    session, reads = Session(target), []
    session.put_label(bytes(32))
    for number in range(39):
        assert metadata._records(session) == number
        metadata.put_record(session, Record("", str(number), "", 0, 64))
        reads.clear()
        with monkeypatch.context() as patch:
            patch.setattr(metadata, "holds", lambda *of: reads.append(1) or holds(*of))
            assert metadata.read_record(session).tenant == str(number)
        assert len(reads) <= 2 + 2 * (number + 1).bit_length()
    with pytest.raises(metadata.RecordsFullError):
        metadata.put_record(session, Record("", "", "", 0, 64))
    metadata.put_record(session, Record("", "", "", 0, 64, usable=False))
    with pytest.raises(metadata.RecordsFullError):
        metadata.put_record(session, Record("", "", "", 0, 64, usable=False))
    assert not metadata.read_record(session).usable


@pytest.mark.usefixtures("shortened")
def test_it_is_no_prefix_of_anything_else(opened, model, text):
    with opened(model) as attached:
        store = attached.sessions
        assert store.cache(text[:, :250]).get_seq_length() == 0  # without its name
        assert store.cache(text[:, :250], "other").get_seq_length() == 0
        other = text[:, :250].clone()
        other[0, 120] += 1  # before the removal at 192: what is left depends on it
        assert store.cache(other, "talk").get_seq_length() == 0
        assert store.index.named("talk", "") is not None
        later = text[:, :250].clone()
        later[0, 230] += 1  # behind the removal
        cache = store.cache(later, "talk")
        assert (cache.get_seq_length(), cache.batch.removed) == (230, 96)
        assert cache.batch.drive_layers[0].tokens == 134


def test_without_a_name_the_whole_beginning_stays(opened, model, text):
    with opened(model) as attached:
        cache = attached.sessions.cache(text[:, :100])
        greedy(model, text[:, :100], 150, past_key_values=cache)
        attached.sessions.release(cache)
        whole = [entry for entry in attached.sessions.index.entries() if not Record.of(entry.record).removals]
        assert [entry.tokens for entry in whole] == [192]
    with opened(model) as attached:
        cache = attached.sessions.cache(text[:, :250])
        assert (cache.get_seq_length(), cache.batch.removed) == (192, 0)
        assert torch.equal(greedy(model, text[:, :250], 20, past_key_values=cache)[:, :250], text[:, :250])
        assert cache.batch.removed > 0


@pytest.mark.usefixtures("shortened")
def test_a_lost_index_is_made_again(opened, model, text, tmp_path):
    for path in (tmp_path / "a").glob("0.kv.sessions*"):
        path.unlink()
    with opened(model) as attached:
        entry = attached.sessions.index.named("talk", "")
        assert (entry.tokens, Record.of(entry.record).removed) == (153, 96)
        assert attached.sessions.cache(text[:, :250]).get_seq_length() == 0
        cache = attached.sessions.cache(text[:, :250], "talk")
        assert cache.get_seq_length() == 249
        assert torch.equal(greedy(model, text[:, :250], 50, past_key_values=cache), text[:, :300])


def test_a_process_that_dies_while_tokens_are_removed_serves_nothing_wrong(opened, model, text, tmp_path):
    """The removal has happened, and neither record nor index say so yet; then the index is lost as well."""
    with opened(model) as attached:
        cache = attached.sessions.cache(text[:, :100], "talk")
        attached.sessions.context.every = 16
        greedy(model, text[:, :100], 92, past_key_values=cache)
        attached._calls.recovery.remove(cache.batch, 96)
        attached._storage.backing.flush()
        cache.batch.listener = None  # as if the process had been killed here
        cache.batch.hand_over()
    for again in ("kept", "lost"):
        copy(tmp_path / "a", tmp_path / again)
        if again == "lost":
            for path in (tmp_path / again).glob("0.kv.sessions*"):
                path.unlink()
        with opened(model, folder=again) as attached:
            (entry,) = attached.sessions.index.entries()  # the one from before the removal
            assert (entry.name, entry.tokens, Record.of(entry.record).removals) == ("talk", 176, [])
            cache = attached.sessions.cache(text[:, :250], "talk")
            assert (cache.get_seq_length(), cache.batch.removed) == (176, 0)
            assert torch.equal(greedy(model, text[:, :192], 1, past_key_values=cache), text[:, :193])


@pytest.mark.usefixtures("shortened")
def test_it_moves_to_another_drive(opened, model, text, tmp_path):
    with opened(model) as attached:
        entry = attached.sessions.index.named("talk", "")
        export(attached.sessions.stored, entry, tmp_path / "talk.npz")
    with opened(model, folder="b", drives=2) as attached:
        import_file(attached.sessions.stored, tmp_path / "talk.npz")
        cache = attached.sessions.cache(text[:, :250], "talk")
        assert cache.get_seq_length() == 249
        assert torch.equal(greedy(model, text[:, :250], 30, past_key_values=cache), text[:, :280])


def test_lost_data_of_a_saved_sequence_is_computed_again(opened, model, text):
    with opened(model) as attached:
        cache = attached.sessions.cache(text[:, :100], "talk")
        greedy(model, text[:, :100], 150, past_key_values=cache)
        attached._storage.backing.queues[0].target._drive.inject("read_uncorrectable")
        assert torch.equal(greedy(model, text[:, :250], 50, past_key_values=cache), text[:, :300])
        assert attached.recoveries == 1
        attached.sessions.release(cache)
    with opened(model) as attached:
        assert attached.sessions.cache(text[:, :300], "talk").get_seq_length() == 299

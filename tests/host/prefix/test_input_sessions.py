"""Stored sessions that hold layer inputs (X-cache): found, forked and continued in later processes; same bits."""

import json

import pytest
import torch
from small_models import CONFIGS, prompts, random_model

from kvdrive.errors import InputError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.xcache.inputs import XCache
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.prefix import metadata, record
from kvdrive.prefix.record import Record
from kvdrive.prefix.transfer import export

PROMPT = prompts(1, 90)
FIRST_STEPS = 9


def model_of(name, dtype=torch.bfloat16):
    return random_model(CONFIGS[name]).to(dtype)


@pytest.fixture
def opened(opened):
    return lambda model, share, drives=1, place="drives": opened(
        model, drives=drives, folder=place, xcache=share, spill=5
    )


def generate(attached, ids, new_tokens, **options):
    """All tokens, how many were found, and if they are stored as X."""
    cache = attached.sessions.cache(ids, **options)
    found = cache.get_seq_length()
    tokens = greedy(attached._model, ids, new_tokens, past_key_values=cache)
    return tokens, found, isinstance(cache.batch.sequences[0], InputSequence)


def conversation(opened, model, share, drives=1):
    """Three turns, each in a process of its own, and a fork of the second one. `share` 0 or 1."""
    ids, held, kept = PROMPT, 0, []
    for turn in range(3):
        with opened(model, share, drives, f"share {share}") as attached:
            tokens, found, as_inputs = generate(attached, ids, FIRST_STEPS + turn)
            assert (found, as_inputs) == (held, bool(share))
            kept.append(tokens)
        ids, held = torch.cat([tokens, prompts(1, 7 * turn, seed=turn)], dim=1), tokens.shape[1] - 1
    other = torch.cat([kept[1][:, :-4], prompts(1, 12, seed=40)], dim=1)  # leaves the conversation in the middle
    with opened(model, share, drives, f"share {share}") as attached:
        tokens, found, as_inputs = generate(attached, other, 6)
        assert (found, as_inputs) == (kept[1].shape[1] - 4, bool(share))
        kept.append(tokens)
        told = [Record.of(entry.record).inputs for entry in attached.sessions.index.entries()]
        assert all((one is not None) == bool(share) for one in told)
    return kept


@pytest.mark.parametrize(
    ("name", "dtype", "drives"),
    [
        ("opt", torch.bfloat16, 1),
        pytest.param("llama-mha", torch.bfloat16, 2, marks=pytest.mark.slow),
        pytest.param("qwen3", torch.float16, 1, marks=pytest.mark.slow),
        ("llama", torch.bfloat16, 2),  # grouped queries: the planner would say no
        pytest.param("llama-mha", torch.float32, 1, marks=pytest.mark.slow),  # some of its numbers are corrected
    ],
    ids=str,
)
def test_conversations_continue_and_part_in_later_processes(opened, name, dtype, drives):
    model = model_of(name, dtype)
    wanted = conversation(opened, model, 0.0, drives)
    for ours, theirs in zip(conversation(opened, model, 1.0, drives), wanted, strict=True):
        assert torch.equal(ours, theirs)


def test_corrected_numbers_are_saved_with_the_session(opened, project_otherwise):
    """A processor that projects blocks otherwise than the model: what differs is in the session's record."""
    model = model_of("llama-mha")
    wanted = conversation(opened, model, 0.0)
    project_otherwise()
    for ours, theirs in zip(conversation(opened, model, 1.0), wanted, strict=True):
        assert torch.equal(ours, theirs)
    with opened(model, 1.0, place="share 1.0") as attached:
        entry = attached.sessions.index.entries()[0]
        session = attached.sessions.stored.open(entry).slices[0].session
        assert len(metadata.read_record(session).inputs["layers"]["0"]["values"]["tokens"]) > 100


def test_a_session_takes_the_bytes_of_its_inputs(opened):
    model = model_of("opt")
    sizes = []
    for share in (0.0, 1.0):
        with opened(model, share, place=f"share {share}") as attached:
            generate(attached, PROMPT, 3)
        with opened(model, share, place=f"share {share}") as attached:
            sizes.append(attached.sessions.index.entries()[0].bytes_per_token - record.CHAIN_BYTES)
    assert sizes == [2 * 2 * 256 * 2, 2 * 256 * 2]  # layers x (K and V, or X) x width x bytes


def test_a_lost_index_is_made_again(opened, tmp_path):
    model = model_of("qwen3")
    with opened(model, 1.0, 2) as attached:
        tokens, *_ = generate(attached, PROMPT, 12, name="notes")
    (tmp_path / "drives" / "0.kv.sessions").unlink()
    with opened(model, 1.0, 2) as attached:
        assert attached.sessions.cache(tokens).get_seq_length() == tokens.shape[1] - 1
        assert attached.sessions.index.named("notes", "").tokens == tokens.shape[1] - 1


def test_a_store_takes_the_longest_of_both_kinds(opened):
    """Attached with X-cache, a session of K and V is found as well, and continues as K and V."""
    model = model_of("llama-mha")
    with opened(model, 0.25) as attached:  # the second sequence of four is stored as X
        shorter, _, kind = generate(attached, PROMPT, 4)
        assert not kind
        longer, found, kind = generate(attached, torch.cat([PROMPT, shorter[:, 90:91] ^ 1], dim=1), 30)
        assert (found, kind) == (90, False)  # it goes on with what is there
        _, found, kind = generate(attached, prompts(1, 50, seed=77), 4)
        assert (found, kind) == (0, True)
    with opened(model, 0.25) as attached:
        assert generate(attached, longer, 2)[1:] == (longer.shape[1] - 1, False)
        assert generate(attached, prompts(1, 50, seed=77), 2)[1:] == (49, True)


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["without X-cache", "other arithmetic"])
def test_who_cannot_rebuild_does_not_find(opened, monkeypatch, share):
    model = model_of("llama-mha")
    with opened(model, 1.0) as attached:
        generate(attached, PROMPT, 5, name="notes")
    monkeypatch.setattr(XCache, "arithmetic", lambda self: "torch 0, other, 7 threads")
    with opened(model, share) as attached:
        assert attached.sessions.cache(PROMPT).get_seq_length() == 0
        with pytest.raises(InputError, match=r"'notes' holds layer inputs \(X-cache\), stored with torch"):
            attached.sessions.cache(name="notes")


def test_layer_inputs_are_not_exported(opened, tmp_path):
    with opened(model_of("opt"), 1.0) as attached:
        generate(attached, PROMPT, 5)
    with opened(model_of("opt"), 1.0) as attached, pytest.raises(InputError, match="saved without X-cache"):
        export(attached.sessions.stored, attached.sessions.index.entries()[0], tmp_path / "file")


def test_other_positions_are_not_saved(opened, caplog):
    """A later process numbers the tokens from 0 on."""
    model = model_of("llama-mha")
    with opened(model, 1.0) as attached, torch.no_grad():
        cache = attached.sessions.cache(PROMPT)
        model(PROMPT, position_ids=torch.arange(90)[None] + 3, past_key_values=cache)
        assert [one for one in caplog.messages if "its positions are not the numbers of its tokens" in one]
        assert attached.sessions.index.count() == 0


def test_a_record_that_is_too_large_ends_saving(opened, monkeypatch, caplog):
    """What the index names stays; generation continues."""
    model = model_of("llama-mha")
    wanted = greedy(model, PROMPT, 12)
    with opened(model, 1.0) as attached:
        generate(attached, PROMPT, 2)
        numbers = prompts(1, 100_000).tolist()
        monkeypatch.setattr(InputSequence, "describe", lambda self: {"0": numbers})
        cache = attached.sessions.cache(PROMPT)
        found = greedy(model, PROMPT, 12, past_key_values=cache)
        assert found.shape == wanted.shape
        assert cache.batch.listener is None
        assert [one for one in caplog.messages if "save it without X-cache" in one]
        assert attached.sessions.index.count() == 1


def test_records_of_earlier_versions_hold_k_and_v():
    told = Record("ab", "", "", 0, 64, [0], [{"kv_heads": 2, "head_dim": 32}])
    plain = json.loads(told.text())
    del plain["inputs"]
    assert Record.of(json.dumps(plain)) == told
    assert [rows[1:] for rows in told.lists()] == [(0, 2, 32), (1, 2, 32)]

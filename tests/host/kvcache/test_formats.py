"""K and V in 8 and 4 bits: their values do not depend on splits, spills, forks or saving, and bytes fall."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from pairs import by_value
from small_models import prompts

from kvdrive import abi
from kvdrive.choices import KV_FORMATS
from kvdrive.errors import InputError
from kvdrive.identity.model import of_model
from kvdrive.kvcache import formats, scaling
from kvdrive.nvme import rows
from kvdrive.nvme.wire import RowFormat
from kvdrive.plugins.transformers import attach
from kvdrive.policies import make_policy
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

FORMATS = tuple(name for name in KV_FORMATS if name != "f16")
LESS = {"int8": 1.9, "int4": 3.5, "fp8": 2}  # bytes, times
MOST_ERROR = {"int8": 0.02, "int4": 0.2, "fp8": 0.1}  # of logits, in standard deviations


def drive_at(path, engine="fast"):
    return Emulator(path, engine, capacity_bytes=1 << 26)


def decode(model, target, steps=8, **options):
    """Logits of a prompt, single steps, a later turn, beams and steps again."""
    ids, nexts, turn = prompts(2, 70), prompts(2, steps, seed=3), prompts(2, 9, seed=5)
    with attach(model, target, **options) as drive, torch.no_grad():
        cache = drive.cache()
        found = [model(ids, past_key_values=cache).logits[:, -1:]]
        found += [model(nexts[:, i : i + 1], past_key_values=cache).logits for i in range(steps // 2)]
        found.append(model(turn, past_key_values=cache).logits)
        cache.reorder_cache(torch.tensor([1, 1]))
        found += [model(nexts[:, i : i + 1], past_key_values=cache).logits for i in range(steps // 2, steps)]
        cache.crop(-4)
        found.append(model(nexts[:, :1], past_key_values=cache).logits)
        cache.batch.synchronize()
        return torch.cat(found, dim=1), cache.batch.statistics.transfers()


@pytest.mark.parametrize("kv_format", FORMATS)
def test_spills_drives_forks_and_crops_change_no_bit(tmp_path, llama, kv_format):
    want, _ = decode(llama, drive_at(tmp_path / "0"), kv_format=kv_format, spill=1)
    for spill in (8, 64):
        got, _ = decode(llama, drive_at(tmp_path / f"s{spill}"), kv_format=kv_format, spill=spill)
        assert torch.equal(got, want)
    pair = [drive_at(tmp_path / "1"), drive_at(tmp_path / "2", "hls")]
    assert torch.equal(decode(llama, pair, kv_format=kv_format, spill=8)[0], want)
    plain, _ = decode(llama, drive_at(tmp_path / "3"), spill=8)
    error = float((want - plain).abs().mean() / plain.std())
    assert 0 < error < MOST_ERROR[kv_format]


CHOOSING = {
    "groups": make_policy("groups", Fraction(1, 2), unit=16),
    "sparf": make_policy("sparf", Fraction(1, 2)),
    "sparq": make_policy("sparq", Fraction(1, 2)),
}


@by_value({"kv_format": FORMATS, "policy": CHOOSING})
def test_choices_over_formats_are_the_same_on_every_engine(tmp_path, llama, kv_format, policy):
    options = {"kv_format": kv_format, "spill": 8, "attention": CHOOSING[policy]}
    want, _ = decode(llama, drive_at(tmp_path / "0"), **options)
    assert torch.equal(decode(llama, drive_at(tmp_path / "1", "hls"), **options)[0], want)
    with CpuDrive(tmp_path / "2") as drive:
        assert torch.equal(decode(llama, drive, **options)[0], want)
    exact, _ = decode(llama, drive_at(tmp_path / "3"), kv_format=kv_format, spill=8)
    assert not torch.equal(exact, want)


@by_value({"kv_format": FORMATS, "policy": reversed(CHOOSING)})
def test_choices_over_a_format_are_those_over_its_numbers_in_binary16(
    tmp_path, llama, kv_format, policy, monkeypatch: pytest.MonkeyPatch
):
    options = {"spill": 8, "attention": CHOOSING[policy]}
    want, _ = decode(llama, drive_at(tmp_path / "0"), kv_format=kv_format, **options)
    kind = formats.named(kv_format)
    monkeypatch.setattr(scaling, "rounded", lambda numbers, _: rows.rounded(numbers, kind))
    assert torch.equal(decode(llama, drive_at(tmp_path / "1"), **options)[0], want)


@pytest.mark.parametrize("kv_format", FORMATS)
def test_the_drive_receives_fewer_bytes(tmp_path, llama, kv_format):
    before, after = drive_at(tmp_path / "0"), drive_at(tmp_path / "1")
    with torch.no_grad():
        for target, kind in ((before, "f16"), (after, kv_format)):
            with attach(llama, target, kv_format=kind) as drive:
                cache = drive.cache()
                llama(prompts(2, 250), past_key_values=cache)
                cache.batch.synchronize()
    received = [target.stats().host_bytes_in for target in (before, after)]
    assert received[0] / received[1] > 0.9 * LESS[kv_format]


@pytest.mark.parametrize("kv_format", FORMATS)
def test_a_saved_cache_continues_with_the_same_bits(tmp_path, llama, kv_format):
    ids, more = prompts(1, 50), prompts(1, 5, seed=2)
    target = drive_at(tmp_path / "0")
    with torch.no_grad():
        with attach(llama, target, kv_format=kv_format) as drive:
            cache = drive.cache()
            llama(ids, past_key_values=cache)
            drive.save(cache, tmp_path / "saved")
        with attach(llama, target) as drive, pytest.raises(InputError, match=f"kv_format '{kv_format}'|another model"):
            drive.reopen(tmp_path / "saved")
        with attach(llama, target, kv_format=kv_format) as drive:
            again = llama(more, past_key_values=drive.reopen(tmp_path / "saved")).logits
        with attach(llama, target, kv_format=kv_format) as drive:
            fresh = drive.cache()
            llama(ids, past_key_values=fresh)
            assert torch.equal(again, llama(more, past_key_values=fresh).logits)


@pytest.mark.parametrize("kv_format", FORMATS)
def test_sequences_in_memory_hold_the_stored_numbers(tmp_path, llama, kv_format):
    target = drive_at(tmp_path / "0")
    with torch.no_grad(), attach(llama, target, active="memory", kv_format=kv_format) as drive:
        cache = drive.cache()
        llama(prompts(1, 40), past_key_values=cache)
        cache.batch.synchronize()
        layer = cache.batch.rows[1]
        stored = cache.batch.sequences[0].slices[0].session.read(1, abi.KvKind.VALUES, 0, (2, 40, 32))
        np.testing.assert_array_equal(layer._rows.v[0, :, :40].numpy(), stored.astype(np.float32))


def test_formats_are_part_of_what_a_session_is():
    options = rows.joined(abi.AppendOption.APPEND_SPARSE, RowFormat.INT4)
    assert rows.format_of(options) == RowFormat.INT4
    assert rows.command_options(options) == abi.AppendOption.APPEND_SPARSE
    assert rows.format_of(abi.AppendOption.APPEND_SPARSE) == RowFormat.BINARY16
    assert [formats.name_of(formats.named(name)) for name in ("f16", *FORMATS)] == ["f16", *FORMATS]
    with pytest.raises(InputError, match=f"kv_format is {', '.join(KV_FORMATS)}, not 'int3'"):
        formats.named("int3")


def test_the_fingerprint_names_the_format(llama):
    assert len({of_model(llama, kind) for kind in RowFormat}) == len(RowFormat)
    assert of_model(llama, RowFormat.BINARY16) == of_model(llama)


def test_rows_keep_their_shape():
    halves = np.random.default_rng(1).standard_normal((2, 3, 64)).astype(np.float16)
    for kind in RowFormat:
        stored = rows.encoded(halves, kind)
        assert stored.shape == (2, 3, rows.bytes_of_row(kind, 64))
        np.testing.assert_array_equal(rows.decoded(stored, kind, 64), rows.rounded(halves, kind))
        assert rows.tokens_per_group(kind, 64) == (32, 62, 113, 64)[kind]

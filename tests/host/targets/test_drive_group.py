"""Several drives: shares of rows and heads, the same bits for any number of drives, and drives that fail."""

import logging

import pytest
import torch
from small_models import CONFIGS, prompts, random_model, step_logits

from kvdrive import abi
from kvdrive.errors import InputError, TargetError
from kvdrive.identity.content import only_looks
from kvdrive.kvcache.session import Session
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.group import DriveGroup, Part, drives_of, split


@pytest.fixture(scope="module")
def qwen():
    return random_model(CONFIGS["qwen3"])  # 4 KV heads


def test_any_number_of_drives_gives_the_same_bits(drives, qwen):
    one = step_logits(qwen, drives[0], spill=3)
    for count in (2, 3, 5):
        before = [drive.stats().attention_jobs for drive in drives[:count]]
        assert torch.equal(step_logits(qwen, DriveGroup(drives[:count]), spill=3), one)
        jobs = [drive.stats().attention_jobs - old for drive, old in zip(drives, before, strict=False)]
        assert sum(jobs) == 8 * 2 * 12  # steps, layers, rows x KV heads
        assert max(jobs) - min(jobs) <= 8 * 2  # one head more or less


def test_drives_with_different_engines_agree(tmp_path, drives, qwen):
    with Emulator(tmp_path / "hls.kv", "hls", capacity_bytes=1 << 26) as kernels:
        assert torch.equal(step_logits(qwen, [drives[0], kernels], spill=3), step_logits(qwen, drives[0]))
        assert kernels.stats().attention_jobs == 8 * 2 * 6


@pytest.mark.parametrize(("rows", "heads", "drives"), [(1, 1, 1), (1, 2, 3), (3, 4, 5), (2, 8, 3), (7, 5, 2)])
def test_shares_are_whole_and_even(rows, heads, drives):
    parts = split(rows, heads, drives)
    assert [[head for part in row for head in range(part.first, part.last)] for row in parts] == [
        list(range(heads)) for _ in range(rows)
    ]
    share = [sum(part.last - part.first for row in parts for part in row if part.drive == i) for i in range(drives)]
    assert max(share) - min(share) <= 1
    assert split(2, 3, 2) == [[Part(0, 0, 3)], [Part(1, 0, 3)]]


def test_a_group_adds_up_what_its_drives_count(drives, qwen):
    group = DriveGroup(drives[:2])
    step_logits(qwen, group)
    assert group.stats().commands == sum(drive.stats().commands for drive in drives[:2])
    assert group.device_ns() == max(drive.device_ns() for drive in drives[:2]) > 0
    with pytest.raises(InputError, match="at least one drive"):
        drives_of([])
    with group:
        pass
    with pytest.raises(TargetError, match="closed"):
        drives[0].stats()


def generate(model, ids, on_step=None, **options):
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, streamer=on_step, **{"do_sample": False} | options
    )


class AtStep:
    """A streamer that calls `action` when step `number` has been generated."""

    def __init__(self, number, action):
        self.left, self.action = number + 1, action  # the prompt comes first

    def put(self, value):
        self.left -= 1
        if self.left == 0:
            self.action()

    def end(self):
        pass


@pytest.mark.parametrize(("spill", "then"), [(1, "this cache lost its tokens"), (16, "the drive is closed")])
def test_a_lost_drive_is_a_clear_error(drives, qwen, spill, then):
    """With pending tokens, the failed step can be undone. Without them, the drives hold different tokens."""
    ids = prompts(3, 20)
    with attach(qwen, drives[:2], spill=spill) as attached:
        cache = attached.cache()
        with pytest.raises(TargetError, match="the drive is closed"):
            generate(qwen, ids, AtStep(5, drives[1].close), past_key_values=cache)
        with pytest.raises(TargetError, match=then):
            qwen(ids[:, :1], past_key_values=cache)
    assert drives[0]._drive.sessions() == []  # sessions on the other drive were trimmed


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"do_sample": True, "top_k": 20}], ids=str)
def test_a_lost_drive_does_not_change_the_text(tmp_path, drives, qwen, options, caplog):
    """With recompute: greedy, beams (forked sequences) and sampling (the random numbers go on where they were)."""
    ids = prompts(3, 20)
    with attach(qwen, drives[:3], spill=5):
        torch.manual_seed(1)
        undisturbed = generate(qwen, ids, **options)
    step = AtStep(6, drives[1].close)
    if "num_beams" in options:  # beam search has no streamer
        step = None
        handle = qwen.register_forward_pre_hook(_at_call(7, drives[1].close))
    with attach(qwen, drives[:3], spill=5, on_failure="recompute") as attached, caplog.at_level(logging.WARNING):
        torch.manual_seed(1)
        assert torch.equal(generate(qwen, ids, step, **options), undisturbed)
        assert attached.recoveries == 1
    assert "computing its tokens again" in caplog.text
    assert drives[0]._drive.sessions() == drives[2]._drive.sessions() == []
    if step is None:
        handle.remove()


def _at_call(number, action):
    """A hook that calls `action` in one of its calls, and changes nothing that the model computes."""
    calls = iter(range(number))

    @only_looks
    def hook(*_):
        if next(calls, None) == number - 1:
            action()

    return hook


def test_the_last_drive_cannot_be_replaced(drives, qwen):
    with attach(qwen, drives[0], on_failure="recompute"), pytest.raises(TargetError, match="no drive is left"):
        generate(qwen, prompts(1, 20), AtStep(3, drives[0].close))


def test_a_recovery_that_fails_is_made_up_for_by_the_next_call(drives, qwen, monkeypatch):
    """The layers that the failed recovery has filled are not taken for the whole sequence."""
    ids, more = prompts(2, 40), prompts(2, 3, seed=5)
    with attach(qwen, drives[2]) as attached, torch.no_grad():
        cache = attached.cache()
        qwen(ids, past_key_values=cache)
        expected = qwen(more, past_key_values=cache).logits
    append = Session.append

    def full(self, layer, *args):
        if layer == 1:
            raise CommandError(abi.Opcode.KV_APPEND, abi.NvmeStatus.CAPACITY_EXCEEDED, 0, False)
        append(self, layer, *args)

    with attach(qwen, drives[:2], on_failure="recompute") as attached, torch.no_grad():
        cache = attached.cache()
        qwen(ids, past_key_values=cache)
        cache.batch.synchronize()
        drives[0].close()
        with monkeypatch.context() as patch:
            patch.setattr(Session, "append", full)
            with pytest.raises(CommandError, match="full"):
                qwen(more, past_key_values=cache)
        assert torch.equal(qwen(more, past_key_values=cache).logits, expected)
        assert cache.get_seq_length() == 43


def test_lost_data_is_computed_again_on_the_same_drive(drives, qwen):
    ids = prompts(4, 200)  # long enough to fill whole flash programs; rows that fill none stay in drive memory
    damage = AtStep(4, lambda: drives[0]._drive.inject("read_uncorrectable", count=1))
    with attach(qwen, drives[0], spill=1):
        undisturbed = generate(qwen, ids)
        with pytest.raises(CommandError) as caught:
            generate(qwen, ids, damage)
        assert caught.value.status == abi.NvmeStatus.UNRECOVERED_READ
    damage = AtStep(4, lambda: drives[0]._drive.inject("read_uncorrectable", count=1))
    with attach(qwen, drives[0], spill=1, on_failure="recompute") as attached:
        assert torch.equal(generate(qwen, ids, damage), undisturbed)
        assert attached.recoveries == 1

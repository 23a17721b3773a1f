"""Decode steps that several caches share, and prompts that are computed in parts."""

from fractions import Fraction

import pytest
import torch
from pairs import some_quick
from small_models import CONFIGS, SMALL, prompts, random_model
from transformers import LlamaConfig

from kvdrive import abi
from kvdrive.kvcache.on_drives import DriveLayer
from kvdrive.kvcache.session import Session
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach

LENGTHS = (5, 64, 90)


def fill(attached, model, lengths=LENGTHS):
    caches = [attached.cache() for _ in lengths]
    with torch.no_grad():
        for row, (cache, length) in enumerate(zip(caches, lengths, strict=True)):
            model(prompts(1, length, seed=row), past_key_values=cache)
    return caches


def step_alone(model, caches, ids):
    with torch.no_grad():
        return torch.cat(
            [model(ids[row : row + 1, None], past_key_values=c).logits[:, -1] for row, c in enumerate(caches)]
        )


@pytest.mark.parametrize("family", some_quick(sorted(CONFIGS), ["mixtral", "opt", "phi3", "qwen3"]))
def test_a_shared_step_has_the_logits_of_single_ones(family, target):
    """In float64 the dense layers' order of summation does not matter to the tolerance; experts have no float64."""
    model = random_model(CONFIGS[family])
    tolerance = 1e-2 if family == "mixtral" else 1e-5
    if family != "mixtral":
        model = model.double()
    with attach(model, target) as attached:
        assert attached.why_alone(attached.cache()) is None
        single, joined = fill(attached, model), fill(attached, model)
        for step in range(17):  # across write-backs
            ids = prompts(1, len(LENGTHS), seed=100 + step)[0]
            expected = step_alone(model, single, ids).float()
            found, failed = attached.step_together(joined, ids[:, None].tolist())
            assert failed == []
            torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    assert [cache.get_seq_length() for cache in joined] == [0, 0, 0]  # detached


def test_rows_continue_alone_and_in_other_company(target):
    model = random_model(CONFIGS["llama"]).double()
    with attach(model, target) as attached:
        single, joined = fill(attached, model), fill(attached, model)
        for step in range(12):
            rows = [row for row in range(3) if (step + row) % 3 or step % 4 == 0]
            ids = prompts(1, len(rows), seed=step)[0]
            expected = step_alone(model, [single[row] for row in rows], ids).float()
            found, _ = attached.step_together([joined[row] for row in rows], ids[:, None].tolist())
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        for one, other in zip(single, joined, strict=True):
            assert torch.equal(one.batch.token_ids(), other.batch.token_ids())


@pytest.mark.parametrize("options", [{}, {"spill": 1}, {"active": "memory"}, {"mini_batches": 2}])
def test_several_tokens_of_a_row_have_the_logits_of_single_steps(target, options):
    """Some are taken back, and what is computed behind the others is as if they had never been there."""
    model = random_model(CONFIGS["llama"]).double()
    with attach(model, target, **options) as attached:
        single, joined = fill(attached, model), fill(attached, model)
        for step in range(14):  # across write-backs
            counts = [1 + (step + row) % 8 for row in range(3)]
            ids = [prompts(1, count, seed=10 * step + count)[0].tolist() for count in counts]
            found, failed = attached.step_together(joined, ids)
            assert failed == []
            for cache, own, rows, other in zip(joined, ids, found.split(counts), single, strict=True):
                kept = 1 + len(own) // 2
                attached.verified(cache, len(own) - kept)
                for token, row in zip(own[:kept], rows, strict=False):
                    (expected,) = step_alone(model, [other], torch.tensor([token])).float()
                    torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)
        for one, other in zip(single, joined, strict=True):
            assert torch.equal(one.batch.token_ids(), other.batch.token_ids())
            assert one.get_seq_length() == other.get_seq_length()


def test_rows_in_memory_share_steps_with_rows_on_drives(target):
    """Each row has the logits of its single steps, in either company, and the drive gets what is written back."""
    model = random_model(CONFIGS["llama"]).double()
    with attach(model, target, active="memory") as attached:
        assert attached.why_alone(attached.cache()) is None

        def filled():
            caches = [attached.cache(), attached.on_drives(), attached.cache(), attached.on_drives()]
            with torch.no_grad():
                for row, cache in enumerate(caches):
                    model(prompts(1, 40 * row + 5, seed=row), past_key_values=cache)
            return caches

        single, joined = filled(), filled()
        for step in range(20):  # across write-backs
            ids = prompts(1, 4, seed=100 + step)[0]
            expected = step_alone(model, single, ids).float()
            found, failed = attached.step_together(joined, ids[:, None].tolist())
            assert failed == []
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        for one, other in zip(single, joined, strict=True):
            assert one.batch.drive_layers[1].stored == other.batch.drive_layers[1].stored
            assert one.get_seq_length() == other.get_seq_length()


def test_a_failed_step_is_undone_in_every_row(target, monkeypatch):
    model = random_model(CONFIGS["llama"]).double()
    attend = DriveLayer.queries

    def faulty(self, call):
        if self.stored.index == 1 and self.stored.tokens == LENGTHS[1] + 1:
            raise CommandError(abi.Opcode.ATTN_SUBMIT, abi.NvmeStatus.INTERNAL_ERROR, 0, False)
        return attend(self, call)

    with attach(model, target) as attached:
        single, joined = fill(attached, model), fill(attached, model)
        ids = prompts(1, 3, seed=9)[0]
        with monkeypatch.context() as patch:
            patch.setattr(DriveLayer, "queries", faulty)
            with pytest.raises(CommandError):
                attached.step_together(joined, ids[:, None].tolist())
        assert [cache.get_seq_length() for cache in joined] == list(LENGTHS)
        found, _ = attached.step_together(joined, ids[:, None].tolist())
        torch.testing.assert_close(found, step_alone(model, single, ids).float(), rtol=0, atol=1e-5)


def test_a_failed_append_reaches_its_own_row(target, monkeypatch):
    """The append of one row fails in the background. Its next call alone raises that error; the others continue."""
    model = random_model(CONFIGS["llama"]).double()
    with attach(model, target) as attached:
        joined = fill(attached, model)
        bad = joined[0].batch.sequences[0].slices[0].session.number
        append = Session.append

        def faulty(self, *args):
            if self.number == bad:
                raise CommandError(abi.Opcode.KV_APPEND, abi.NvmeStatus.CAPACITY_EXCEEDED, 0, False)
            return append(self, *args)

        monkeypatch.setattr(Session, "append", faulty)
        ids = prompts(1, 3, seed=9)[0]
        with pytest.raises(CommandError):  # when 16 tokens of the row are written
            [attached.step_together(joined, ids[:, None].tolist()) for _ in range(40)]
        lengths = [cache.get_seq_length() for cache in joined]
        with pytest.raises(CommandError) as error, torch.no_grad():
            model(ids[:1, None], past_key_values=joined[0])
        assert error.value.status == abi.NvmeStatus.CAPACITY_EXCEEDED
        attached.step_together(joined[1:], ids[1:, None].tolist())
        assert [cache.get_seq_length() for cache in joined[1:]] == [length + 1 for length in lengths[1:]]


def test_rows_lose_their_oldest_tokens_at_their_own_time(target):
    model = random_model(CONFIGS["llama"]).double()
    with attach(model, target, overflow="trim", context=256) as attached:
        lengths = (5, 230, 250)
        single, joined = fill(attached, model, lengths), fill(attached, model, lengths)
        for step in range(40):
            ids = prompts(1, 3, seed=step)[0]
            expected = step_alone(model, single, ids).float()
            found, _ = attached.step_together(joined, ids[:, None].tolist())
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        assert [cache.batch.removed > 0 for cache in joined] == [False, True, True]
        assert [cache.batch.removed for cache in joined] == [cache.batch.removed for cache in single]


@pytest.mark.parametrize("policy", ["exact", "sparf"])
@pytest.mark.parametrize("chunk", [20, 64, 100])
def test_a_prompt_in_parts_attends_exactly(policy, chunk, target):
    """Under a sparse policy as well: no later part asks the drive. Earlier K and V are rounded to binary16."""
    model = random_model(CONFIGS["llama"])
    ids = prompts(1, 230)
    with attach(model, target, policy, Fraction(1, 4) if policy == "sparf" else None) as attached, torch.no_grad():
        whole, parts = attached.cache(), attached.cache()
        expected = model(ids, past_key_values=whole).logits[:, -1]
        for first in range(0, 230, chunk):
            parts.batch.part.in_prompt = first > 0
            found = model(ids[:, first : first + chunk], past_key_values=parts).logits[:, -1]
        parts.batch.part.in_prompt = False
        assert target.stats().attention_jobs == 0
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)
        token = torch.tensor([[7]])
        after = [model(token, past_key_values=cache).logits for cache in (whole, parts)]
        if policy == "exact":  # a sparse policy chooses among those on the drive, and other ones are pending
            torch.testing.assert_close(*after, rtol=0, atol=5e-3)
        assert target.stats().attention_jobs > 0


def test_a_prompt_in_parts_is_repeated_in_parts(target):
    """What a drive loses of it is computed again with the same parts: the same bits."""
    model = random_model(CONFIGS["llama"])
    ids = prompts(1, 150)
    with attach(model, target, on_failure="recompute") as attached, torch.no_grad():
        cache = attached.cache()
        for first in range(0, 150, 64):
            cache.batch.part.in_prompt = first > 0
            model(ids[:, first : first + 64], past_key_values=cache)
        cache.batch.part.in_prompt = False
        before = cache.batch.sequences[0].read(1, 150 // 64 * 64, 32)
        attached._calls.recovery.recompute(cache.batch)
        after = cache.batch.sequences[0].read(1, 150 // 64 * 64, 32)
        assert all((one == other).all() for one, other in zip(before, after, strict=True))


def test_rotary_positions_that_depend_on_the_longest_sequence_stay_alone(target):
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = random_model(LlamaConfig(**SMALL, num_key_value_heads=2, rope_parameters=rope))
    with attach(model, target) as attached:
        assert "rotary positions" in attached.why_alone(attached.cache())

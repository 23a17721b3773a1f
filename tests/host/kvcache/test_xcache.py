"""X-cache: rows of which the drives keep layer inputs give the same bits; with MHA they take half of the bytes."""

import numpy as np
import pytest
import torch
from family_models import SERVED
from pairs import by_value, some_quick
from small_models import CONFIGS, SMALL, prompts, random_model
from transformers import LlamaConfig

from kvdrive.errors import InputError, RangeError, TargetError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.drive_rates import Line
from kvdrive.kvcache.xcache.measured import Measured
from kvdrive.kvcache.xcache.rows import InputRows
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.kvcache.xcache.share import choose
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

NAMES = ["opt", "llama-mha", "llama", "qwen2", "qwen3", "mixtral", "mistral"]
PRECISIONS = [torch.float32, torch.bfloat16, torch.float16]


def model_of(name, dtype=torch.bfloat16):
    return random_model(CONFIGS[name]).to(dtype)


def padding(ids):
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    return mask


def logits(model, target, xcache, spill=5):
    """Logits of a padded prompt, of steps, and of a later turn of several tokens."""
    ids, nexts, turn = prompts(3, 20), prompts(3, 8, seed=3), prompts(3, 9, seed=4)
    mask = padding(torch.cat([ids, nexts, turn, turn], dim=1))
    found = []
    with attach(model, target, spill=spill, xcache=xcache) as attached, torch.no_grad():
        cache = attached.cache()

        def call(tokens):
            length = cache.get_seq_length() + tokens.shape[1]
            found.append(model(tokens, attention_mask=mask[:, :length], past_key_values=cache).logits)

        call(ids)
        for i in range(8):
            call(nexts[:, i : i + 1])
        call(turn)
        call(nexts[:, :1])
        stats = cache.batch.statistics.inputs()
    return torch.cat(found, dim=1), stats


@pytest.mark.parametrize(
    ("name", "dtype"),
    some_quick(
        [(name, torch.bfloat16) for name in NAMES]
        + [(name, dtype) for name in ("opt", "llama", "qwen3") for dtype in (torch.float16, torch.float32)],
        [
            *((name, torch.bfloat16) for name in ("opt", "qwen2", "mixtral")),
            *(("llama", torch.float16), ("qwen3", torch.float32)),
        ],
    ),
    ids=str,
)
def test_logits_have_the_same_bits(target, name, dtype):
    model = model_of(name, dtype)
    wanted, none = logits(model, target, 0.0)
    assert none is None
    for share, alpha in ((1.0, 1), (0.5, 2 / 3)):
        found, stats = logits(model, target, share)
        assert torch.equal(found, wanted)
        assert stats["alpha"] == alpha
        assert stats["tokens_rebuilt"] > 0
        assert stats["bytes_read"] == stats["tokens_rebuilt"] * 256 * dtype.itemsize
    assert target._drive.sessions() == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
@pytest.mark.parametrize("name", ["opt", "llama-mha", "qwen3"])
def test_a_gpu_rebuilds_the_bits_of_its_own_projections(target, name):
    model, ids = model_of(name).cuda(), prompts(3, 300).cuda()
    found = []
    for share in (0.0, 1.0):
        with attach(model, target, xcache=share) as attached:
            found.append(greedy(model, ids, 12, past_key_values=attached.cache()))
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("name", ["opt", "llama-mha"])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_written_bytes_fall_by_half_of_the_share(drives, name, share):
    """With a KV head for each query head and 16 bits a number, X is half of K and V. The drive counts whole pages."""
    model, ids = model_of(name), prompts(4, 256)

    def written(drive, share):
        with attach(model, drive, xcache=share) as attached, torch.no_grad():
            cache = attached.cache()
            model(ids, past_key_values=cache)
            cache.batch.synchronize()
            attached._storage.backing.flush()
            return drive.stats().pages_written, cache.batch.statistics.transfers().bytes_sent

    pages, sent = written(drives[0], 0.0)
    assert pages * 4096 >= sent > 0
    assert written(drives[1], share) == (pages * (1 - share / 2), sent * (1 - share / 2))


def test_layers_are_rebuilt_once_a_step_and_ahead_of_the_model(target, monkeypatch):
    model, ids = model_of("qwen3"), prompts(1, 20)
    ready = []
    take = InputSequence.take

    def watched(self, layer):
        ready.append((layer, self._held is not None and self._held[0] == layer))
        return take(self, layer)

    monkeypatch.setattr(InputSequence, "take", watched)
    with attach(model, target, xcache=1.0) as attached, torch.no_grad():
        cache = attached.cache()
        model(ids, past_key_values=cache)
        for _ in range(3):
            model(ids[:, :1], past_key_values=cache)
        assert cache.batch.statistics.inputs()["tokens_rebuilt"] == 3 * 2 * 20
    assert ready == 3 * [(0, False), (1, True)]


def test_inputs_of_a_prompt_leave_memory_when_they_are_stored(target):
    model, ids = model_of("qwen3"), prompts(2, 100)
    with attach(model, target, xcache=0.5) as attached, torch.no_grad():
        cache = attached.cache()
        for tokens, pending in ((ids, 0), (ids[:, :3], 3)):
            model(tokens, past_key_values=cache)
            held = {state.pending.untyped_storage().nbytes() for state in cache.batch.sequences[0]._layers.values()}
            assert held == {pending * 256 * 2}


def test_calls_without_a_cache_leave_no_inputs_in_memory(target):
    model, ids = model_of("qwen3"), prompts(2, 20)
    with attach(model, target, xcache=1.0) as attached, torch.no_grad():
        model(ids, use_cache=False)
        assert not attached._storage.backing.xcache.inputs._latest


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_later_parts_of_a_prompt_attend_to_what_is_rebuilt(target, share):
    model, parts = model_of("qwen3"), [prompts(2, 20, seed=seed) for seed in range(3)]

    def run(share):
        with attach(model, target, xcache=share) as attached, torch.no_grad():
            cache = attached.cache()
            model(parts[0], past_key_values=cache)
            cache.batch.part.in_prompt = True
            return torch.cat([model(part, past_key_values=cache).logits for part in parts[1:]], dim=1)

    assert torch.equal(run(share), run(0.0))


@pytest.mark.parametrize("name", ["opt", "llama", "qwen3"])
def test_sequences_of_their_own_share_decode_steps(target, name):
    """Each second sequence is stored as X; all have the bits that the same step has without X-cache, some with several
    tokens of a sequence.
    """
    model = model_of(name)
    steps = [
        [prompts(1, 1 + (row + step) % 3, seed=4 * step + row)[0].tolist() for row in range(4)] for step in range(9)
    ]

    def run(share):
        with attach(model, target, spill=4, xcache=share) as attached, torch.no_grad():
            caches = [attached.cache() for _ in range(4)]
            for row, cache in enumerate(caches):
                assert attached.why_alone(cache) is None
                model(prompts(1, 20 + 7 * row, seed=row), past_key_values=cache)
            as_inputs = [isinstance(cache.batch.sequences[0], InputSequence) for cache in caches]
            found = [attached.step_together(caches, ids) for ids in steps]
            assert all(failed == [] for _, failed in found)
            return torch.cat([logits for logits, _ in found]), as_inputs

    wanted, none = run(0.0)
    found, half = run(0.5)
    assert (none, half) == ([False] * 4, [True, False] * 2)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("share", "counts"), [(0.25, [0, 1, 0, 0, 0, 1, 0, 0]), (0.5, [1, 0] * 4), (1.0, [1] * 8)])
def test_single_sequences_have_the_share_together(target, share, counts):
    model, ids = model_of("opt"), prompts(1, 4)
    with attach(model, target, xcache=share) as attached, torch.no_grad():
        found = []
        for _ in counts:
            cache = attached.cache()
            model(ids, past_key_values=cache)
            found.append(cache.batch.statistics.inputs()["alpha"])
    assert found == counts


def test_a_projection_that_rounds_otherwise_changes_nothing(target, project_otherwise):
    """Numbers that a rebuilt block has in other last bits are corrected, also in a forked and in a cropped row."""
    model = model_of("llama-mha")
    wanted, _ = logits(model, target, 0.0)
    project_otherwise()
    found, stats = logits(model, target, 0.5)
    assert torch.equal(found, wanted)
    assert stats["corrected"] > 100


@by_value({"count": [2, 3], "spill": [1, 16]})
def test_any_number_of_drives_gives_the_same_bits(drives, count, spill):
    model = model_of("qwen3")
    wanted, _ = logits(model, drives[0], 0.0)
    found, _ = logits(model, drives[:count], 0.5, spill)
    assert torch.equal(found, wanted)
    assert all(drive.stats().host_bytes_in > 30_000 for drive in drives[:count])


def test_beams_share_their_inputs(target):
    model, ids = model_of("llama"), prompts(2, 30)

    def beams(share):
        with attach(model, target, spill=3, xcache=share):
            return model.generate(
                ids,
                attention_mask=padding(ids),
                num_beams=3,
                do_sample=False,
                max_new_tokens=14,
                num_return_sequences=2,
            )

    assert torch.equal(beams(0.5), beams(0.0))
    assert target._drive.sessions() == []


@pytest.mark.parametrize("crop", [3, 11, 26])
def test_cropped_and_moved_rows_continue_where_they_were(target, crop):
    """Pending tokens, stored ones, and almost all of them; rows stored as X and as K and V change places."""
    model, ids, nexts = model_of("qwen3"), prompts(3, 20), prompts(3, 8, seed=3)

    def run(share):
        with attach(model, target, spill=4, xcache=share) as attached, torch.no_grad():
            cache = attached.cache()
            model(ids, past_key_values=cache)
            for i in range(7):
                model(nexts[:, i : i + 1], past_key_values=cache)
            cache.crop(-crop)
            cache.reorder_cache(torch.tensor([2, 0, 0]))
            return torch.cat([model(nexts[:, i : i + 1], past_key_values=cache).logits for i in range(8)], dim=1)

    assert torch.equal(run(0.5), run(0.0))


def test_another_process_continues(tmp_path):
    """Saved with pending tokens and padding; opened from the drives' files, twice."""
    model, ids = model_of("llama-mha", torch.float32), prompts(2, 30)
    file = tmp_path / "chat.json"

    def opened():
        return [Emulator(tmp_path / f"{i}.kv", "fast", capacity_bytes=1 << 26) for i in range(2)]

    group = opened()
    with attach(model, group, spill=7, xcache=0.5) as attached:
        cache = attached.cache()
        tokens = greedy(model, ids, 10, padding(ids), past_key_values=cache)
        attached.save(cache, file)
    for _ in range(2):
        for drive in group:
            drive.close()
        group = opened()
        with attach(model, group, spill=7, xcache=0.5) as attached:
            cache = attached.reopen(file)
            assert cache.batch.statistics.inputs()["alpha"] == 0.5
            assert torch.equal(cache.batch.token_ids(), tokens[:, :-1])
            new = greedy(model, tokens, 8, padding(tokens), past_key_values=cache)
            attached.save(cache, file)
        assert torch.equal(new, greedy(model, tokens, 8, padding(tokens)))
        tokens = new
    with attach(model, group) as attached, pytest.raises(InputError, match="was saved with X-cache"):
        attached.reopen(file)
    file.write_text(file.read_text().replace(f"torch {torch.__version__}", "torch 0"))
    with attach(model, group, xcache=0.5) as attached, pytest.raises(InputError, match="the same bits"):
        attached.reopen(file)
    for drive in group:
        drive.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_drive_does_not_change_the_text(drives, lost):
    model, ids = model_of("qwen3"), prompts(3, 20)

    def text(group, share, step=None):
        with attach(model, group, spill=5, xcache=share, on_failure="recompute") as attached:
            options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 14, "do_sample": False}
            found = model.generate(ids, streamer=step, **options)
            return found, attached.recoveries

    class CloseAtStep:
        left = 8

        def put(self, value):
            self.left -= 1
            if self.left == 0:
                drives[lost].close()

        def end(self):
            pass

    wanted, _ = text(drives[2], 0.0)
    found, recoveries = text(drives[:2], 0.5, CloseAtStep())
    assert torch.equal(found, wanted)
    assert recoveries == 1


def test_a_lost_drive_is_a_clear_error(drives):
    model, ids = model_of("qwen3"), prompts(2, 20)
    with attach(model, drives[:1], xcache=1.0) as attached, torch.no_grad():
        cache = attached.cache()
        model(ids, past_key_values=cache)
        cache.batch.synchronize()
        drives[0].close()
        with pytest.raises(TargetError, match="the drive is closed"):
            model(ids[:, :1], past_key_values=cache)


@pytest.mark.parametrize(
    ("name", "share", "options", "error", "reason"),
    [
        ("llama", 1.5, {}, InputError, "'auto' or a number from 0 to 1"),
        ("phi3", 0.5, {}, UnsupportedError, "projections of K and V of their own"),
        ("olmo2", 0.5, {}, UnsupportedError, "cannot rebuild K and V"),
        ("smollm3", 0.5, {}, UnsupportedError, "cannot rebuild K and V"),
        ("dynamic", 0.5, {}, UnsupportedError, "depend on the length of the text"),
    ],
)
def test_refusals(target, name, share, options, error, reason):
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    configs = CONFIGS | {other: SERVED[other][0] for other in ("olmo2", "smollm3")}
    configs["dynamic"] = LlamaConfig(**SMALL, num_key_value_heads=2, rope_parameters=rope)
    model = random_model(configs[name])
    stock = model.config._attn_implementation
    with pytest.raises(error, match=reason):
        attach(model, target, xcache=share, **options)
    assert model.config._attn_implementation == stock
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(("width", "head_dim"), [(256, 64), (40, 64), (576, 64), (8192, 128)])
def test_stored_inputs_are_the_same_bits(dtype, width, head_dim):
    rows = InputRows(width, dtype, head_dim)
    x = torch.randn(9, width, generator=torch.Generator().manual_seed(1)) * 3
    x[0, :4] = torch.tensor([0.0, -0.0, 1e-40, 65000.0])
    x = x.to(dtype)
    patterns = rows.encode(x)
    assert np.isfinite(patterns).all()  # a drive takes nothing else
    assert patterns.nbytes == x.nbytes == 9 * rows.token_bytes
    back = rows.decode(patterns)
    assert back.dtype == dtype
    assert torch.equal(back.view(torch.uint8), x.view(torch.uint8))


def test_every_binary32_below_the_limit_is_exact():
    bits = np.concatenate([np.arange(0, 192 << 23, 98_765, np.uint32), np.array([(192 << 23) - 1], np.uint32)])
    bits = np.concatenate([bits, bits | 1 << 31]).astype(np.uint32)[: len(bits) * 2 // 64 * 64]
    x = torch.from_numpy(bits.view(np.int32)).view(torch.float32).reshape(-1, 64)
    rows = InputRows(64, torch.float32, 32)
    assert np.isfinite(rows.encode(x)).all()
    assert np.array_equal(rows.decode(rows.encode(x)).view(torch.int32).numpy(), x.view(torch.int32).numpy())


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.float32, 2.0**65), (torch.bfloat16, 2.0**121), (torch.float16, np.inf)]
)
def test_inputs_that_a_drive_cannot_store_are_refused(dtype, value):
    x = torch.ones(2, 64, dtype=dtype)
    x[1, 3] = value
    with pytest.raises(RangeError, match="too large for X-cache"):
        InputRows(64, dtype, 32).encode(x)


def test_widths_and_precisions_that_do_not_fit_are_refused():
    with pytest.raises(UnsupportedError, match="cannot be cut"):
        InputRows(44, torch.float16, 64)
    with pytest.raises(UnsupportedError, match=r"not torch\.float64"):
        InputRows(64, torch.float64, 64)


def line(token):
    return Line(1e-6, token)


@pytest.mark.parametrize(
    ("shared", "attend", "read", "host", "share"),
    [
        (True, 1.0, 0.1, 1.1, 0.0),  # on the same cores, what costs more is never worth it
        (True, 1.0, 0.1, 0.5, 1.0),
        (False, 1.0, 0.5, 1.0, 0.5),  # side by side they share the work: 0.5 x 1 + 0.5 x 0.5 against 0.5
        (False, 1.0, 0.5, 3.0, 0.25),
        (False, 1.0, 0.5, 20.0, 0.0),
        (False, 1.0, 0.2, 0.2, 1.0),
    ],
)
def test_the_share_follows_from_what_was_measured(shared, attend, read, host, share):
    rates = Measured(line(attend), line(read), line(host - read if shared else host), Line(0, 0), shared)
    found = choose(512, 1024, lambda: rates)
    assert found.share == share
    assert ("times as long without" in found.reason) == bool(share)


def test_grouped_queries_are_refused_without_measuring():
    def measured():
        raise AssertionError

    assert choose(4096, 1024, measured).reason.startswith("X of a token is 4 times its K and V")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("llama", {}, "X of a token is 2 times its K and V"),
        ("opt", {}, "measured here"),
        ("phi3", {}, "projections of K and V of their own"),
        ("llama", {"attention": "sparf"}, "X-cache rebuilds K and V for exact attention"),
    ],
)
def test_auto_explains_itself_in_a_line(target, name, options, reason, caplog):
    model, ids = random_model(CONFIGS[name]).to(torch.bfloat16), prompts(2, 20)
    with attach(model, target, xcache="auto", **options) as attached:
        assert [record.message for record in caplog.records if reason in record.message]
        greedy(model, ids, 4, past_key_values=attached.cache())
    assert target._drive.sessions() == []
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_auto_measures_once_for_the_same_drives(target, caplog):
    model = model_of("opt")
    commands = []
    for _ in range(2):
        before = target.stats().commands
        with attach(model, target, xcache="auto"):
            commands.append(target.stats().commands - before)
    assert commands[0] > 20
    assert commands[1] == 0
    assert caplog.records[0].message == caplog.records[1].message

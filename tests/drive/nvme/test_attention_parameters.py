# SPDX-License-Identifier: Apache-2.0
"""The host's ATTN_SUBMIT in every mode, with inline tokens, gives the golden model's bits."""

import numpy as np
import pytest
from random_halves import halves

import golden
from golden.sparf import sparf
from kvdrive import abi
from kvdrive.nvme import commands
from kvdrive.targets.emulator import Emulator

HEADS, GROUP, TOKENS, D = 2, 4, 300, 64
SCALE = golden.scale_bits(None, D)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    rng = np.random.default_rng(31)
    k, v, q = halves(rng, HEADS, TOKENS, D), halves(rng, HEADS, TOKENS, D), halves(rng, HEADS, GROUP, D)
    with Emulator(tmp_path_factory.mktemp("drive") / "drive.kv", "fast", capacity_bytes=1 << 26) as target:
        for sequence, (kind, rows) in enumerate(((abi.KvKind.KEYS, k), (abi.KvKind.VALUES, v))):
            target.execute(commands.kv_append(1, 0, 0, kind, 0, sequence, rows, abi.AppendOption.APPEND_SPARSE))
        yield target, q, k, v


def attend(target, q, mode=abi.Mode.EXACT, **parameters):
    ticket = target.execute(commands.attn_submit(1, 0, 0, q, TOKENS, SCALE, mode=mode, **parameters)).result
    done = target.execute(commands.attn_fetch(ticket, *q.shape, mode))
    return commands.attention_result(done.data, *q.shape, mode)


def make_inline(tokens):
    rng = np.random.default_rng(tokens)
    if tokens is None:
        return {}
    scores = rng.integers(-8 << 20, 8 << 20, (HEADS, GROUP, tokens)).astype(np.int32)
    return {"inline_scores": scores, "inline_v": halves(rng, HEADS, tokens, D)}


@pytest.mark.parametrize("mode", [abi.Mode.EXACT, abi.Mode.PARTIAL])
@pytest.mark.parametrize("inline_tokens", [None, 1, 16, 37])
def test_dense_modes(stored, mode, inline_tokens):
    target, q, k, v = stored
    inline = make_inline(inline_tokens)
    result = attend(target, q, mode, **inline)
    assert result.out.dtype == (np.float32 if mode == abi.Mode.PARTIAL else np.float16)
    bits = np.uint32 if mode == abi.Mode.PARTIAL else np.uint16
    for head in range(HEADS):
        mine = {name: array[head] for name, array in inline.items()}
        want = golden.attention(q[head], k[head], v[head], scale_log2e=SCALE, partial=mode == abi.Mode.PARTIAL, **mine)
        np.testing.assert_array_equal(result.out[head].view(bits), want.out.view(bits))
        np.testing.assert_array_equal(result.max[head], want.max)
        np.testing.assert_array_equal(result.sum[head], want.sum)


@pytest.mark.parametrize("inline_tokens", [None, 5])
def test_sparf(stored, inline_tokens):
    target, q, k, v = stored
    inline = make_inline(inline_tokens)
    result = attend(target, q, abi.Mode.SPARF_ATTEND, r=16, k_top=60, local=10, **inline)
    for head in range(HEADS):
        mine = {name: array[head] for name, array in inline.items()}
        want = sparf(q[head], k[head], v[head], r=16, k_top=60, local=10, **mine)
        np.testing.assert_array_equal(result.out[head].view(np.uint16), want.out.view(np.uint16))
        np.testing.assert_array_equal(result.alpha[head].view(np.uint32), want.alpha)
        assert result.selected[head] == 60


def test_half_of_the_inline_tokens_is_refused():
    q = np.zeros((HEADS, GROUP, D), np.float16)
    with pytest.raises(ValueError, match="scores and V"):
        commands.attn_submit(1, 0, 0, q, 10, SCALE, inline_v=np.zeros((HEADS, 3, D), np.float16))
    scores = np.zeros((HEADS, GROUP, 4), np.int32)
    with pytest.raises(ValueError, match="cannot have scores"):
        commands.attn_submit(1, 0, 0, q, 10, SCALE, inline_scores=scores, inline_v=np.zeros((HEADS, 3, D), np.float16))

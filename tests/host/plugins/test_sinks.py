"""Attention sinks: a token of the command with the sink's score and V = 0, by the golden model's own arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from family_models import SERVED
from pairs import by_value
from small_models import prompts, random_model

from golden import float64
from golden.attention import attention, scale_bits
from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.pending import sink_scores, with_sinks
from kvdrive.kvcache.session import Query, Session, attend
from kvdrive.plugins.transformers import attach as attach_model
from kvdrive.targets.emulator import Emulator

TOKENS, HEADS, GROUP, HEAD_DIM = 37, 2, 4, 64


def model_with_sinks(strength=2.0):
    """GPT-OSS with sinks that take most of the weight."""
    model = random_model(SERVED["gpt-oss"][0])
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.sinks.data = torch.linspace(-1, 1, 8) + strength + index
    return model


@pytest.mark.parametrize("engine", ["fast", "hls"])
@pytest.mark.parametrize("waiting", [0, 3])
def test_a_drive_gives_the_golden_bits(tmp_path, engine, waiting):
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((HEADS, n, HEAD_DIM)).astype(np.float16) for n in (GROUP, TOKENS, TOKENS))
    sinks = torch.tensor(rng.standard_normal(HEADS * GROUP) * 3 + 2)
    inline_scores = rng.integers(-(2**22), 2**22, (HEADS, GROUP, waiting)).astype(np.int32) if waiting else None
    inline_v = rng.standard_normal((HEADS, waiting, HEAD_DIM)).astype(np.float16) if waiting else None
    scores, values = with_sinks(sink_scores(sinks, HEADS), q, inline_scores, inline_v)
    bits = scale_bits(None, HEAD_DIM)
    with Emulator(tmp_path / "drive.kv", engine, capacity_bytes=1 << 24) as drive:
        session = Session(drive)
        session.append(0, abi.KvKind.KEYS, 0, k)
        session.append(0, abi.KvKind.VALUES, 0, v)
        ours = attend(drive, [Query(session, 0, q, TOKENS, bits, inline_scores=scores, inline_v=values)])[0].out
    for head in range(HEADS):
        one = attention(q[head], k[head], v[head], inline_scores=scores[head], inline_v=values[head])
        assert one.out.tobytes() == ours[head].tobytes()
        if not waiting:
            p = np.exp(q[head].astype(float) @ k[head].astype(float).T / np.sqrt(HEAD_DIM))
            z = p.sum(1) + np.exp(sinks.view(HEADS, GROUP)[head].numpy())
            np.testing.assert_allclose(ours[head], p @ v[head] / z[:, None], rtol=2e-3, atol=1e-4)
            assert not np.allclose(ours[head], float64.attention(q[head], k[head], v[head]), rtol=0.05)


def test_scores_of_sinks_saturate():
    found = sink_scores(torch.tensor([0.0, 1.0, -1e6, 1e6]), 2)
    assert found.tolist() == [[0, round(2**20 / np.log(2))], [-(2**31), 2**31 - 1]]


@by_value({"spill": [16, 1], "drives": [1, 2]})
def test_tokens_equal_transformers(tmp_path, spill, drives):
    model, ids = model_with_sinks(), prompts(2, 30)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    stock = greedy(model, ids, 24, mask)
    weak = greedy(model_with_sinks(-9.0), ids, 24, mask)
    assert not torch.equal(stock, weak)  # the sinks change the model's output
    opened = [Emulator(tmp_path / f"{n}.kv", "fast", capacity_bytes=1 << 24) for n in range(drives)]
    with attach_model(model, opened, spill=spill):
        assert torch.equal(greedy(model, ids, 24, mask), stock)
    for drive in opened:
        drive.close()


def test_policies_that_would_count_a_sink_are_refused(target):
    model = model_with_sinks()
    for name in ("sparf", "sparq", "h2o"):
        with pytest.raises(UnsupportedError, match=f"does not go with `attention={name}`"):
            attach_model(model, target, name, Fraction(1, 2))
    with attach_model(model, target, "local", Fraction(1, 2)):
        greedy(model, prompts(1, 30), 4)

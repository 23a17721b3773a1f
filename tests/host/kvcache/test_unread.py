"""The estimate of what a policy left unread: from the drive's answers to the mean and the worst step."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from small_models import CONFIGS, prompts, random_model

import golden
import kvdrive
from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.unread import UnreadMass
from kvdrive.policies import make_policy
from kvdrive.policies.parameters import Parameters
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

D = 64


def test_the_mean_of_a_step_counts_and_the_worst_step_is_recorded():
    unread = UnreadMass()
    assert unread.summary() == {"steps": 0, "mean": 0, "worst": 0}
    for step, estimates in ((70, [0.5, 0.1]), (70, [0.0, 0.0]), (71, [0.25])):
        unread.add(step, np.array(estimates, np.float32))
    found = unread.summary()
    assert found["steps"] == 2
    assert found["mean"] == pytest.approx((0.15 + 0.25) / 2)
    assert found["worst"] == pytest.approx(0.25)


@pytest.mark.parametrize("kind", [Emulator, CpuDrive])
def test_groups_in_a_session_equals_golden(kind, tmp_path):
    rng = np.random.default_rng(3)
    k, v = (rng.standard_normal((2, 3000, D)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((2, 4, D)).astype(np.float16)
    how = Parameters(abi.Mode.GROUPS, 32, 12)
    options = {"engine": "fast", "hot_bytes": 1 << 20, "index_bytes": 1 << 20}
    with kind(tmp_path / "drive.kv", **options) as target:
        session = Session(target, abi.AppendOption.APPEND_GROUPS)
        for kind_of_rows, rows in ((abi.KvKind.KEYS, k), (abi.KvKind.VALUES, v)):
            session.append(0, kind_of_rows, 0, rows)
        answers = [session.attend(0, q, 3000, scale_bits(None, D), how) for _ in range(2)]
        stats = target._drive.flash_stats()
    for head in range(2):
        exponent = golden.index_exponent(k[head])
        want = golden.groups(q[head], k[head], v[head], unit=32, k_top=12, exponent=exponent)
        for found in answers:
            np.testing.assert_array_equal(found.out[head].view(np.uint16), want.out.view(np.uint16))
            np.testing.assert_array_equal(found.alpha[head], want.left.astype(np.float32))
    assert stats["hot_hits"] > 0
    assert stats["index_hits"] > 0


@pytest.mark.parametrize("drives", [1, 2])
def test_a_generation_measures_its_steps(drives, tmp_path):
    model = random_model(CONFIGS["llama"])
    ids = prompts(1, 200)
    policy = make_policy("groups", Fraction(1, 4), unit=16)
    targets = [Emulator(tmp_path / f"{number}.kv", "fast") for number in range(drives)]
    with kvdrive.attach(model, targets, policy) as attached, torch.no_grad():
        cache = attached.cache()
        model(ids, past_key_values=cache)
        for token in (5, 6, 7):
            model(torch.tensor([[token]]), past_key_values=cache)
        found = cache.batch.statistics.unread_mass()
        assert found["steps"] == 3
        assert 0 < found["mean"] <= found["worst"] < 1
        cache.batch.statistics.measure_unread_anew()
        assert cache.batch.statistics.unread_mass()["steps"] == 0
    for target in targets:
        target.close()

"""A full drive: stored sessions make room, what it refused is sent again, and no token is lost."""

import pytest
import torch
from small_models import prompts

from kvdrive import abi
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.session import Session
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.rates import Rates
from kvdrive.targets.emulator import Emulator

PROMPT = prompts(1, 150)
SMALL_BYTES = 3 * 528 * 1100
RATES = {"drive": Rates(1, 0, 1, 0, 1, 0, 0, 0, 0), "memory": Rates(1, 0, 1, 0, 0, 0, 0, 1, 1)}  # that finding pays
QUICK = {"drive": (1, 6, 28, 31), "memory": (4, 12, 29)}


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    """What PROMPT continues with, on a drive that has room."""
    found = {}
    for active in ("drive", "memory"):
        target = Emulator(tmp_path_factory.mktemp("big") / "big.kv", "fast", capacity_bytes=1 << 26)
        with target, attach(model, target, active=active) as attached:
            found[active] = greedy(model, PROMPT, 100, past_key_values=attached.cache())
    return found


def keep(attached, model, seed, tokens):
    """A stored session of a prompt alone."""
    cache = attached.sessions.cache(ids := prompts(1, tokens, seed=seed))
    with torch.no_grad():
        model(ids, past_key_values=cache)
    attached.sessions.release(cache)


@pytest.mark.parametrize("active", [pytest.param("drive", marks=pytest.mark.slow), "memory"])
def test_sessions_are_evicted_while_a_text_grows(tmp_path, model, expected, active):
    """The drive is filled up to the last session that it takes; then decode steps need its room."""
    target = Emulator(tmp_path / "small.kv", "fast", capacity_bytes=SMALL_BYTES)
    with target, attach(model, target, sessions=True, spill=8, active=active) as attached:
        store = attached.sessions
        store.costs.rates = RATES[active]
        seed = 100
        while not store.stats.evictions:
            keep(attached, model, seed := seed + 1, 240)
        before, grown = store.stats.evictions, 0
        while store.stats.evictions < before + 3:
            cache = store.cache(PROMPT, find=False)
            assert torch.equal(greedy(model, PROMPT, 100, past_key_values=cache), expected[active])
            assert cache.batch.listener is not None
            assert store.index.get(store.release(cache)).tokens == 249
            grown += 1
            assert grown < 20
        assert store.stats.failed_saves == 0
        assert len(target.sessions()) == store.index.count()


@pytest.mark.parametrize(
    ("active", "refused"),
    [
        pytest.param(active, refused, marks=() if refused in QUICK[active] else pytest.mark.slow)
        for active in QUICK
        for refused in (1, 4, 6, 12, 28, 29, 31)
    ],
)
def test_an_append_is_refused_at_any_place(tmp_path, model, expected, active, refused, monkeypatch):
    """From one append on, the drive takes nothing before a session has left: in the prompt, a step or the last save."""
    target = Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26)
    with target, attach(model, target, sessions=True, spill=8, active=active) as attached:
        store = attached.sessions
        store.costs.rates = RATES[active]
        for seed in (1, 2):
            keep(attached, model, seed, 20)
        append, appends, refusals = Session.append, 0, 0

        def faulty(self, *arguments):
            nonlocal appends, refusals
            if store.stats.evictions == 0 and arguments[0] < 2:  # the model's layers
                appends += 1
                if appends >= refused:
                    refusals += 1
                    raise CommandError(abi.Opcode.KV_APPEND, abi.NvmeStatus.CAPACITY_EXCEEDED, 0, retry=False)
            return append(self, *arguments)

        monkeypatch.setattr(Session, "append", faulty)
        cache = store.cache(PROMPT)
        tokens = greedy(model, PROMPT, 45, past_key_values=cache)
        assert torch.equal(tokens, expected[active][:, :195])
        assert store.release(cache) is not None
        assert refusals > 0
        assert 1 <= store.stats.evictions <= 2
        assert store.stats.failed_saves == 0
        assert store.cache(tokens).get_seq_length() == 194

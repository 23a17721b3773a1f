"""Two attachments on one drive that is served elsewhere: they share what is stored, and do not disturb each other."""

import pytest
import torch
from attached_drives import LOADING_PAYS
from small_models import CONFIGS, prompts, random_model

from kvdrive._native import Drive, Subsystem, TcpServer
from kvdrive.errors import InputError
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.options import SessionOptions
from kvdrive.targets.remote import TcpDrive

PROMPT = prompts(1, 150)


@pytest.fixture(params=["drive", "memory"])
def hosts(tmp_path, request):
    """Two hosts of one drive, each with a model of its own, and one index."""
    server = TcpServer(Subsystem(Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26), nqn="nqn.2026-01.org.kvdrive:two"))
    targets = [TcpDrive(("127.0.0.1", server.port)) for _ in range(2)]
    options = SessionOptions(index=tmp_path / "index")
    models = [random_model(CONFIGS["llama"]) for _ in targets]
    attached = [
        attach(model, target, sessions=options, active=request.param)
        for model, target in zip(models, targets, strict=True)
    ]
    for one in attached:
        one.sessions.costs.rates = LOADING_PAYS
    yield attached
    for one, target in zip(attached, targets, strict=True):
        one.detach()
        target.close()


def generate(attached, ids, new_tokens, name=""):
    cache = attached.sessions.cache(ids, name)
    return greedy(attached._model, ids, new_tokens, past_key_values=cache), cache


def test_one_continues_with_what_the_other_has_computed(hosts):
    first, second = hosts
    tokens, cache = generate(first, PROMPT, 20, "notes")
    cache.batch.listener.wait()  # in memory, it is saved in the background
    with pytest.raises(InputError, match="in use"):
        second.sessions.cache(PROMPT, "notes")
    running = second.sessions.cache(PROMPT)  # a running session may be forked
    assert running.get_seq_length() == 149
    first.sessions.release(cache)
    more, cache = generate(second, tokens, 20, "notes")
    assert torch.equal(more, greedy(random_model(CONFIGS["llama"]), PROMPT, 40))
    again = greedy(second._model, PROMPT, 20, past_key_values=running)
    assert torch.equal(again, tokens)
    second.sessions.release(cache)
    assert first.sessions.cache(more).get_seq_length() == 189


def test_what_one_removes_the_other_computes_again(hosts):
    first, second = hosts
    tokens, cache = generate(first, PROMPT, 20)
    number = first.sessions.release(cache)
    forked = second.sessions.cache(tokens)
    assert first.sessions.stored.drop([number]) == 1
    more = greedy(second._model, tokens, 10, past_key_values=forked)  # the fork has its own share
    assert torch.equal(more, greedy(random_model(CONFIGS["llama"]), PROMPT, 30))
    assert first.sessions.cache(prompts(1, 150, seed=8)).get_seq_length() == 0

"""A process that was forked from one with an attached model: it is told so, and can attach the model anew."""

import json
import os
import signal

import torch
from small_models import prompts

from kvdrive.errors import UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator


def in_child(work):
    """What `work` returns in a forked child, or the sentence of its error; a child that hangs is killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            answer = work()
        except UnsupportedError as error:
            answer = str(error)
        except BaseException as error:
            answer = repr(error)
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the child was killed: it waited for ever"
    return json.loads(told)


def test_every_way_to_the_drives_is_refused_in_a_forked_child(target, llama):
    ids = prompts(1, 20)
    with attach(llama, target, sessions=True) as attached, torch.no_grad():
        cache = attached.cache()
        llama(ids, past_key_values=cache)
        ways = {
            "generate": lambda: greedy(llama, ids, 2).tolist(),
            "a new cache": lambda: attached.cache() and "made",
            "a cache with tokens": lambda: llama(ids[:, :1], past_key_values=cache) and "computed",
            "sessions": lambda: attached.sessions.cache(ids[0]) and "made",
            "a reset": lambda: cache.reset() or "done",
        }
        for what, way in ways.items():
            assert "this process was forked from the one that attached the model" in in_child(way), what
        ours = greedy(llama, ids, 4)
    assert torch.equal(ours, greedy(llama, ids, 4))


def test_a_forked_child_detaches_and_attaches_to_a_drive_of_its_own(target, llama, tmp_path):
    ids = prompts(1, 20)
    stock = greedy(llama, ids, 6)

    with attach(llama, target, sessions=True) as attached:
        ours = greedy(llama, ids, 6)

        def work():
            attached.detach()
            found = greedy(llama, ids, 6).tolist()
            with Emulator(tmp_path / "childs.kv", "fast", capacity_bytes=1 << 24) as own, attach(llama, own):
                return [found, greedy(llama, ids, 6).tolist()]

        assert in_child(work) == [stock.tolist(), stock.tolist()]
        assert torch.equal(greedy(llama, ids, 6), ours)
    assert torch.equal(ours, stock)

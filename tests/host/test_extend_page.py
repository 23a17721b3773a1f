"""The host's examples of docs/extend.md run unchanged."""

import re
import threading
from fractions import Fraction
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from small_models import prompts

import kvdrive
from kvdrive._native import Drive, QueuePairs, Subsystem
from kvdrive.errors import TargetError
from kvdrive.generation.generate import greedy
from kvdrive.policies import POLICIES, Entry, register

PAGE = Path(__file__).resolve().parents[2] / "docs/extend.md"
PROMPT = prompts(1, 150)


def blocks(section):
    """The Python code of a section of the page, block by block."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.S | re.M)
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)


def module_of(code, **names):
    module = ModuleType("example")
    vars(module).update(names)
    exec(compile(code, str(PAGE), "exec"), vars(module))
    return module


@pytest.fixture
def policy():
    """The policy of the page under its name, as the line of the page puts it into the table."""
    code, line = blocks("Add a policy")
    ((name, entry),) = eval(f"{{{line}}}", {"Entry": Entry}).items()
    kind = module_of(code).Ends
    assert (name, entry.kind) == (kind.name, f"kvdrive.policies.{kind.name}:{kind.__name__}")
    register(name, Entry(kind, entry.summary, entry.marker))
    yield name
    del POLICIES[name]


def test_the_policy_at_ratio_one_is_exact_attention(llama, target, policy):
    stock = greedy(llama, PROMPT, 12)
    with kvdrive.attach(llama, target, policy):
        assert torch.equal(greedy(llama, PROMPT, 12), stock)
    assert target.stats().attention_jobs > 0


def test_the_policy_sees_the_ends():
    code, _ = blocks("Add a policy")
    valid = np.arange(100) > 1
    asked = module_of(code).Ends(Fraction(1, 10)).parameters(100, 64, valid, pending=3)
    assert np.flatnonzero(asked.valid).tolist() == [2, 3, *range(93, 100)]  # 103 tokens, 3 of the last 10 pending


def test_the_policy_reads_less(llama, target, policy):
    read = {}
    for name, ratio in (("exact", None), (policy, Fraction(1, 8))):
        with kvdrive.attach(llama, target, name, ratio) as attached, torch.no_grad():
            cache = attached.cache()
            llama(PROMPT, past_key_values=cache, logits_to_keep=1)
            before = cache.bytes_read()
            llama(PROMPT[:, -1:], past_key_values=cache)
            read[name] = cache.bytes_read() - before
    assert 0 < read[policy] < read["exact"]


def test_the_target_gives_the_tokens_of_transformers(llama, tmp_path):
    code, server = blocks("Add a target")
    ours, theirs = Pipe()
    drive = Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)
    serve = module_of(server, QueuePairs=QueuePairs, Subsystem=Subsystem).serve
    thread = threading.Thread(target=serve, args=(theirs, drive))
    thread.start()
    with module_of(code).WireDrive(ours) as remote:
        stock = greedy(llama, PROMPT, 8)
        with kvdrive.attach(llama, remote):
            assert torch.equal(greedy(llama, PROMPT, 8), stock)
        assert remote.stats().attention_jobs > 0
    thread.join()
    with pytest.raises(TargetError, match="does not answer"):
        remote.stats()


def test_every_section_counts_its_files():
    """Each section states how many files it touches. The files in its table exist."""
    sections = re.findall(r"^## (Add .*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.S | re.M)
    assert len(sections) == 6
    for title, text in sections:
        assert re.search(r"\b(One|Two|Three|Four|Five|Six|Seven|Eight|Nine) files?\b", text), title
        for line in re.findall(r"^\|.*", text, re.M):
            for path in re.findall(r"`((?:abi|host|hls|sim|tests|scripts)/[^`<* ]*)`", line):
                assert (PAGE.parents[1] / path).exists(), f"{title}: {path}"

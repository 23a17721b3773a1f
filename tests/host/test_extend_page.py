"""docs/design/extend.md: the host's examples run unchanged, the files are counted, and the changes fit the sources."""

import re
import shutil
import threading
from fractions import Fraction
from multiprocessing import Pipe
from types import ModuleType

import numpy as np
import pytest
import torch
from extend_page import PAGE, ROOT, blocks, changes, python, sections, table_files
from small_models import prompts

import kvdrive
from kvdrive import _native
from kvdrive._native import Drive, QueuePairs, Subsystem
from kvdrive.errors import TargetError
from kvdrive.generation.generate import greedy
from kvdrive.policies import POLICIES, Entry, register

PROMPT = prompts(1, 150)


def module_of(code, **names):
    module = ModuleType("example")
    vars(module).update(names)
    exec(compile(code, str(PAGE), "exec"), vars(module))
    return module


@pytest.fixture
def policy():
    """The policy of the page under its name, as the line of the page puts it into the table."""
    code, line = blocks("Add a policy", "python")
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
    code, _ = blocks("Add a policy", "python")
    valid = np.arange(100) > 1
    asked = module_of(code).Ends(Fraction(1, 10)).parameters(100, 64, valid, pending=3)
    assert np.flatnonzero(asked.valid).tolist() == [2, 3, *range(93, 100)]  # 103 tokens, 3 of the last 10 pending


def test_the_policy_reads_less(llama, target, policy):
    read = {}
    for name, ratio in (("exact", None), (policy, Fraction(1, 8))):
        with kvdrive.attach(llama, target, name, ratio) as attached, torch.no_grad():
            cache = attached.cache()
            llama(PROMPT, past_key_values=cache, logits_to_keep=1)
            before = cache.batch.statistics.bytes_read()
            llama(PROMPT[:, -1:], past_key_values=cache)
            read[name] = cache.batch.statistics.bytes_read() - before
    assert 0 < read[policy] < read["exact"]


def test_the_target_gives_the_tokens_of_transformers(llama, tmp_path):
    code, server = blocks("Add a target", "python")
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


def test_the_option_is_a_field_a_flag_and_free(tmp_path):
    shutil.copytree(ROOT / "host/kvdrive", tmp_path / "host/kvdrive", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_native.__file__, tmp_path / "host/kvdrive")
    for change in changes("Add an option"):
        if change.file.startswith("host"):
            change.apply(tmp_path)
    (test,) = [change.new for change in changes("Add an option") if change.file.startswith("tests")]
    checks = (
        "import pytest\nfrom kvdrive.cli.fields import Fields\nfrom kvdrive.config.run import RunConfig\n"
        "from kvdrive.config.table import FREE\nfrom kvdrive.errors import InputError\n"
        "from kvdrive.kvcache.overflow import Overflow\n" + test + "test_recent_tokens_stay()\n"
        "assert 'recent' in FREE and RunConfig.of(overflow='trim', recent=9).limits.recent == 9\n"
        "assert 'recent' in [one.name for one in Fields('limits').parameters()]\n"
    )
    python(tmp_path, "-c", checks)


@pytest.mark.parametrize("title", sections())
def test_the_page_counts_the_files_of_every_section(title):
    """The number at the top of the page is that of the section's table. The files of a complete example are these."""
    (number,) = re.findall(rf"\| (\d+) \| \[{title}\]", PAGE.read_text())
    files = table_files(title)
    assert len(files) == int(number)
    for path in files:
        assert (ROOT / re.sub(r"<.*", "", path)).exists(), path
    if touched := {change.file for change in changes(title)}:
        patterns = {
            re.escape(path).replace("<family>", r"\w+") + (r"\w+\.py" if path[-1] == "/" else "") for path in files
        }
        assert all(any(re.fullmatch(pattern, file) for pattern in patterns) for file in touched)
        assert len(touched) == int(number)


@pytest.mark.parametrize("title", [title for title in sections() if changes(title)])
def test_the_changes_of_the_page_fit_the_sources(title):
    for change in changes(title):
        change.place(ROOT)


def test_the_page_names_the_files_that_know_the_modes_of_gemv():
    """A mode of `kvdrive kernel` is in the files where each other mode is."""
    known = {
        str(path.relative_to(ROOT))
        for folder in ("host/kvdrive", "sim/drive")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyi", ".hpp", ".cpp") and re.search(r'gemv_columns|"columns"', path.read_text())
    }
    (text,) = re.findall(r"needs (\d+) more files\.(.*?)\n\n[A-Z]", sections()["Add a kernel mode"], re.S)
    assert set(re.findall(r"`([\w/]+\.\w+)`", text[1])) == known
    assert int(text[0]) == len(known)

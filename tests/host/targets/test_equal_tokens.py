"""One generation on every kind of target gives the same tokens. With exact attention they are stock transformers'."""

import functools
import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import forked
import in_process
import pytest
import same_generation
from emulated_cards import Cards, set_up_cards
from made_up_machine import MadeUpCard, make_machine
from pairs import in_pairs

from kvdrive.xrt.pci import ROOT_VARIABLE
from kvdrive.xrt.single import IMAGE_VARIABLE

PROGRAM = Path(same_generation.__file__)
POLICIES = list(same_generation.POLICIES)


@functools.cache
def expected(policy, kv_format="f16"):
    """Stock transformers' tokens. The emulator's where the policy chooses tokens or the format rounds."""
    if (policy, kv_format) == ("exact", "f16"):
        return same_generation.stock()
    return same_generation.generate("emulator", policy, "" if kv_format == "f16" else kv_format)


@contextmanager
def served(path, *where):
    """A process that serves the drive `path`, and what it says about the place."""
    assert in_process.kvdrive("drive", "create", path).returncode == 0
    command = [sys.executable, "-m", "kvdrive", "drive", "serve", path, *where]
    with forked.popen(command, stdout=subprocess.PIPE, text=True, dies_with_parent=True) as process:
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The name of a kind of target as `attach` and `--target` take it. A drive is served to all tests of its kind."""
    folder, open_places = tmp_path_factory.mktemp("served"), ExitStack()

    @functools.cache
    def place(kind):
        if kind == "rings":
            open_places.enter_context(served(folder / "rings.kv", "--socket", folder / "drive.sock"))
            return str(folder / "drive.sock")
        if kind == "tcp":
            said = open_places.enter_context(served(folder / "tcp.kv", "--nvme-tcp", "127.0.0.1:0"))
            return "tcp://127.0.0.1:" + said.split("nvme-tcp 127.0.0.1:")[1].split(",")[0]
        return kind

    with open_places:
        yield place


@in_pairs(
    {
        "kind": ["emulator", "cpu", "rings", "tcp"],
        "policy": ["exact", "sparf", "groups"],
        "kv_format": same_generation.FORMATS,
    }
)
def test_targets_of_this_process_and_served_ones(kind, policy, kv_format, places):
    found = same_generation.generate(places(kind), policy, kv_format)
    assert len(found) == same_generation.TOKENS
    assert found == expected(policy, kv_format)


@pytest.mark.slow
def test_a_smartssd(tmp_path):
    """On the emulated card; its log says that the card computed."""
    cards: Cards = set_up_cards(tmp_path)
    mount = tmp_path / "ssd"
    mount.mkdir()
    root = make_machine(tmp_path / "machine", [MadeUpCard(mount)])
    image = cards.image("attention_g4", units=2)
    environment = {ROOT_VARIABLE: str(root), IMAGE_VARIABLE: str(image)}
    done = cards.python(PROGRAM, "smartssd", **environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["smartssd"] == {policy: expected(policy) for policy in POLICIES}
    logs = [json.loads(line) for line in (tmp_path / "card.log").read_text().splitlines()]
    assert sum(start for log in logs for start in log["starts"].values()) > 2 * same_generation.TOKENS

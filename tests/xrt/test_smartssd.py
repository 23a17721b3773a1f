# SPDX-License-Identifier: Apache-2.0
"""SmartSSDs: found and paired on made-up machines, checked before use, and run on emulated cards."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import forked
import pytest
from emulated_cards import Cards
from made_up_machine import MadeUpCard, make_machine

from kvdrive.doctor.cards import cards as doctor_cards
from kvdrive.doctor.finding import State
from kvdrive.errors import InputError, TargetError
from kvdrive.targets.smartssd import plan
from kvdrive.xrt import image as images
from kvdrive.xrt.pci import ROOT_VARIABLE, find_cards
from kvdrive.xrt.preflight import peer_to_peer, problems
from kvdrive.xrt.single import IMAGE_VARIABLE

PLATFORM = "xilinx_u2_gen3x4_xdma_gc_2_202110_1"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "a.xclbin"
    path.write_bytes(b"an image")
    images.write_text(path, PLATFORM, [("attention_g4", "attention_g4_1")], 0, 300)
    return path


def machine(tmp_path: Path, *cards: MadeUpCard) -> Path:
    return make_machine(tmp_path / "machine", list(cards))


def test_cards_are_paired_with_the_ssd_below_the_same_switch(tmp_path: Path) -> None:
    root = machine(tmp_path, MadeUpCard(tmp_path / "one"), MadeUpCard(None))
    first, second = find_cards(root)
    assert (first.switch, first.management, first.user) == ("0000:d5:00.0", "0000:d8:00.0", "0000:d8:00.1")
    assert first.namespaces == ("nvme4n1",)
    assert [(mount.device, mount.folder) for mount in first.mounts] == [("/dev/nvme4n1p1", tmp_path / "one")]
    assert (second.user, second.namespaces, second.mounts) == ("0000:dc:00.1", ("nvme5n1",), ())


def test_a_machine_without_cards_has_none(tmp_path: Path) -> None:
    assert find_cards(tmp_path) == []
    assert find_cards(machine(tmp_path)) == []


def test_a_ready_card_has_no_problems(tmp_path: Path, image: Path) -> None:
    root = machine(tmp_path, MadeUpCard(tmp_path))
    assert problems(find_cards(root)[0], image, root) == []


@pytest.mark.parametrize(
    ("card", "sentence", "command", "fatal"),
    [
        ({"driver": False}, "no driver is bound", "modprobe xocl", True),
        ({"peer_to_peer": "0"}, "peer-to-peer memory is off", "xbutil p2p --device 0000:d8:00.1 --enable", False),
        ({"peer_to_peer": "2"}, "needs a warm reboot", "reboot", False),
        ({"ssd": False}, "no SSD is visible", "nvme list", True),
        ({"mount": None}, "no file system of /dev/nvme4n1", "mkfs.ext4 /dev/nvme4n1", True),
        ({"options": "ro"}, "mounted for reading only", "remount,rw", True),
        ({"kind": "tmpfs"}, "is tmpfs", "ext4", False),
    ],
)
def test_what_is_missing_is_named_with_its_command(
    tmp_path: Path, image: Path, card: dict, sentence: str, command: str, fatal: bool
) -> None:
    root = machine(tmp_path, MadeUpCard(**({"mount": tmp_path} | card)))
    found = problems(find_cards(root)[0], image, root)
    assert len(found) == 1
    assert sentence in found[0].sentence
    assert command in found[0].remedy
    assert found[0].fatal is fatal


def test_images_are_part_of_the_preflight(tmp_path: Path, image: Path) -> None:
    root = machine(tmp_path, MadeUpCard(tmp_path))
    card = find_cards(root)[0]
    assert "no image" in problems(card, None, root)[0].sentence
    images.write_text(image, "xilinx_u50_gen3x16_xdma_201920_3", [("attention_g4", "a")], 0, 300)
    assert "was built for xilinx_u50" in problems(card, image, root)[0].sentence
    images.text_path(image).unlink()
    assert "is missing" in problems(card, image, root)[0].sentence


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("bar:4294967296\nexp_bar:4294967296\n", "on"),
        ("bar:268435456\nexp_bar:4294967296\n", "off"),
        ("bar:268435456\nrbar:4294967296\nexp_bar:4294967296\n", "reboot"),
        ("", "off"),
    ],
)
def test_newer_drivers_say_the_sizes_of_peer_to_peer_memory(tmp_path: Path, text: str, state: str) -> None:
    (tmp_path / "p2p.u.1").mkdir()
    (tmp_path / "p2p.u.1/config").write_text(text)
    assert peer_to_peer(tmp_path) == state


def test_cards_are_chosen_by_number(tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(machine(tmp_path, MadeUpCard(tmp_path), MadeUpCard(None))))
    monkeypatch.setenv(IMAGE_VARIABLE, str(image))
    (drive,) = plan("smartssd:0")
    assert (drive.engine, drive.folder) == (f"xrt:0000:d8:00.1,{image}", tmp_path / "kvdrive")
    with pytest.raises(TargetError, match=r"SmartSSD 1 .*no file system of /dev/nvme5n1 is mounted"):
        plan("smartssd")
    for name in ("smartssd:2", "smartssd:0,0", "smartssd:x"):
        with pytest.raises(InputError, match="has the cards 0, 1"):
            plan(name)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "empty"))
    with pytest.raises(InputError, match="no SmartSSD on this machine"):
        plan("smartssd")


MakeCards = Callable[..., Cards]


def kvdrive(
    arguments: list[str], environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """The command without the runtime of cards."""
    program = [sys.executable, "-m", "kvdrive"]
    return forked.run([*program, *arguments], env=os.environ | environment, capture_output=True, text=True)


TOKENS = 64  # of the slow case; fewer take the same steps
PROMPT = "The drive keeps the keys and the values"


def command(model: str, tokens: int, *arguments: str) -> list[str]:
    options = ["--threads", "1", "--max-new-tokens", str(tokens), "--ignore-stop", "--json", "--prompt", PROMPT]
    return ["generate", "--model", model, *options, *arguments]


def printed(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


TWO_CARDS = pytest.param(2, "exact", TOKENS, marks=pytest.mark.slow)


@pytest.mark.parametrize(("count", "policy", "tokens"), [(1, "sparf", TOKENS // 4), TWO_CARDS])
def test_tokens_on_cards_equal_those_of_the_emulator(cards: MakeCards, count: int, policy: str, tokens: int) -> None:
    made = cards(cards=count)
    mounts = [made.folder / f"ssd{number}" for number in range(count)]
    for mount in mounts:
        mount.mkdir()
    root = machine(made.folder, *(MadeUpCard(mount) for mount in mounts))
    image = made.image("attention_g2", units=2)
    chosen = ["--attention", policy, *(["--ratio", "1/4"] if policy != "exact" else [])]
    on_cards = command("mini", tokens, "--target", "smartssd", "--image", str(image), *chosen)
    card = printed(made.kvdrive(*on_cards, **{ROOT_VARIABLE: str(root)}))
    emulator = printed(kvdrive(command("mini", tokens, *chosen)))
    assert card["tokens"] == emulator["tokens"]
    assert len(card["tokens"][0]) == tokens
    assert card["counted"]["decode"]["attention_jobs"] == emulator["counted"]["decode"]["attention_jobs"]
    logs = [json.loads(line) for line in (made.folder / "card.log").read_text().splitlines()]
    assert len(logs) == count
    assert all(sum(log["starts"].values()) > 0 for log in logs)


def test_the_generation_stops_with_a_sentence_where_a_card_is_not_ready(cards: MakeCards) -> None:
    made = cards()
    root = machine(made.folder, MadeUpCard(None))
    arguments = ["--target", "smartssd", "--image", str(made.image("attention_g4")), "--prompt", "a"]
    done = kvdrive(["generate", "--model", "mini", *arguments], {ROOT_VARIABLE: str(root)})
    assert done.returncode == 2
    assert "no file system of /dev/nvme4n1 is mounted" in done.stderr


def test_doctor_shows_cards_pairs_and_what_is_missing(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(machine(tmp_path, MadeUpCard(tmp_path), MadeUpCard(None, peer_to_peer="0"))))
    monkeypatch.setenv(IMAGE_VARIABLE, str(image))
    ready, *lacking = doctor_cards()
    assert (ready.name, ready.state) == ("SmartSSD 0", State.ok)
    assert ready.detail == f"FPGA 0000:d8:00.1 with nvme4n1 at {tmp_path}, image a.xclbin"
    assert [finding.name for finding in lacking] == ["SmartSSD 1"] * 3
    assert all(finding.state is State.missing for finding in lacking)
    remedies = [finding.remedy for finding in lacking]
    assert any("xbutil p2p --device 0000:dc:00.1 --enable" in remedy for remedy in remedies)
    assert any("mkfs.ext4 /dev/nvme5n1" in remedy for remedy in remedies)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "none"))
    assert [finding.detail for finding in doctor_cards()] == ["no card (PCI 10ee:9134)"]


@pytest.mark.slow
def test_the_report_of_doctor_measures_each_card(cards: MakeCards) -> None:
    made = cards()
    mount = made.folder / "ssd"
    mount.mkdir()
    root = machine(made.folder, MadeUpCard(mount), MadeUpCard(None))
    report = made.folder / "report.json"
    environment = {ROOT_VARIABLE: str(root), IMAGE_VARIABLE: str(made.image("attention_g1"))}
    done = made.kvdrive("doctor", "--report", report, **environment)
    assert report.is_file(), done.stderr
    fast, card, lacking = json.loads(report.read_text())["rates"]
    assert (fast["engine"], card["engine"], lacking["engine"]) == ("fast", "smartssd:0", "smartssd:1")
    assert fast["seconds"] > 0
    assert card["seconds"] > 0
    assert card["bytes"] == fast["bytes"] == 2 * 4 * 16_384 * 128 * 2
    assert "no file system" in lacking["problem"]

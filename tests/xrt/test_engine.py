# SPDX-License-Identifier: Apache-2.0
"""The engine `xrt` of a drive, on emulated cards: the golden model's bits, and what happens when a card fails."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_cards import Cards

from kvdrive.xrt.image import text_path

HERE = Path(__file__).parent
DEADLINE_MS = "2000"  # a hundred times what a job takes; a start that hangs takes longer
EIGHT_HEADS = [[1, 64, 8, 200]]  # group, head dimension, heads, tokens
MakeCards = Callable[..., Cards]


def drive(cards: Cards, image: Path, shapes: list[list[int]], **environment: str) -> dict:
    done = cards.python(HERE / "drive_on_card.py", cards.folder, f"xrt:0,{image}", json.dumps(shapes), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def starts(cards: Cards) -> dict[str, int]:
    total: dict[str, int] = {}
    for line in (cards.folder / "card.log").read_text().splitlines():
        for unit, count in json.loads(line)["starts"].items():
            total[unit] = total.get(unit, 0) + count
    return total


def test_every_mode_and_shape_gives_the_golden_bits(cards: MakeCards) -> None:
    """Shapes with a kernel, padded ones (3 heads, 40 dimensions), rows that fill no whole page (40, 96)."""
    made = cards()
    shapes = [[1, 64, 5, 700], [4, 128, 3, 300], [3, 32, 2, 150], [1, 40, 2, 150], [4, 96, 2, 90]]
    report = drive(made, made.image("attention_g1", "attention_g4", units=2), shapes)
    assert report["failed"] == ""
    assert report["notices"] == []
    assert report["reads"] > 0


def test_two_units_share_the_heads(cards: MakeCards) -> None:
    made = cards()
    assert drive(made, made.image("attention_g1", units=2), EIGHT_HEADS)["failed"] == ""
    # Exact and partial attention of 8 heads go to both units, the 24 jobs of SparF to the first.
    assert starts(made) == {"attention_g1_1": 8 + 24, "attention_g1_2": 8}


@pytest.mark.slow
def test_hardware_emulation_gives_the_golden_bits(cards: MakeCards) -> None:
    """The same engine and image format in the runtime's other mode, whose shim writes registers one by one."""
    made = cards(mode="hw_emu")
    report = drive(made, made.image("attention_g1", units=2), [[1, 64, 5, 700]])
    assert (report["failed"], report["notices"]) == ("", [])
    assert report["reads"] > 0


def test_without_peer_to_peer_memory_rows_are_copied_and_the_drive_says_so(cards: MakeCards) -> None:
    made = cards()
    report = drive(made, made.image("attention_g1"), [[1, 64, 3, 200]], KVDRIVE_XRT_P2P="0")
    assert report["failed"] == ""
    assert "no peer-to-peer memory" in report["notices"][0]
    assert "xbutil p2p --enable" in report["notices"][0]


HANGS = ("hang:3", "the card was reset and the job repeated")
NO_RESULT = ("no-result:5", "its job was repeated")


@pytest.mark.parametrize(
    ("fault", "sentence", "units"),
    [
        (*HANGS, 2),
        (*NO_RESULT, 1),
        pytest.param(*HANGS, 1, marks=pytest.mark.slow),
        pytest.param(*NO_RESULT, 2, marks=pytest.mark.slow),
    ],
)
def test_a_failed_start_is_repeated_once(cards: MakeCards, fault: str, sentence: str, units: int) -> None:
    made = cards(fault=fault)
    report = drive(made, made.image("attention_g1", units=units), EIGHT_HEADS, KVDRIVE_XRT_DEADLINE_MS=DEADLINE_MS)
    assert report["failed"] == ""
    assert len(report["notices"]) == 1
    assert sentence in report["notices"][0]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [("stuck:2", "does not come back after a reset"), ("lost:2", "ended without a result twice")],
)
def test_a_card_that_stays_away_is_an_error(cards: MakeCards, fault: str, sentence: str) -> None:
    made = cards(fault=fault)
    report = drive(made, made.image("attention_g1"), EIGHT_HEADS, KVDRIVE_XRT_DEADLINE_MS=DEADLINE_MS)
    assert report["failed"].startswith("a command was refused")
    assert sentence in report["notices"][-1]


REFUSED = """
import sys
from pathlib import Path
from kvdrive._native import Drive
try:
    Drive(Path(sys.argv[1]), sys.argv[2])
except RuntimeError as error:
    print(error)
"""


def refusal(cards: Cards, engine: str) -> str:
    done = cards.python("-c", REFUSED, cards.folder / "drive.kv", engine)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_images_are_checked_before_they_are_loaded(cards: MakeCards) -> None:
    made = cards()
    assert "needs an image" in refusal(made, "xrt")
    image = made.image("attention_g1")
    engine = f"xrt:0,{image}"
    text = text_path(image).read_text()
    text_path(image).write_text(text.replace("abi_version = ", "abi_version = 9"))
    assert "version 91 of the job layout" in refusal(made, engine)
    text_path(image).write_text(text.replace("bank = 0", "bank = 9"))
    assert "does not use memory bank 9" in refusal(made, engine)
    text_path(image).write_text(text.replace(":attention_g1_1", ":attention_g1_7"))
    assert "no compute unit attention_g1:attention_g1_7" in refusal(made, engine)
    text_path(image).write_text(text.replace("xilinx_u2", "xilinx_u3"))
    assert "its text says xilinx_u3" in refusal(made, engine)
    text_path(image).unlink()
    assert "is missing: `make link` writes it" in refusal(made, engine)
    text_path(image).write_text(text)
    image.write_bytes(image.read_bytes() + b"\0")
    assert "not the image that its text describes" in refusal(made, engine)
    assert not (made.folder / "card.log").exists()  # no card got an image


def test_images_of_other_cards_and_kernels_are_refused(cards: MakeCards) -> None:
    made = cards()
    other = made.image("attention_g1", platform="xilinx_u50_gen3x16_xdma_201920_3")
    assert "was built for xilinx_u50_gen3x16_xdma_201920_3: choose" in refusal(made, f"xrt:0,{other}")
    assert "no attention kernel" in refusal(made, f"xrt:0,{made.image('argtopk')}")
    assert refusal(made, f"xrt:5,{made.image('attention_g1')}")  # no such card

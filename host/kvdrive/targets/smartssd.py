"""SmartSSDs as drives: the file lies on the card's own SSD, and its FPGA computes attention (engine `xrt`).

smartssd        every card of this machine; they share the KV heads
smartssd:N      card number N; several: smartssd:0,2
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kvdrive.errors import InputError, TargetError
from kvdrive.xrt import preflight
from kvdrive.xrt.pci import SmartSsd, find_cards

NAME = "smartssd"
_FOLDER = "kvdrive"  # on the SSD's file system


@dataclass(frozen=True)
class CardDrive:
    """`engine`: as kvdrive._native.Drive takes it. `folder`: of its file. `notes`: what the user should know."""

    engine: str
    folder: Path
    notes: tuple[str, ...]


def is_smartssd(name: str) -> bool:
    return name == NAME or name.startswith(f"{NAME}:")


def plan(name: str, image: Path | None = None) -> list[CardDrive]:
    """The drives of the cards that `name` means. Raises InputError: no such card; TargetError: a card is not ready."""
    chosen = _chosen(name)
    path = image or _image()
    drives = []
    for card in chosen:
        found = preflight.problems(card, path)
        fatal = next((problem for problem in found if problem.fatal), None)
        if fatal is not None:
            raise TargetError(f"SmartSSD {card.number} ({card.user}): {fatal.sentence}: {fatal.remedy}")
        place = preflight.place_of(card)
        assert place is not None  # the preflight found no fatal problem
        notes = tuple(f"SmartSSD {card.number}: {problem.sentence} ({problem.remedy})" for problem in found)
        drives.append(CardDrive(f"xrt:{_device(card)},{path}", place.folder / _FOLDER, notes))
    return drives


def _chosen(name: str) -> list[SmartSsd]:
    cards = find_cards()
    if not cards:
        raise InputError("no SmartSSD on this machine (PCI 10ee:9134 with an FPGA behind it): kvdrive doctor")
    if name == NAME:
        return cards
    numbers = name.removeprefix(f"{NAME}:").split(",")
    there = {str(card.number): card for card in cards}
    missing = [number for number in numbers if number not in there]
    if missing or len(set(numbers)) < len(numbers):
        raise InputError(f"there is no {name}: this machine has the cards {', '.join(there)}")
    return [there[number] for number in numbers]


def _image() -> Path | None:
    images = preflight.find_images()
    if len(images) > 1:
        names = ", ".join(path.name for path in images)
        raise InputError(f"several images fit the card ({names}): choose one with `image`")
    return images[0] if images else None


def _device(card: SmartSsd) -> str:
    """The runtime's name of a card: its PCI address. An emulated card has a number only."""
    return str(card.number) if os.environ.get("XCL_EMULATION_MODE") else card.user

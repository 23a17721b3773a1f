"""SmartSSDs: which SSD belongs to which FPGA, the image, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from kvdrive.doctor.finding import Finding, State
from kvdrive.xrt import preflight
from kvdrive.xrt.pci import SmartSsd, find_cards

_GIVES = "--target smartssd: attention on the card"


def cards() -> Iterator[Finding]:
    """One finding for a card that is ready, or one for each thing that it lacks."""
    found = find_cards()
    if not found:
        yield Finding("boards", "SmartSSD", State.missing, "no card (PCI 10ee:9134)", _GIVES, "none needed here")
    images = preflight.find_images()
    for card in found:
        yield from _card(card, [path.name for path in images], preflight.problems(card, images[0] if images else None))


def _card(card: SmartSsd, images: list[str], problems: list[preflight.Problem]) -> Iterator[Finding]:
    place = preflight.place_of(card)
    where = f" at {place.folder}" if place else ""
    ssd = f"{', '.join(card.namespaces) or 'no SSD'}{where}"
    detail = f"FPGA {card.user} with {ssd}, image {' or '.join(images) or 'none'}"
    name = f"SmartSSD {card.number}"
    ready = not any(problem.fatal for problem in problems)
    yield Finding("boards", name, State.ok if ready else State.missing, detail, _GIVES)
    for problem in problems:
        yield Finding("boards", name, State.missing, problem.sentence, _GIVES, problem.remedy)

# SPDX-License-Identifier: Apache-2.0
"""A made-up machine: files of sysfs, /dev and /proc with SmartSSDs on them, below a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MadeUpCard:
    """What is ready on it. `mount`: where a file system of its SSD is mounted; None: nowhere."""

    mount: Path | None
    driver: bool = True
    peer_to_peer: str = "1"
    ssd: bool = True
    kind: str = "ext4"
    options: str = "rw,relatime"


def make_machine(root: Path, cards: list[MadeUpCard]) -> Path:
    """Cards behind one root port, as SmartSSDs appear: a switch, below it a port with the SSD and one with the FPGA."""
    mounts = ["proc /proc proc rw 0 0"]
    port = root / "sys/devices/pci0000:d0/0000:d0:01.1"
    _function(root, port, "0x1022", "0x14ab")
    _function(root, root / "sys/devices/pci0000:d0/0000:e0:00.0", "0x144d", "0xa80a")  # an SSD of its own
    _controller(root, root / "sys/devices/pci0000:d0/0000:e0:00.0", "nvme0")
    for number, card in enumerate(cards):
        bus = 0xD5 + 4 * number
        switch = port / f"0000:{bus:02x}:00.0"
        _function(root, switch, "0x10ee", "0x9134")
        to_ssd, to_fpga = switch / f"0000:{bus + 1:02x}:00.0", switch / f"0000:{bus + 1:02x}:01.0"
        _function(root, to_ssd, "0x10ee", "0x9234")
        _function(root, to_fpga, "0x10ee", "0x9434")
        if card.ssd:
            ssd = to_ssd / f"0000:{bus + 2:02x}:00.0"
            _function(root, ssd, "0x144d", "0xa825")
            _controller(root, ssd, f"nvme{number + 4}")
        user = to_fpga / f"0000:{bus + 3:02x}:00.1"
        _function(root, to_fpga / f"0000:{bus + 3:02x}:00.0", "0x10ee", "0x6987")
        _function(root, user, "0x10ee", "0x6988")
        (user / "p2p_enable").write_text(card.peer_to_peer + "\n")
        if card.driver:
            (user / "driver").mkdir()
            (user / f"drm/renderD{128 + number}").mkdir(parents=True)
            node = root / f"dev/dri/renderD{128 + number}"
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()
        if card.mount is not None:
            mounts.append(f"/dev/nvme{number + 4}n1p1 {card.mount} {card.kind} {card.options} 0 0")
    (root / "proc").mkdir()
    (root / "proc/mounts").write_text("\n".join(mounts) + "\n")
    return root


def _function(root: Path, path: Path, vendor: str, device: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "vendor").write_text(vendor + "\n")
    (path / "device").write_text(device + "\n")
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / path.name).symlink_to(path)


def _controller(root: Path, function: Path, name: str) -> None:
    controller = function / "nvme" / name
    (controller / f"{name}n1").mkdir(parents=True)
    (controller / "device").symlink_to(function)
    classes = root / "sys/class/nvme"
    classes.mkdir(parents=True, exist_ok=True)
    (classes / name).symlink_to(controller)

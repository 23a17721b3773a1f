"""SmartSSDs on this machine: an FPGA and an NVMe device below one PCI switch, found by walking sysfs.

A SmartSSD's switch is 10ee:9134. Below it are a port with the SSD and a port with the functions of the FPGA: 10ee:6987
for management and 10ee:6988 for users. All functions take a root, so that tests can make up a machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT_VARIABLE = "KVDRIVE_SYSTEM_ROOT"  # in place of /, for tests
_SWITCH, _MANAGEMENT, _USER = ("0x10ee", "0x9134"), ("0x10ee", "0x6987"), ("0x10ee", "0x6988")
_BDF = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NAMESPACE = re.compile(r"nvme\d+(c\d+)?n\d+")


@dataclass(frozen=True)
class Mount:
    device: str  # /dev/nvme0n1p1
    folder: Path
    kind: str  # ext4, xfs, ...
    writable: bool


@dataclass(frozen=True)
class SmartSsd:
    """`user`, `management`, `switch`: PCI addresses. `namespaces`: block devices of the SSD below the same switch."""

    number: int
    switch: str
    user: str
    management: str
    namespaces: tuple[str, ...]
    mounts: tuple[Mount, ...]


def system_root() -> Path:
    return Path(os.environ.get(ROOT_VARIABLE) or "/")


def find_cards(root: Path | None = None) -> list[SmartSsd]:
    """All SmartSSDs, in the order of their switches."""
    root = root or system_root()
    cards: list[SmartSsd] = []
    for switch in _functions(root, _SWITCH):
        users = [path for path in _functions(root, _USER) if switch in path.parents]
        if not users:
            continue
        managements = [path.name for path in _functions(root, _MANAGEMENT) if switch in path.parents]
        namespaces = tuple(sorted(_namespaces(root, switch)))
        cards.append(
            SmartSsd(
                number=len(cards),
                switch=switch.name,
                user=users[0].name,
                management=managements[0] if managements else "",
                namespaces=namespaces,
                mounts=tuple(_mounts(root, namespaces)),
            )
        )
    return cards


def _functions(root: Path, identity: tuple[str, str]) -> list[Path]:
    """The PCI functions with this vendor and device, as places in the tree of devices."""
    devices = root / "sys/bus/pci/devices"
    if not devices.is_dir():
        return []
    found = [path.resolve() for path in devices.iterdir() if _BDF.fullmatch(path.name)]
    return sorted(path for path in found if (_text(path / "vendor"), _text(path / "device")) == identity)


def _namespaces(root: Path, switch: Path) -> Iterator[str]:
    controllers = root / "sys/class/nvme"
    for controller in controllers.iterdir() if controllers.is_dir() else ():
        if switch in (controller / "device").resolve().parents:
            yield from (path.name for path in controller.resolve().iterdir() if _NAMESPACE.fullmatch(path.name))


def _mounts(root: Path, namespaces: tuple[str, ...]) -> Iterator[Mount]:
    """File systems on the namespaces or their partitions, the largest path last."""
    for line in _text(root / "proc/mounts").splitlines():
        device, folder, kind, options, *_ = line.split(" ")
        name = device.removeprefix("/dev/")
        if any(re.fullmatch(rf"{space}(p\d+)?", name) for space in namespaces):
            place = Path(folder.replace("\\040", " "))
            yield Mount(device, place, kind, "rw" in options.split(","))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

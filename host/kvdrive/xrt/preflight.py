"""What a SmartSSD needs before a drive can use it: driver, permission, peer-to-peer memory, file system, image."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kvdrive.errors import TargetError
from kvdrive.tree import ROOT
from kvdrive.xrt.image import read_text
from kvdrive.xrt.pci import Mount, SmartSsd, system_root
from kvdrive.xrt.single import IMAGE_VARIABLE

PLATFORM_PREFIX = "xilinx_u2_gen3x4"
_DIRECT = ("ext4", "xfs")  # file systems whose direct reads reach memory of a card


@dataclass(frozen=True)
class Problem:
    """`remedy`: the command to run. `fatal`: the card cannot be used; otherwise it works, but slower."""

    sentence: str
    remedy: str
    fatal: bool = True


def problems(card: SmartSsd, image: Path | None, root: Path | None = None) -> list[Problem]:
    """Everything that is missing, the most basic first."""
    root = root or system_root()
    found = [*_driver(card, root), *_peer_to_peer(card, root), *_file_system(card)]
    return [*found, *_image(image)]


def place_of(card: SmartSsd) -> Mount | None:
    """The file system that keeps the drive's file."""
    return next((mount for mount in card.mounts if mount.writable), None)


def find_images() -> list[Path]:
    """The image that the environment names, or those of the tree that fit a SmartSSD."""
    named = os.environ.get(IMAGE_VARIABLE)
    if named:
        return [Path(named)]
    found = []
    for path in sorted((ROOT / "bitstreams").glob("*.xclbin")):
        try:
            fits = read_text(path).platform.startswith(PLATFORM_PREFIX)
        except TargetError:
            continue
        if fits:
            found.append(path)
    return found


def _driver(card: SmartSsd, root: Path) -> list[Problem]:
    function = root / "sys/bus/pci/devices" / card.user
    if not (function / "driver").exists():
        return [Problem(f"no driver is bound to {card.user}", "install XRT's driver (xocl), then: sudo modprobe xocl")]
    nodes = sorted((function / "drm").glob("renderD*"))
    if not nodes:
        return [Problem(f"{card.user} has no device file", "sudo xbutil reset --device " + card.user)]
    node = root / "dev/dri" / nodes[0].name
    if not os.access(node, os.R_OK | os.W_OK):
        return [Problem(f"no permission for {node}", f"sudo usermod -aG render {os.environ.get('USER', '$USER')}")]
    return []


def _peer_to_peer(card: SmartSsd, root: Path) -> list[Problem]:
    state = peer_to_peer(root / "sys/bus/pci/devices" / card.user)
    if state == "on":
        return []
    enable = f"sudo xbutil p2p --device {card.user} --enable"
    if state == "reboot":
        return [Problem("peer-to-peer memory needs a warm reboot to take effect", "sudo reboot", fatal=False)]
    return [Problem("peer-to-peer memory is off: K and V go through host memory", enable, fatal=False)]


def peer_to_peer(function: Path) -> str:
    """on, off, or reboot. The driver says it in a file of the function, whose form depends on the driver's version."""
    simple = function / "p2p_enable"
    if simple.exists():
        return {"1": "on", "2": "reboot"}.get(simple.read_text().strip(), "off")
    sizes: dict[str, int] = {}
    for path in function.glob("p2p*/config"):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if value.strip().isdigit():
                sizes[name.strip()] = int(value)
    if "bar" not in sizes:
        return "off"
    if sizes.get("rbar", 0) > sizes["bar"]:
        return "reboot"
    return "on" if sizes["bar"] == sizes.get("exp_bar", sizes["bar"]) else "off"


def _file_system(card: SmartSsd) -> list[Problem]:
    if not card.namespaces:
        return [
            Problem("no SSD is visible below the card's switch", "sudo nvme list; rescan: echo 1 > /sys/bus/pci/rescan")
        ]
    device = f"/dev/{card.namespaces[0]}"
    place = place_of(card)
    if place is None and card.mounts:
        return [
            Problem(
                f"{card.mounts[0].folder} is mounted for reading only",
                f"sudo mount -o remount,rw {card.mounts[0].folder}",
            )
        ]
    if place is None:
        make = f"sudo mkfs.ext4 {device} (it erases the SSD); sudo mount {device} /mnt/smartssd{card.number}"
        return [Problem(f"no file system of {device} is mounted", make)]
    if not os.access(place.folder, os.W_OK):
        return [Problem(f"no permission to write to {place.folder}", f"sudo chown $USER {place.folder}")]
    if place.kind not in _DIRECT:
        sentence = f"{place.folder} is {place.kind}, whose direct reads may not reach a card"
        return [Problem(sentence, f"use {' or '.join(_DIRECT)}", fatal=False)]
    return []


def _image(image: Path | None) -> list[Problem]:
    if image is None:
        return [
            Problem("no image of the kernels", f"make link KERNEL=attention_g4 PLATFORM=smartssd, or {IMAGE_VARIABLE}")
        ]
    try:
        text = read_text(image)
    except TargetError as error:
        return [Problem(str(error), "make link KERNEL=attention_g4 PLATFORM=smartssd")]
    if not text.platform.startswith(PLATFORM_PREFIX):
        sentence = f"{image} was built for {text.platform}"
        return [Problem(sentence, "make link KERNEL=attention_g4 PLATFORM=smartssd")]
    return []

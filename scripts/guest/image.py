"""Kernel, emulator and root file system of the guest, made once and kept in a folder."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from guest import cpio
from guest.packages import Apt, PackagesUnavailableError, run, unpack

HERE = Path(__file__).resolve().parent
# The drivers, and checksum modules that the kernel requests by name.
MODULES = [
    "virtio_pci", "virtio_net", "crc32c_generic", "crct10dif_generic", "crc64_rocksoft_generic",
    "nvme-tcp", "9pnet_virtio", "9p",
]  # fmt: skip
LATER = ["nvme"]  # loaded by tests that ask for it: NVMe drives on PCI
MODULE_FOLDERS = ["net/core", "drivers/net", "drivers/virtio", "crypto", "lib", "block", "drivers/nvme"]
MODULE_FOLDERS += ["net/9p", "fs"]  # this machine's files in the guest
APPLETS = [
    "sh", "mount", "insmod", "ip", "cat", "ls", "dd", "sleep", "poweroff", "echo", "cmp", "head",
    "tail", "grep", "cut", "sed", "tr", "timeout", "dmesg", "base64", "wc", "test", "true", "chroot",
]  # fmt: skip


class GuestUnavailableError(Exception):
    """No guest can run on this machine. The message is one sentence with the reason."""


@dataclass(frozen=True)
class Image:
    emulator: Path
    kernel: Path
    archive: bytes  # root file system, without a script
    firmware: tuple[Path, ...]  # folders of firmware
    environment: dict[str, str]  # environment variables of the emulator


def prepare(folder: Path) -> Image:
    """The image in `folder`. The first call fetches 90 MB of packages. Raises GuestUnavailableError if that fails."""
    folder = folder.resolve()  # apt takes relative paths for parts of its own
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            complete = folder / "complete"
            if not complete.exists() or complete.read_text() != recipe():
                fetch(folder)
                complete.write_text(recipe())
            return load(folder)
        except (PackagesUnavailableError, subprocess.TimeoutExpired, OSError) as error:
            raise GuestUnavailableError(f"no Linux guest: {error}") from error


def recipe() -> str:
    """A hash of everything that decides what is in the image, but for the packages' versions."""
    return hashlib.sha256(
        b"".join((HERE / name).read_bytes() for name in ("image.py", "cpio.py", "init.sh"))
    ).hexdigest()


def fetch(folder: Path) -> None:
    if os.uname().machine != "x86_64":
        raise PackagesUnavailableError("the guest needs an x86-64 machine")
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    print("guest: fetching QEMU, a kernel and nvme-cli (90 MB, once)", flush=True)
    apt = Apt(folder / "packages")
    try:
        kernel = fetch_packages(apt)
    except PackagesUnavailableError:
        apt.update()
        kernel = fetch_packages(apt)
    for package in sorted(apt.cache.glob("*.deb")):
        if package != kernel:
            unpack(package, root)
    unpack(kernel, root, "./boot/vmlinuz-*", *[f"./lib/modules/*/kernel/{place}/*" for place in MODULE_FOLDERS])
    archive = cpio.archive(base_files(root))
    (folder / "base.cpio.gz").write_bytes(gzip.compress(archive, compresslevel=1, mtime=0))


def fetch_packages(apt: Apt) -> Path:
    wanted = ["nvme-cli", "busybox-static"]
    if shutil.which("qemu-system-x86_64") is None:
        wanted.append("qemu-system-x86")
    for old in apt.cache.glob("*.deb"):
        old.unlink()
    for name in wanted:
        if installed(name):  # apt fetches only what is missing
            apt.fetch_alone(name)
    apt.fetch(*wanted)
    return apt.fetch_alone(apt.kernel())


def installed(name: str) -> bool:
    done = subprocess.run(["dpkg-query", "-W", "-f=${Status}", name], capture_output=True, text=True, check=False)
    return "install ok installed" in done.stdout


def load(folder: Path) -> Image:
    root = folder / "root"
    emulator = shutil.which("qemu-system-x86_64") or root / "usr/bin/qemu-system-x86_64"
    kernel = next((root / "boot").glob("vmlinuz-*"))
    firmware = [root / "usr/share/qemu", root / "usr/share/seabios", root / "usr/lib/ipxe/qemu"]
    firmware.append(Path("/usr/share/qemu"))
    present = tuple(place for place in firmware if place.is_dir())
    unpacked = Path(emulator).is_relative_to(root)
    modules = {"QEMU_MODULE_DIR": str(root / "usr/lib/x86_64-linux-gnu/qemu")}
    environment = {"LD_LIBRARY_PATH": libraries(root), **modules} if unpacked else {}
    return Image(Path(emulator), kernel, (folder / "base.cpio.gz").read_bytes(), present, environment)


def libraries(root: Path) -> str:
    return ":".join(str(root / place) for place in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"))


def base_files(root: Path) -> dict[str, tuple[bytes, bool]]:
    """All files except the test's script: init, tools with their libraries, modules in load order."""
    busybox = next(root.glob("**/bin/busybox")).read_bytes()
    files = {"bin/busybox": (busybox, True), "init": ((HERE / "init.sh").read_bytes(), True)}
    # A copy of busybox for every applet would cost 1 MB each; a script costs a line.
    for applet in APPLETS:
        files[f"bin/{applet}"] = (f'#!/bin/busybox sh\nexec /bin/busybox {applet} "$@"\n'.encode(), True)
    files["bin/sh"] = (busybox, True)
    nvme = next(root.glob("**/sbin/nvme"))
    files["bin/nvme"] = (nvme.read_bytes(), True)
    for target, source in shared_objects(nvme, libraries(root)).items():
        files[target] = (source.read_bytes(), True)
    order = load_order(root, MODULES)
    for module in [*order, *(found for found in load_order(root, LATER) if found not in order)]:
        files[f"modules/{module.name}"] = (module.read_bytes(), False)
    files["modules/order"] = ("".join(f"{module.stem}\n" for module in order).encode(), False)
    for folder in ("proc", "sys", "dev", "tmp", "etc/nvme"):
        files[f"{folder}/.keep"] = (b"", False)
    return files


def shared_objects(program: Path, extra: str) -> dict[str, Path]:
    """path in the guest -> file, of a program's libraries and loader."""
    text = run("env", f"LD_LIBRARY_PATH={extra}", "ldd", str(program))
    objects = {}
    for line in text.splitlines():
        if found := re.search(r"=> (/\S+)", line):
            source = Path(found[1])
            objects[f"lib/x86_64-linux-gnu/{source.name}"] = source
        elif found := re.search(r"(/\S*ld-linux\S*)", line):
            objects[f"lib64/{Path(found[1]).name}"] = Path(found[1])
        elif "not found" in line:
            raise PackagesUnavailableError(f"nvme-cli lacks a library:{line}")
    return objects


def load_order(root: Path, names: list[str]) -> list[Path]:
    """The modules and their dependencies, dependencies first."""
    known = {path.stem.replace("-", "_"): path for path in root.glob("lib/modules/*/kernel/**/*.ko")}
    order: list[Path] = []

    def add(name: str, needed: bool) -> None:
        path = known.get(name.replace("-", "_"))
        if path is None:
            if needed:
                raise PackagesUnavailableError(f"the kernel's package has no module {name}")
            return
        if path in order:
            return
        depends = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for other in depends[1].decode().split(",") if depends and depends[1] else []:
            add(other, True)
        order.append(path)

    for name in names:
        add(name, name in ("virtio_net", "nvme-tcp", *LATER))  # the others may be built into the kernel
    return order

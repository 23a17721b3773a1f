"""Boots the guest with a script and follows its console."""

from __future__ import annotations

import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from guest import cpio
from guest.image import Image

MARK = "@@ "
LONGEST_S = 3600.0  # only a guest that hangs takes so long, on a busy machine too
# QEMU's own NVMe drive, with a namespace of zeros.
FOREIGN_DRIVE = [
    "-blockdev",
    "null-co,node-name=other,size=1048576,read-zeroes=on",
    "-device",
    "nvme,serial=other,drive=other",
]


class Guest:
    """The lines that the script prints, in order. `asked` is called for requests of the script.

    `devices`: more arguments of QEMU. `files` and `more` (contents, executable) are there beside the image's own. With
    `shared`, the guest can mount this machine's files, for reading only: `mount -t 9p -o trans=virtio machine FOLDER`.
    """

    def __init__(
        self,
        image: Image,
        script: str,
        files: Mapping[str, bytes],
        port: int,
        asked: Callable[[str], None] = lambda _: None,
        module_options: str = "",
        more: Mapping[str, tuple[bytes, bool]] | None = None,
        memory_mib: int = 512,
        shared: bool = False,
        devices: Sequence[str] = (),
    ) -> None:
        self.image = image
        self.memory_mib, self.shared, self.devices = memory_mib, shared, devices
        self.asked = asked
        self.console: list[str] = []
        contents = {path: (data, False) for path, data in files.items()}
        contents["test.sh"] = (script.encode(), False)
        contents["etc/modules.options"] = (module_options.encode(), False)
        self.folder = tempfile.TemporaryDirectory(prefix="kvdrive-guest-")
        archive = Path(self.folder.name) / "root.cpio"
        contents.update(more or {})
        archive.write_bytes(image.archive + bytes(-len(image.archive) % 4) + cpio.archive(contents))
        self.command = self.build_command(archive, port)

    def build_command(self, archive: Path, port: int) -> list[str]:
        command = [str(self.image.emulator), "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]
        for place in self.image.firmware:
            command += ["-L", str(place)]
        # Always emulated, never KVM: few containers have KVM, and in some of them it does not work.
        command += ["-accel", "tcg,thread=multi", "-cpu", "max"]
        command += ["-machine", "q35", "-m", str(self.memory_mib), "-smp", "2", "-kernel", str(self.image.kernel)]
        command += ["-initrd", str(archive), "-netdev", "user,id=net,ipv6=off"]
        command += ["-device", "virtio-net-pci,netdev=net,romfile="]
        if self.shared:
            command += ["-fsdev", "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap"]
            command += ["-device", "virtio-9p-pci,fsdev=files,mount_tag=machine"]
        command += [*self.devices, "-append"]
        return [*command, f"console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable nvme_port={port}"]

    def run(self, timeout_s: float = LONGEST_S) -> list[str]:
        """Run the script, return its lines. TimeoutError or RuntimeError with the console if it does not end."""
        process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env={**os.environ, **self.image.environment},
        )  # fmt: skip
        try:
            return self.follow(process, time.monotonic() + timeout_s)
        finally:
            process.kill()
            process.communicate()
            self.folder.cleanup()

    def follow(self, process: subprocess.Popen[str], deadline: float) -> list[str]:
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        said: list[str] = []
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(self.report("the guest did not end in time")) from None
            if line is None:
                raise RuntimeError(self.report("the guest stopped before its script ended"))
            self.console.append(line.rstrip())
            if MARK not in line:
                continue
            words = line[line.index(MARK) + len(MARK) :].strip()
            if words == "end":
                return said
            if words.startswith("ask "):
                self.asked(words.removeprefix("ask "))
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            said.append(words)

    def report(self, what: str) -> str:
        return what + "; its console:\n" + "\n".join(self.console[-60:])

"""The disk behind a drive's file: free space, direct I/O, io_uring, real NVMe devices."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kvdrive import private
from kvdrive.doctor.finding import Finding, State
from kvdrive.targets.linux import ring_problem

_BLOCK = 4096
_MOST_NAMED = 20
_IO_URING_SETUP = 425  # system call, the same number on every architecture
_PARAMETERS_BYTES = 120  # struct io_uring_params


def storage(folder: Path) -> Iterator[Finding]:
    """The disk that holds `folder`, where drives without a folder of their own keep their files."""
    private.make_folder(folder)
    free = shutil.disk_usage(folder).free / 2**30
    state = State.ok if free > 4 else State.missing
    gives, remedy = "files of drives", "free some space or use --drive on another disk"
    yield Finding("storage", "space", state, f"{free:.0f} GiB free at {folder}", gives, remedy)
    failure = direct_io(folder)
    state, detail = (State.missing, failure) if failure else (State.ok, f"works at {folder}")
    yield Finding("storage", "direct I/O", state, detail, "reads past the page cache", "use --drive on ext4 or xfs")
    failure = io_uring()
    state, detail = (State.missing, failure) if failure else (State.ok, "works")
    remedy = "a kernel from 5.6 on, and a container that lets io_uring_setup through"
    yield Finding("storage", "io_uring", state, detail, "many reads in flight", remedy)
    failure = ring_problem()
    state, detail = (State.missing, f"one command at a time: {failure}") if failure else (State.ok, "io_uring")
    remedy = "a kernel from 5.19 on, and a container that lets io_uring_setup through"
    yield Finding("storage", "NVMe passthrough", state, detail, "many commands in flight to nvme:/dev/ngXnY", remedy)
    found = sorted(path.name for path in Path("/dev").glob("nvme*n*"))
    state, detail = (State.ok, ", ".join(found)) if found else (State.missing, "no device")
    yield Finding("storage", "NVMe devices", state, detail, "targets other than the emulator", "none needed here")


def rights(places: list[Path]) -> Iterator[Finding]:
    """Whether others than their owner can use the files in these folders, or these files and what derives of them."""
    found = [sentence for place in places for sentence in private.open_to_others(_files(place))]
    if not found:
        yield Finding("storage", "rights of files", State.ok, "drives, sessions and weights are their owner's alone")
    gives = "that nobody else reads conversations and weights"
    for sentence in found[:_MOST_NAMED]:
        detail, _, remedy = sentence.partition(": ")
        yield Finding("storage", "rights of files", State.missing, detail, gives, remedy)
    if more := found[_MOST_NAMED:]:
        yield Finding("storage", "rights of files", State.missing, f"so can {len(more)} more files", gives, "as above")


def _files(place: Path) -> list[Path]:
    """A folder and what is in it, if others can look into it; or a file and those beside it with its name."""
    if place.is_dir():
        return [place, *private.below(place)] if private.too_open(place) else []
    return private.with_derived(place)


def direct_io(folder: Path) -> str | None:
    """Write and read a block of a new file with O_DIRECT. Returns the reason when that fails."""
    if not hasattr(os, "O_DIRECT"):
        return "this system has no O_DIRECT"
    with tempfile.TemporaryDirectory(dir=folder) as place, mmap.mmap(-1, _BLOCK) as block:
        block[:] = bytes(range(256)) * (_BLOCK // 256)
        try:
            file = private.open_descriptor(Path(place) / "direct", os.O_RDWR | os.O_DIRECT)
            try:
                os.pwritev(file, [block], 0)
                with mmap.mmap(-1, _BLOCK) as again:
                    os.preadv(file, [again], 0)
                    return None if again[:] == block[:] else "a block came back changed"
            finally:
                os.close(file)
        except OSError as error:
            return f"{error.strerror}"


def io_uring() -> str | None:
    """Set up a ring and close it. Returns the reason when that fails."""
    library = ctypes.CDLL(None, use_errno=True)
    ring = library.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(_PARAMETERS_BYTES))
    if ring < 0:
        number = ctypes.get_errno()
        return "the kernel has none" if number == errno.ENOSYS else f"refused: {os.strerror(number)}"
    os.close(ring)
    return None

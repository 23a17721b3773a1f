"""Measured rates of attention for `kvdrive doctor --report`: the vectorised engine and each SmartSSD that is ready."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from kvdrive import abi, private
from kvdrive._native import Drive
from kvdrive.errors import KvdriveError
from kvdrive.kernels.native import scale_bits
from kvdrive.nvme import commands
from kvdrive.nvme.completions import decode
from kvdrive.private import cache_folder
from kvdrive.targets.smartssd import plan
from kvdrive.targets.temporary import temporary_folder
from kvdrive.xrt.image import read_text
from kvdrive.xrt.pci import find_cards

_HEADS, _TOKENS, _DIM, _REPEATS = 4, 16_384, 128, 5


def rates() -> list[dict[str, object]]:
    """One entry for each engine: its name, bytes of K and V a command, seconds of the fastest of 5, or the problem."""
    found = []
    with temporary_folder(cache_folder()) as folder:
        found.append(_measured("fast", "fast", folder, 4))
    for card in find_cards():
        name = f"smartssd:{card.number}"
        try:
            (drive,) = plan(name)
            kernels = read_text(Path(drive.engine.partition(",")[2])).kernels
            group = int(next(kernel for kernel in kernels if kernel.startswith("attention")).rpartition("g")[2])
            private.make_folder(drive.folder)
            with temporary_folder(drive.folder) as folder:
                found.append(_measured(name, drive.engine, folder, group))
        except (KvdriveError, StopIteration, OSError, RuntimeError) as error:
            found.append({"engine": name, "problem": str(error)})
    return found


def _measured(name: str, engine: str, folder: Path, group: int) -> dict[str, object]:
    """Exact attention of `group` query heads per KV head over random K and V."""
    drive = Drive(folder / "rates.kv", engine, 1, 1 << 28, preset="plain", cache_bytes=0)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((_HEADS, _TOKENS, _DIM)).astype(np.float16)
    for number, kind in enumerate(abi.KvKind):
        _execute(drive, commands.kv_append(1, 0, 0, kind, 0, number, rows))
    _execute(drive, commands.flush())
    q = rng.standard_normal((_HEADS, group, _DIM)).astype(np.float16)
    seconds = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        ticket = _execute(drive, commands.attn_submit(1, 0, 0, q, _TOKENS, scale_bits(None, _DIM)))
        _execute(drive, commands.attn_fetch(ticket, _HEADS, group, _DIM))
        seconds.append(time.perf_counter() - begin)
    return {
        "engine": name,
        "query_heads": group,
        "bytes": 2 * rows.nbytes,
        "seconds": min(seconds),
        "notices": drive.engine_notices(),
    }


def _execute(drive: Drive, command: commands.Command) -> int:
    """Returns the command's result. Raises CommandError."""
    return decode(*drive.submit(command.entry, command.data)).check(command.opcode).result

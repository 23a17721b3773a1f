"""The check of a GPU as the host. `make pages` shows its file of results in docs/guide/gpu.md."""

from __future__ import annotations

from pathlib import Path

import torch

from bench.results import FOLDER
from bench.setup import Setup
from bench.table import Block
from gpu.check import check
from gpu.run import LARGE, SMALL, Run
from kvdrive.errors import InputError
from kvdrive.generation import checkpoints


def run(setup: Setup) -> list[Block]:
    """On the GPU, or quick as a dry run on the processor. Raises InputError naming the parts that failed."""
    if not setup.quick and not torch.cuda.is_available():
        raise InputError("torch finds no GPU here: QUICK=1 is a dry run on the processor")
    checkpoints.quiet()
    with setup.folder() as folder:
        out = setup.size(FOLDER / "gpu/here.json", folder / "check.json")
        one = Run(torch.device(setup.size("cuda", "cpu")), setup.size(LARGE, SMALL), Path(out), 360)
        check(one)
    if failed := one.failed():
        raise InputError(f"{', '.join(failed)} failed: {out}")
    return []

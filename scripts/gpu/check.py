"""Checks kvdrive with a GPU as the host: tokens, times and traffic, as one JSON file.

With `--device cpu` the same code runs on small models in a few seconds, so that a machine without a GPU can test it.
Every part has its own time, and its error goes to the file; exit code 1 says that a part failed.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu import models, parts
from gpu.run import LARGE, SMALL, Run
from kvdrive.generation import checkpoints

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check(run: Run) -> None:
    """All parts. What takes longest comes last: its results are written even if the time is over before its end."""
    run.part("machine", partial(parts.machine, run), 20)
    run.part("link", partial(parts.link, run), 30)
    for name in (models.SHIPPED, *models.FAMILIES):
        for precision, dtype in PRECISIONS.items():
            run.part(f"tokens/{name}/{precision}", partial(parts.tokens, run, name, dtype), 25)
    run.part("first_token", partial(parts.first_token, run), 90)
    run.part("decode", partial(parts.decode, run), 120)
    run.part("kvikio", partial(parts.kvikio, run), 30)
    run.part("vllm", partial(parts.vllm, run), 10)


def main() -> int:
    """Run the check. Exit code 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="as torch names it")
    parser.add_argument("--out", type=Path, default=Path("out/gpu/check.json"), help="the file of the results")
    parser.add_argument("--seconds", type=float, default=360, help="no part begins after so long")
    given = parser.parse_args()
    checkpoints.quiet()
    device = torch.device(given.device)
    run = Run(device, SMALL if device.type == "cpu" else LARGE, given.out, given.seconds)
    check(run)
    failed = run.failed()
    print(f"{given.out}: {', '.join(failed) + ' failed' if failed else 'every part ended'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

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

from gpu import models, parts, paths
from gpu.run import LARGE, SMALL, Run
from kvdrive.generation import checkpoints

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check(run: Run) -> None:
    """All parts. Those with one short answer come first; a part that begins too late says so and leaves the others."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in parts.contenders
    run.part("machine", partial(parts.machine, run), 10)
    run.part("link", partial(parts.link, run), 15)
    run.part("identity", partial(paths.identity, run), 15)
    run.part("direct", partial(paths.direct, run), 15)
    run.part("codes", partial(paths.codes, run), 15)
    run.part("blocks", partial(paths.blocks, run), 15)
    run.part("load", partial(paths.load, run), 25)
    run.part("inputs", partial(paths.inputs, run), 30)
    run.part("mini_batches", partial(paths.mini_batches, run), 25)
    run.part("first_token", partial(parts.first_token, run), 60)
    run.part("decode", partial(parts.decode, run), 110)
    run.part("expected", partial(paths.expected, run), 30)
    for name in (models.SHIPPED, *models.FAMILIES):
        for precision, dtype in PRECISIONS.items():
            run.part(f"tokens/{name}/{precision}", partial(parts.tokens, run, name, dtype), 22)
    run.part("vllm", partial(paths.vllm, run), 120)


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

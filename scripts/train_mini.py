"""Train models/mini: a small Llama on the Python standard library and on recall tasks, for a given time.

    python scripts/train_mini.py --minutes 98

Sequences grow from 512 to 8192 tokens with the share of the time that is over. Stopped or killed, the same command goes
on from the last checkpoint in `--work`. The ReLU variant starts from the finished model:

    python scripts/train_mini.py --activation relu --start models/mini --minutes 20 \\
        --out models/mini_relu --work out/train_relu
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import transformers

from mini.trainer import Trainer


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=98.0, help="training time, all calls together")
    parser.add_argument("--out", type=Path, default=Path("models/mini"))
    parser.add_argument("--work", type=Path, default=Path("out/train_mini"), help="checkpoint and tokenizer")
    parser.add_argument("--activation", default="silu", choices=["silu", "relu"], help="of the feed-forward part")
    parser.add_argument("--start", type=Path, help="checkpoint folder to start from instead of random weights")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch chooses")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.utils.logging.disable_progress_bar()
    Trainer(options.minutes, options.out, options.work, options.activation, options.start).run()


if __name__ == "__main__":
    main()

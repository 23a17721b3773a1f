"""What a scale for numbers in e4m3 would gain: KL to binary16 of the tokens after a prompt whose K and V were rounded.

K and V of the first tokens of a page of docs/ are rounded, then the following tokens are rated, all in one call. Prints
a table for one model: int8 and fp8 as drives store them, and e4m3 with a power of two for each head, channel, token, or
token and 32 channels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from transformers import DynamicCache

from kvdrive.generation import checkpoints
from kvdrive.kvcache import formats
from kvdrive.nvme.rows import largest_number, rounded
from kvdrive.nvme.wire import RowFormat
from kvdrive.tree import ROOT

Rounding = Callable[[torch.Tensor], torch.Tensor]  # [batch, heads, tokens, d] of numbers that binary16 holds

PAGES = ("design/arithmetic.md", "design/runtime.md", "results/quality.md")


def stored(name: str, x: torch.Tensor) -> torch.Tensor:
    """As a drive stores them."""
    return torch.from_numpy(rounded(x.half().numpy(), formats.named(name))).float()


def scaled(shared: tuple[int, ...], part: int, x: torch.Tensor) -> torch.Tensor:
    """e4m3 with a power of two for all numbers along the axes `shared` of [batch, heads, tokens, d / part, part]."""
    parts = x.unflatten(3, (-1, part or x.shape[3]))
    largest = parts.abs().amax(shared, keepdim=True).clamp_min(2.0**-24)
    scale = torch.exp2(torch.ceil(torch.log2(largest / largest_number(RowFormat.FP8))))
    return ((parts / scale).to(torch.float8_e4m3fn).float() * scale).flatten(3)


WAYS: dict[str, Rounding] = {
    "int8": partial(stored, "int8"),
    "fp8": partial(stored, "fp8"),
    "e4m3, a scale for each head": partial(scaled, (2, 3, 4), 0),
    "e4m3, a scale for each channel": partial(scaled, (2,), 0),
    "e4m3, a scale for each token": partial(scaled, (3, 4), 0),
    "e4m3, a scale for each token and 32 channels": partial(scaled, (4,), 32),
}


def divergences(model: torch.nn.Module, ids: torch.Tensor, first: int) -> list[float]:
    """KL of the tokens from `first` on, in nats, for each way."""
    cache = DynamicCache()
    model(ids[:, :first], past_key_values=cache)
    kv = [(layer.keys.half().float(), layer.values.half().float()) for layer in cache.layers]

    def rate(way: Rounding) -> torch.Tensor:
        changed = DynamicCache()
        for number, (k, v) in enumerate(kv):
            changed.update(way(k), way(v), number)
        return model(ids[:, first:], past_key_values=changed).logits.log_softmax(-1)

    want = rate(lambda x: x)
    return [float((want.exp() * (want - rate(way))).sum(-1).mean()) for way in WAYS.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="models/mini")
    parser.add_argument("--first", type=int, default=768, help="tokens whose K and V are rounded")
    parser.add_argument("--rated", type=int, default=127)
    parser.add_argument("--pages", type=int, default=len(PAGES))
    asked = parser.parse_args()
    loaded = checkpoints.load(asked.model, "float32")
    found = []
    for page in PAGES[: asked.pages]:
        ids = loaded.tokenizer((ROOT / "docs" / page).read_text(), return_tensors="pt").input_ids
        with torch.no_grad():
            found.append(divergences(loaded.model, ids[:, : asked.first + asked.rated], asked.first))
    print("| K and V | KL |\n|---|---:|")
    for name, values in zip(WAYS, zip(*found, strict=True), strict=True):
        print(f"| {name} | {sum(values) / len(values):.5f} |")


if __name__ == "__main__":
    main()

"""Device time of policy groups beside exact attention: decode steps of emulated drives, with the index in two places.

The times are modelled and counted, so one step is enough and other work on the machine does not change them. K, V and
queries are those of bench_groups.py; of a model, a few layers that are far apart.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from attention_states import Shape
from bench_groups import PAGE, Data, data_of_a_model, made_up_data, step, store
from kvdrive.policies import make_policy
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.opening import drive_folder
from page_blocks import write_blocks

PRESETS = ("970pro", "smartssd", "instcsd", "daisyplus")
INDEX_IN_MEMORY = 1 << 30  # bytes: enough for all of it


def contenders(shape: Shape, ratios: Sequence[Fraction], units: Sequence[int]) -> dict[str, Parameters]:
    """Exact attention and groups, by ratio and unit."""
    found = {"exact": EVERYTHING}
    for ratio in ratios:
        for unit in units:
            how = make_policy("groups", ratio, unit=unit).parameters(shape.tokens, shape.head_dim)
            found[f"groups {ratio}, unit {unit}"] = how
    return found


def some_layers(data: Data, count: int) -> Data:
    """`count` layers at even distances."""
    layers = [i * data.shape.layers // count for i in range(count)]
    k, v = ([rows[layer] for layer in layers] for rows in (data.k, data.v))
    return replace(data, shape=replace(data.shape, layers=count), k=k, v=v, q=data.q[:, layers])


def made_up_like(data: Data) -> Data:
    """One made-up layer of the shape of a model's."""
    made_up = made_up_data(replace(data.shape, layers=1), 2)
    return replace(made_up, name=f"{made_up.name}, {data.shape.kv_heads} heads of d = {data.shape.head_dim}")


def times(path: Path, preset: str, data: Data, wanted: dict[str, Parameters], index_bytes: int) -> dict[str, int]:
    """Modelled nanoseconds of a step by contender.

    Two steps before let the drive's writes end, and bring the index to memory if it may stay there.
    """
    found, capacity = {}, 2 * data.shape.kv_bytes + (1 << 28)
    with Emulator(path, "fast", os.cpu_count() or 1, capacity, preset=preset, index_bytes=index_bytes) as drive:
        number = store(drive, data)
        for how in (EVERYTHING, [*wanted.values()][-1]):
            step(drive, number, data, 0, how)
        for name, how in wanted.items():
            before = drive.device_ns()
            step(drive, number, data, 1, how)
            found[name] = drive.device_ns() - before
    path.unlink()
    return found


def rows(folder: Path, data: Data, ratios: Sequence[Fraction], units: Sequence[int]) -> list[str]:
    """The table's rows of one kind of data, as Markdown."""
    wanted, lines = contenders(data.shape, ratios, units), []
    for place, index_bytes in (("flash", 0), ("memory", INDEX_IN_MEMORY)):
        by_preset = [times(folder / f"{preset}.kv", preset, data, wanted, index_bytes) for preset in PRESETS]
        for name in wanted:
            if name == "exact" and index_bytes:
                continue
            cells = [f"{found['exact'] / found[name]:.2f}" for found in by_preset]
            if name == "exact":
                cells = [f"{found[name] / 1e6 / data.shape.layers:.3g} ms" for found in by_preset]
            where = "" if name == "exact" else place
            lines.append(f"| {data.name} | {data.shape.tokens:,} | {name} | {where} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Count, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--ratios", type=Fraction, nargs="+", default=[Fraction(1, 8), Fraction(1, 16)])
    parser.add_argument("--units", type=int, nargs="+", default=[32, 64, 128], help="tokens that are chosen together")
    parser.add_argument("--layers", type=int, default=3, help="layers of the model that are counted")
    parser.add_argument("--model", default="smollm2", help="whose K and V are counted as well; none: no model's")
    parser.add_argument("--write", action="store_true", help="write the table to docs/groups.md")
    args = parser.parse_args()
    columns = ("K and V", "tokens", "contender", "index", *PRESETS)
    lines = ["| " + " | ".join(columns) + " |", "|---|---:|---|---|" + "---:|" * len(PRESETS)]
    with drive_folder(None) as folder, tempfile.TemporaryDirectory(dir=folder) as place:
        lines += rows(Path(place), made_up_data(Shape(layers=1, tokens=args.tokens), 2), args.ratios, args.units)
        print("\n".join(lines), flush=True)
        if args.model != "none":
            data = some_layers(data_of_a_model(args.model, args.tokens, 2), args.layers)
            lines += rows(Path(place), data, args.ratios, args.units)
            lines += rows(Path(place), made_up_like(data), args.ratios, args.units[:1])
            print("\n".join(lines))
    if args.write:
        note = "Exact: modelled time of a layer. Others: how many times as fast as exact."
        write_blocks(PAGE, {"device": "\n".join(lines) + f"\n\n{note}"})


if __name__ == "__main__":
    main()

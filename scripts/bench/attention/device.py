"""Device time of policy groups beside exact attention: decode steps of emulated drives, with the index in two places.

The times are modelled and counted, so one step is enough and other work on the machine does not change them. K, V and
queries are those of groups.py; of a model, a few layers that are far apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.attention.groups import EXACT, Data, choices, data_of_a_model, made_up_data, step, store
from bench.attention.states import Shape
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.emulator import Emulator

PRESETS = ("970pro", "smartssd", "instcsd", "daisyplus")
INDEX_IN_MEMORY = 1 << 30  # bytes: enough for all of it
LAYERS = 3  # of a model


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


def rows(folder: Path, data: Data) -> Iterator[list[str]]:
    """The table's rows of one kind of data."""
    wanted = dict(choices(data.shape))
    for place, index_bytes in (("flash", 0), ("memory", INDEX_IN_MEMORY)):
        by_preset = [times(folder / f"{preset}.kv", preset, data, wanted, index_bytes) for preset in PRESETS]
        for name in wanted:
            if name != EXACT:
                cells = [f"{found[EXACT] / found[name]:.2f}" for found in by_preset]
            elif index_bytes:
                continue
            else:
                cells = [f"{found[EXACT] / 1e6 / data.shape.layers:.3g} ms" for found in by_preset]
            yield [data.name, f"{data.shape.tokens:,}", name, "" if name == EXACT else place, *cells]


def run(setup: Setup) -> list[Block]:
    """A column for each preset."""
    tokens, model = setup.size((65536, "smollm2"), (512, "mini"))
    found: list[list[str]] = []
    with setup.folder() as folder:
        data = some_layers(data_of_a_model(model, tokens, 2), LAYERS)
        for one in (made_up_data(Shape(layers=1, tokens=tokens), 2), data, made_up_like(data)):
            found += rows(folder, one)
            setup.say(one.name)
    head = ["K and V", "tokens", "contender", "index", *PRESETS]
    note = "Exact: modelled time of a layer. Others: how many times as fast as exact."
    return [Block("groups-device", [Table(head, found, note, align="lrll" + "r" * len(PRESETS))])]

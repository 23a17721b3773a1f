# SPDX-License-Identifier: Apache-2.0
"""The contents of sessions and values as plain arrays, the reference for histories of commands."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np
from random_halves import halves
from stored_values import KEYS, put, read_value, stored_keys

from kvdrive import abi
from kvdrive.nvme import values, wire
from kvdrive.nvme.rows import encoded, tokens_per_group
from kvdrive.nvme.wire import RowFormat

LAYERS, HEADS, D = 2, 2, 64
MOST_TOKENS = 1600
KEPT = abi.AppendOption.APPEND_SPARSE | abi.AppendOption.APPEND_GROUPS  # what each head keeps beside its rows
# Formats of sessions for `Model`: the drive holds several at a time.
MIXED = ({2: RowFormat.FP8, 3: RowFormat.INT8}, {2: RowFormat.INT4, 3: RowFormat.FP8})
assert {kind for formats in MIXED for kind in formats.values()} == set(RowFormat) - {RowFormat.BINARY16}


@dataclass
class Model:
    """`rows[session][layer, kind]`: float16 [heads, tokens, D], or uint8 [heads, tokens, row_bytes] of a session with
    another format. `values[key]`: bytes."""

    rows: dict[int, dict[tuple[int, int], np.ndarray]] = field(default_factory=dict)
    values: dict[bytes, bytes] = field(default_factory=dict)
    formats: dict[int, RowFormat] = field(default_factory=dict)

    def format(self, session):
        return self.formats.get(session, RowFormat.BINARY16)

    def group(self, session):
        """Tokens of a page."""
        return tokens_per_group(self.format(session), D)

    def random_rows(self, rng, session, tokens):
        """Rows as they are appended to this session."""
        rows, kind = halves(rng, HEADS, tokens, D), self.format(session)
        return rows if kind == RowFormat.BINARY16 else encoded(rows, kind)

    def append(self, session, layer, kind, rows):
        heads = self.rows.setdefault(session, {})
        old = heads.get((layer, kind), rows[:, :0])
        heads[layer, kind] = np.concatenate([old, rows], axis=1)

    def tokens(self, session, layer, kind):
        heads = self.rows.get(session, {})
        return heads[layer, kind].shape[1] if (layer, kind) in heads else 0

    def trim(self, session, tokens):
        if tokens == 0:
            self.rows.pop(session, None)
        for key, rows in self.rows.get(session, {}).items():
            self.rows[session][key] = rows[:, :tokens]

    def remove(self, session, tokens):
        group = self.group(session)
        for key, rows in self.rows[session].items():
            self.rows[session][key] = np.concatenate([rows[:, :group], rows[:, group + tokens :]], axis=1)

    def fork(self, session, target, tokens):
        self.rows[target] = {key: rows[:, :tokens] for key, rows in self.rows[session].items()}
        self.formats[target] = self.format(session)

    def put(self, key, value, options):
        self.values[key] = value

    def delete(self, key):
        self.values.pop(key, None)

    def clone(self):
        rows = {session: copy.copy(heads) for session, heads in self.rows.items()}
        return Model(rows, dict(self.values), dict(self.formats))

    def equals(self, drive):
        """True if the drive holds exactly these sessions, rows and values."""
        if drive.sessions() != sorted(self.rows) or stored_keys(drive) != sorted(self.values):
            return False
        if any(read_value(drive, key) != value for key, value in self.values.items()):
            return False
        for session, heads in self.rows.items():
            for layer in range(LAYERS):
                for kind in abi.KvKind:
                    for head in range(HEADS):
                        want = heads[layer, kind][head] if (layer, kind) in heads else np.zeros(0, np.float16)
                        got = drive.rows(session, layer, head, kind)
                        if got.tobytes() != want.tobytes():
                            return False
        return True


def random_step(rng, model):
    """A step that can succeed: (name, arguments)."""
    session = int(rng.integers(1, 4))
    layer, which = int(rng.integers(LAYERS)), int(rng.integers(2))
    kind = rng.choice(
        ["append"] * 12 + ["trim", "trim", "end", "fork", "flush", "remove", "remove"] + ["put"] * 3 + ["delete"]
    )
    if kind in ("put", "delete"):
        key = KEYS[int(rng.integers(len(KEYS)))]
        value = rng.bytes(int(rng.choice([0, 10, 4096, 4097, 30_000])))
        fua = wire.StoreOption.STORE_FUA if rng.random() < 0.3 else 0
        return ("put", (key, value, fua)) if kind == "put" else ("delete", (key,))
    if kind not in ("append", "flush") and session not in model.rows:
        kind = "append"
    if kind == "append" and model.tokens(session, layer, which) > MOST_TOKENS // 2:
        kind = "trim"
    if kind == "append":
        rows = model.random_rows(rng, session, int(rng.choice([1, 7, 32, 150, MOST_TOKENS // 2])))
        return "append", (session, layer, which, rows, bool(rng.random() < 0.5))
    if kind == "trim":
        return "trim", (session, int(rng.integers(1, 400)))
    if kind == "end":
        return "trim", (session, 0)
    if kind == "remove":
        counts = {rows.shape[1]: place for place, rows in model.rows[session].items()}
        group = model.group(session)
        groups = min(counts) // group
        if len(counts) > 1:  # a removal takes the same range from heads of the same length
            rows = model.random_rows(rng, session, max(counts) - min(counts))
            return "append", (session, *counts[min(counts)], rows, False)
        return ("remove", (session, group * int(rng.integers(1, groups)))) if groups > 1 else ("trim", (session, 0))
    if kind == "fork":
        target = int(rng.integers(4, 6))
        return ("trim", (target, 0)) if target in model.rows else ("fork", (session, target, int(rng.integers(1, 400))))
    return "flush", ()


def apply(model, name, arguments):
    if name == "append":
        model.append(*arguments[:4])
    elif name != "flush":
        getattr(model, name)(*arguments)


def send(host, model, name, arguments):
    """Send the step as a command to a drive that holds `model`. Returns its status."""
    if name == "append":
        session, layer, kind, rows, fua = arguments
        options = KEPT | (abi.AppendOption.APPEND_FUA if fua else 0)
        place = {"session": session, "layer": layer, "kind": kind, "first_token": model.tokens(session, layer, kind)}
        return host.append(rows, type=model.format(session), options=options, **place).status
    if name == "put":
        return put(host, *arguments)
    if name == "delete":
        return host.raw(values.delete(*arguments).entry).status
    if name == "trim":
        return host.trim(*arguments).status
    if name == "remove":
        session, tokens = arguments
        before = next(iter(model.rows[session].values())).shape[1]
        return host.remove(tokens, before, session, group=model.group(session)).status
    return getattr(host, name)(*arguments).status


def durable(name, arguments):
    """True if the step's success makes everything before it durable."""
    return name == "flush" or (name == "append" and arguments[4]) or (name == "put" and arguments[2] > 0)

"""Cases of the kernel ffn: every layout of rows and activation, borders of lengths, extreme values, refused calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import golden
from csim.vectors import Case
from golden import Activation
from golden.abi import LANES, Status

NAME = "ffn"

KINDS = (  # activation and matrices of a neuron
    (Activation.GIVEN, 1),
    (Activation.GIVEN, 2),
    (Activation.RELU, 3),
    (Activation.SILU, 3),
)
LEAST_HIDDEN, MOST_HIDDEN, MOST_NEURONS = 256, 8192, 65535
HIDDEN = (256, 288, 512, 544, 1024)
NEURONS = (1, 2, 3, 31, 32, 33, 65)
INFINITY, NAN, LARGEST, SMALLEST = 0x7C00, 0x7E00, 0x7BFF, 0x0001

Halves: TypeAlias = NDArray[np.uint16]


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Every kind of neurons with every length; extreme values; Inf, NaN and overflow; refused calls."""
    for activation, matrices in KINDS:
        for hidden in HIDDEN:
            for neurons in rng.choice(NEURONS, 2 if small else 5, replace=False):
                yield random_case(rng, "random", activation, matrices, int(neurons), hidden)
        yield random_case(rng, "ordinary", activation, matrices, 40, LEAST_HIDDEN, wild=False)
        yield from _extremes(rng, activation, matrices)
        yield from _not_finite(rng, activation, matrices)
    yield from _gates(rng)
    yield from _refused()
    if not small:
        for activation, matrices in KINDS:
            yield random_case(rng, "widest", activation, matrices, 3, MOST_HIDDEN)
            yield random_case(rng, "many", activation, matrices, 700, LEAST_HIDDEN, wild=False)


def _extremes(rng: np.random.Generator, activation: Activation, matrices: int) -> Iterator[Case]:
    """The widest sums of either sign, full cancellation, and numbers of one unit."""
    for name, x, d in (("widest", 0x0400, LARGEST), ("negative", 0x0400, LARGEST | 0x8000), ("least", 1, SMALLEST)):
        rows = np.full((33, matrices, LEAST_HIDDEN), d, np.uint16)
        rows[:, :-1] = 0x2000
        yield _case(name, np.full(LEAST_HIDDEN, x, np.uint16), rows, activation, np.full((1, 33), LARGEST, np.uint16))
    rows = np.full((34, matrices, LEAST_HIDDEN), LARGEST, np.uint16)
    rows[:, :-1] = 0x2000
    rows[::2, -1] |= 0x8000
    yield _case(
        "cancelling", _halves(rng, LEAST_HIDDEN, wild=False), rows, activation, np.full((1, 34), 0x3C00, np.uint16)
    )


def _gates(rng: np.random.Generator) -> Iterator[Case]:
    """Gates of every magnitude and either sign: x is 1 in its first number, and the gates' rows hold the values."""
    values = np.concatenate([2.0 ** np.arange(-24, 16), [0, 0.3, 1.5, 2.7, 21.5, 22.2, 22.5, 88.0]]).astype(np.float16)
    values = np.concatenate([values, -values])
    rows = _halves(rng, len(values), 3, LEAST_HIDDEN, wild=False)
    rows[:, :2] = 0
    rows[:, 0, 0] = values.view(np.uint16)
    rows[:, 1, 0] = 0x1400  # 2^-10, so that no product overflows
    x = np.zeros(LEAST_HIDDEN, np.uint16)
    x[0] = 0x3C00
    for activation in (Activation.RELU, Activation.SILU):
        yield _case("gates", x, rows, activation, None)


def _not_finite(rng: np.random.Generator, activation: Activation, matrices: int) -> Iterator[Case]:
    for pattern in (INFINITY, INFINITY | 0x8000, NAN, 0xFFFF):
        for place in range(matrices + 2):
            x, rows, given = _arrays(rng, 35, matrices, LEAST_HIDDEN, wild=False)
            if place < matrices:
                rows[rng.integers(35), place, rng.integers(LEAST_HIDDEN)] = pattern
            elif place == matrices:
                x[rng.integers(LEAST_HIDDEN)] = pattern
            else:
                given[0, rng.integers(35)] = pattern
            yield _case("not finite", x, rows, activation, given)
    if matrices > 1:
        x, rows, given = _arrays(rng, 5, matrices, LEAST_HIDDEN, wild=False)
        x[:], rows[2, :-1], given[:] = 0x4400, 0x4400, LARGEST
        yield _case("overflow", x, rows, activation, given)


def _refused() -> Iterator[Case]:
    """Calls that fail each check, alone and together. No stream is fed, and the kernel must read none."""
    least = LEAST_HIDDEN
    for activation, matrices, hidden, neurons, status in (
        (-1, 2, least, 1, Status.BAD_MODE),
        (3, 3, least, 1, Status.BAD_MODE),
        (0, 0, least, 1, Status.BAD_MODE),
        (0, 3, least, 1, Status.BAD_MODE),
        (1, 2, least, 1, Status.BAD_MODE),
        (2, 4, least, 1, Status.BAD_MODE),
        (0, 1, least - 32, 1, Status.BAD_HEAD_DIM),
        (0, 1, MOST_HIDDEN + 32, 1, Status.BAD_HEAD_DIM),
        (0, 1, least + 8, 1, Status.BAD_HEAD_DIM),
        (0, 1, least, 0, Status.BAD_LENGTH),
        (0, 1, least, MOST_NEURONS + 1, Status.BAD_LENGTH),
        (0, 4, 0, -1, Status.BAD_MODE | Status.BAD_HEAD_DIM | Status.BAD_LENGTH),
    ):
        nothing = np.zeros(0, np.uint8)
        yield [
            ("label", f"refused: {activation} {matrices} {hidden} {neurons}"),
            ("activation", activation),
            ("matrices", matrices),
            ("hidden", hidden),
            ("neurons", neurons),
            ("status", int(status)),
            ("inputs", nothing),
            ("activations", nothing),
            ("rows", nothing),
            ("result_beats", 0),
        ]


def random_case(
    rng: np.random.Generator,
    name: str,
    activation: Activation,
    matrices: int,
    neurons: int,
    hidden: int,
    wild: bool = True,
) -> Case:
    """A call with random numbers; `wild`: of any size."""
    x, rows, given = _arrays(rng, neurons, matrices, hidden, wild)
    return _case(name, x, rows, activation, given)


def _arrays(
    rng: np.random.Generator, neurons: int, matrices: int, hidden: int, wild: bool
) -> tuple[Halves, Halves, Halves]:
    """x, rows and given activations. Wild numbers are of any size; those of up and gate are small enough for h."""
    x = _halves(rng, hidden, wild=False)
    rows = _halves(rng, neurons, matrices, hidden, wild=wild)
    rows[:, :-1] = (rng.standard_normal((neurons, matrices - 1, hidden)) * 0.1).astype(np.float16).view(np.uint16)
    return x, rows, _halves(rng, 1, neurons, wild=wild and matrices == 1)


def _case(label: str, x: Halves, rows: Halves, activation: Activation, given: Halves | None) -> Case:
    neurons, matrices, hidden = rows.shape
    given = given if activation == Activation.GIVEN else None
    inputs = x if matrices > 1 else x[:0]
    expected = golden.ffn(x[None] if matrices > 1 else None, rows, activation, given)
    activations = np.zeros(0, np.uint16) if given is None else np.pad(given[0], (0, -neurons % LANES))
    case: Case = [
        ("label", f"{label}: {activation.name}, {matrices} matrices, {hidden} numbers, {neurons} neurons"),
        ("activation", int(activation)),
        ("matrices", matrices),
        ("hidden", hidden),
        ("neurons", neurons),
        ("status", int(expected.status)),
        ("inputs", inputs),
        ("activations", activations),
        ("rows", rows),
        ("result_beats", hidden // 4),
    ]
    if expected.status == 0:
        case.append(("results", np.ascontiguousarray(expected.sums[0]).reshape(-1).view(np.uint64)))
    return case


def _halves(rng: np.random.Generator, *shape: int, wild: bool) -> Halves:
    """Finite patterns of ordinary size, or half of them uniform over all patterns."""
    ordinary = rng.standard_normal(shape).astype(np.float16).view(np.uint16)
    if not wild:
        return ordinary
    uniform = rng.integers(0, 1 << 16, shape, np.uint16)
    uniform[(uniform & INFINITY) == INFINITY] ^= 0x4000
    return np.where(rng.random(shape) < 0.5, uniform, ordinary)

"""Cases of the argtopk kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import golden
from csim.vectors import Case
from golden.abi import INSERTION_K, INSERTION_KEYS, MAX_TOKENS, MAX_TOP_K, KeyType, Status

NAME = "argtopk"

Generator = np.random.Generator


def cases(rng: Generator, small: bool) -> Iterator[Case]:
    """Both key types, all patterns; n around group, beat and word borders; k around the change of algorithm."""
    lengths = (
        (1, 7, 8, 9, 16, 31, 65, 513, 1500) if small else (1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 65, 511, 512, 513, 4000)
    )
    for key_type in KeyType:
        for name, pattern in PATTERNS.items():
            for n in lengths if not small else rng.choice(lengths, 3):
                k = _choose_k(rng, int(n))
                yield _case(f"{name} n={n} k={k} {key_type.name}", pattern(rng, int(n), key_type), k, key_type)
        yield from _edges(rng, key_type)
        yield from _refused(rng, key_type)
        yield from _not_finite(rng, key_type)
    if not small:
        yield from _large(rng)


def _large(rng: Generator) -> Iterator[Case]:
    for name, pattern in PATTERNS.items():
        for k in (INSERTION_K, MAX_TOP_K):
            keys = pattern(rng, MAX_TOKENS, KeyType.BINARY32)
            yield _case(f"{name} n={MAX_TOKENS} k={k}", keys, k, KeyType.BINARY32)
    keys = _random(rng, MAX_TOKENS - 3, KeyType.MAGNITUDE16)
    yield _case("large magnitudes", keys, 5000, KeyType.MAGNITUDE16)


def _edges(rng: Generator, key_type: KeyType) -> Iterator[Case]:
    for n in (INSERTION_K, INSERTION_K + 1, 300, INSERTION_KEYS, INSERTION_KEYS + 1):
        for k in (1, INSERTION_K - 1, INSERTION_K, INSERTION_K + 1, n - 1, n):
            if k <= n:
                yield _case(f"edge n={n} k={k}", _random(rng, n, key_type), k, key_type)
    for n, k in ((100, 40), (300, 120), (300, 300)):
        zeros = _bits(np.tile([-0.0, 0.0], n // 2), key_type)
        yield _case(f"zeros of both signs n={n} k={k}", zeros, k, key_type)
        yield _case(f"ones n={n} k={k}", _bits(np.ones(n), key_type), k, key_type)


def _refused(rng: Generator, key_type: KeyType) -> Iterator[Case]:
    for n, k in (
        (10, 0),
        (10, -1),
        (10, 11),
        (10, -(2**31)),
        (0, 1),
        (0, 0),
        (MAX_TOKENS + 1, 1),
        (20000, MAX_TOP_K + 1),
    ):
        yield _case(f"refused n={n} k={k}", _random(rng, n, key_type), k, key_type)


def _not_finite(rng: Generator, key_type: KeyType) -> Iterator[Case]:
    bad = (
        (0x7C00, 0xFC00, 0x7E00, 0xFFFF)
        if key_type == KeyType.MAGNITUDE16
        else (0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF)
    )
    for pattern in bad:
        for n, k in ((1, 1), (100, 5), (700, 90)):
            keys = _random(rng, n, key_type)
            keys[rng.integers(n)] = pattern
            yield _case(f"not finite {pattern:#x} n={n} k={k}", keys, k, key_type)


def _case(label: str, keys: np.ndarray, k: int, key_type: KeyType) -> Case:
    expected = golden.argtopk(keys, k, key_type)
    cleared = np.zeros(64 * -(-keys.size // 512), np.uint8)  # what the kernel writes for Inf and NaN
    return [
        ("label", label),
        ("keys", keys),
        ("n", keys.size),
        ("k", k),
        ("key_type", int(key_type)),
        ("status", int(expected.status)),
        ("indices", expected.indices),
        ("bitmap", cleared if expected.status == Status.NON_FINITE else expected.bitmap),
    ]


def _choose_k(rng: Generator, n: int) -> int:
    most = min(n, MAX_TOP_K)
    return int(rng.integers(1, 1 + (min(most, INSERTION_K) if rng.integers(2) else most)))


def _bits(values: np.ndarray, key_type: KeyType) -> np.ndarray:
    """Float64 values as patterns of the key type."""
    if key_type == KeyType.MAGNITUDE16:
        return values.astype(np.float16).view(np.uint16)
    return values.astype(np.float32).view(np.uint32)


def _random(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    """Random finite patterns of any kind."""
    if key_type == KeyType.MAGNITUDE16:
        keys = rng.integers(0, 1 << 16, n, np.uint16)
        return np.where((keys & 0x7C00) == 0x7C00, keys & 0x83FF, keys).astype(np.uint16)
    keys = rng.integers(0, 1 << 32, n, np.uint32)
    return np.where((keys & 0x7F800000) == 0x7F800000, keys & 0x807FFFFF, keys).astype(np.uint32)


def _normal(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    return _bits(rng.standard_normal(n), key_type)


def _equal(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    return np.full(n, _random(rng, 1, key_type)[0])


def _sorted(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    return _bits(np.sort(rng.standard_normal(n)), key_type)


def _reversed(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    return _sorted(rng, n, key_type)[::-1].copy()


def _ties(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    return rng.choice(_random(rng, 3, key_type), n)


def _near_ties(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    """Keys that differ in their lowest bits only."""
    return _bits(np.ones(n), key_type) + rng.integers(0, 3, n).astype(np.uint16)


def _zeros(rng: Generator, n: int, key_type: KeyType) -> np.ndarray:
    """+0, -0 and the smallest subnormals of both signs."""
    return _bits(rng.choice([0.0, -0.0, 2.0**-149, -(2.0**-149)], n), key_type)


PATTERNS: dict[str, Callable[[Generator, int, KeyType], np.ndarray]] = {
    "random": _random,
    "normal": _normal,
    "all equal": _equal,
    "sorted": _sorted,
    "reversed": _reversed,
    "ties": _ties,
    "near ties": _near_ties,
    "signed zeros": _zeros,
}

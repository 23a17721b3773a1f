"""The ratios that `kvdrive calibrate` has chosen for a model, in a file of the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from kvdrive import abi, private
from kvdrive.errors import InputError
from kvdrive.private import cache_folder

_DIGITS = 16  # of the fingerprint, in the name of a file

Ratios = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Text:
    """What a calibration read: `digest` identifies its tokens; `windows` of `context` tokens and `targets` more."""

    digest: str
    context: int
    windows: int
    targets: int


@dataclass(frozen=True)
class Choice:
    """A ratio of policy groups for each KV head of each layer; 1: the head reads everything.

    Measured on the text with all of these ratios at once: `kl` in nats per token; `kl_error`, its standard
    error over windows (None: one window); `of_exact`, bytes read over those of exact attention in binary16.
    """

    ratios: Ratios
    unit: int
    kl: float
    kl_error: float | None
    of_exact: float
    text: Text

    @property
    def identity(self) -> str:
        """Differs for other ratios or units."""
        return hashlib.sha256(repr((plain(self.ratios), self.unit)).encode()).hexdigest()[:_DIGITS]


def limit_of(text: str) -> str:
    """A limit of the KL divergence as tables and files write it. Raises InputError."""
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise InputError(f"auto attention needs a limit of the KL divergence above 0, not '{text}': write auto:0.01")
    return f"{limit:g}"


def place_of(fingerprint: bytes) -> Path:
    """The file of a model with a format of K and V."""
    return cache_folder() / "ratios" / f"{fingerprint.hex()[:_DIGITS]}.json"


def read_choice(fingerprint: bytes, limit: str) -> Choice:
    """What was chosen for this model and limit. Raises InputError."""
    path = place_of(fingerprint)
    known = read_choices(fingerprint)
    if limit not in known:
        others = f"; those for {', '.join(known)} are there" if known else ""
        raise InputError(
            f"{path} has no ratios with a KL below {limit} for this model, precision and format{others}: "
            f"`kvdrive calibrate --kl {limit}` finds them"
        )
    return known[limit]


def read_choices(fingerprint: bytes) -> dict[str, Choice]:
    """Everything that was chosen for this model, by limit; empty where it was not calibrated. Raises InputError."""
    path = place_of(fingerprint)
    try:
        found = json.loads(path.read_text())
        if found["model"] != fingerprint.hex():
            raise InputError(f"{path} is of another model, precision or format: remove it")
        return {limit_of(limit): _checked(limit, one) for limit, one in found["choices"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: remove it, and run `kvdrive calibrate` again") from error


def keep_choices(fingerprint: bytes, choices: Mapping[str, Choice]) -> Path:
    """Write choices by limit, beside those for other limits. Returns their file. Raises InputError."""
    path = place_of(fingerprint)
    private.make_folder(path.parent)
    every = {
        limit: asdict(one) | {"ratios": plain(one.ratios)}
        for limit, one in (read_choices(fingerprint) | dict(choices)).items()
    }
    private.write_text(path, json.dumps({"model": fingerprint.hex(), "choices": every}, indent=1) + "\n")
    return path


def plain(ratios: Ratios) -> list[list[str]]:
    """Ratios as people write them."""
    return [[str(share) for share in row] for row in ratios]


def _checked(limit: str, found: dict[str, Any]) -> Choice:
    """A choice of a file. Raises ValueError, KeyError or TypeError for one that `kvdrive calibrate` did not write."""
    ratios = tuple(tuple(Fraction(share) for share in row) for row in found["ratios"])
    choice = Choice(**found | {"ratios": ratios, "text": Text(**found["text"])})
    shares = [share for row in ratios for share in row]
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ValueError("a ratio is outside (0, 1]")
    if choice.unit not in abi.UNIT_TOKENS or not 0 <= choice.kl < float(limit):
        raise ValueError("the unit or the measured divergence is none that fits")
    return choice

"""Which tokens a decode step attends to, one policy per file: exact by default, the others trade accuracy for bytes."""

from __future__ import annotations

from fractions import Fraction

from kvdrive.errors import InputError
from kvdrive.policies.base import Parameters, Policy
from kvdrive.policies.exact import Exact
from kvdrive.policies.h2o import H2O
from kvdrive.policies.local import Local
from kvdrive.policies.sparf import SparF
from kvdrive.policies.sparq import SparQ

POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in (Exact, SparF, SparQ, H2O, Local)}

__all__ = ["POLICIES", "Parameters", "Policy", "make_policy", "parse_ratio"]


def make_policy(name: str, ratio: Fraction = Fraction(1)) -> Policy:
    """The policy `name` at a compression ratio. Raises InputError for unknown names and ratios outside (0, 1]."""
    if name not in POLICIES:
        raise InputError(f"no attention policy '{name}': choose one of {', '.join(POLICIES)}")
    return POLICIES[name](ratio)


def parse_ratio(text: str) -> Fraction:
    """'1/8', '0.125' or '1'. Raises InputError."""
    try:
        ratio = Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"'{text}' is no ratio: write it as 1/8 or 0.125") from error
    if not 0 < ratio <= 1:
        raise InputError(f"the ratio {text} is outside (0, 1]: write it as 1/8 or 0.125")
    return ratio

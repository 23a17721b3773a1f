"""The table of attention policies, one line for each. All code that names or lists policies reads this table.

A policy's module is imported when the policy is made: listing the policies imports neither numpy nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from inspect import signature

from kvdrive.errors import InputError
from kvdrive.policies.base import Policy


@dataclass(frozen=True)
class Entry:
    """`kind`: the policy's class, or its place as "module:Class". `summary` is shown by --help.

    `marker` stands for the policy in the pictures of `kvdrive eval`, in the notation of matplotlib.
    """

    kind: str | type[Policy]
    summary: str
    marker: str = "."


POLICIES = {
    "exact": Entry("kvdrive.policies.exact:Exact", "all tokens", "*"),
    "groups": Entry("kvdrive.policies.groups:Groups", "groups of tokens, chosen by a 2-bit index of K", "D"),
    "sparf": Entry("kvdrive.policies.sparf:SparF", "tokens chosen in the drive from a share of K's columns", "o"),
    "sparq": Entry("kvdrive.policies.sparq:SparQ", "as sparf, with half of its tokens", "s"),
    "h2o": Entry("kvdrive.policies.h2o:H2O", "recent and heavy tokens, kept on the host; the others are dropped", "^"),
    "local": Entry("kvdrive.policies.local:Local", "the most recent tokens", "v"),
}


def register(name: str, entry: Entry) -> None:
    """Add a policy that lives outside this package. Raises InputError where the name is taken."""
    if name in POLICIES:
        raise InputError(f"there is an attention policy '{name}' already: choose another name")
    POLICIES[name] = entry


def make_policy(name: str, ratio: Fraction = Fraction(1), **parameters: float) -> Policy:
    """The policy `name` at a compression ratio, with `parameters` of its own.

    Raises InputError for unknown names, ratios outside (0, 1] and parameters that the policy does not have.
    """
    if name not in POLICIES:
        raise InputError(f"no attention policy '{name}': choose one of {', '.join(POLICIES)}")
    kind = POLICIES[name].kind
    if isinstance(kind, str):
        module, _, attribute = kind.partition(":")
        kind = getattr(import_module(module), attribute)
    assert issubclass(kind, Policy)
    try:
        signature(kind).bind(ratio, **parameters)
    except TypeError as error:
        raise InputError(f"the policy {name} has no parameter {', '.join(parameters)}: leave it out") from error
    return kind(ratio, **parameters)


def summaries() -> str:
    """The policies as a text for messages: "exact (all tokens), ..."."""
    return "; ".join(f"{name}: {entry.summary}" for name, entry in POLICIES.items())


def parse_ratio(text: str) -> Fraction:
    """Parse a ratio such as '1/8', '0.125' or '1'. Raises InputError."""
    try:
        ratio = Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"'{text}' is no ratio: write it as 1/8 or 0.125") from error
    if not 0 < ratio <= 1:
        raise InputError(f"the ratio {text} is outside (0, 1]: write it as 1/8 or 0.125")
    return ratio

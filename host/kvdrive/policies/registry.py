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

    `marker` stands for the policy in the pictures of `kvdrive eval`, in the notation of matplotlib. `takes`: the
    parameter that may follow the name after a colon, in place of a ratio; "": the policy takes a ratio.
    """

    kind: str | type[Policy]
    summary: str
    marker: str = "."
    takes: str = ""


POLICIES = {
    "exact": Entry("kvdrive.policies.exact:Exact", "all tokens", "*"),
    "groups": Entry("kvdrive.policies.groups:Groups", "groups of tokens, chosen by a 2-bit index of K", "D"),
    "auto": Entry(
        "kvdrive.policies.auto:Auto",
        "groups at a ratio of each KV head's own, chosen by `kvdrive calibrate`; auto:0.01 has a KL below 0.01",
        "P",
        takes="kl",
    ),
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


def entry_of(name: str) -> tuple[str, Entry, dict[str, str]]:
    """A policy's own name, its line of the table, and the parameter that follows the name, as in auto:0.01.

    Raises InputError for unknown names, and for parameters that the policy does not take there.
    """
    own, colon, given = name.partition(":")
    if own not in POLICIES:
        raise InputError(f"no attention policy '{own}': `attention` is one of {', '.join(POLICIES)}")
    entry = POLICIES[own]
    if colon and not entry.takes:
        raise InputError(f"the policy {own} takes nothing after its name: write {own}")
    return own, entry, {entry.takes: given} if colon else {}


def make_policy(name: str, ratio: Fraction = Fraction(1), **parameters: float) -> Policy:
    """The policy `name` at a compression ratio, with `parameters` of its own; one of them may follow the name.

    Raises InputError for unknown names, ratios outside (0, 1] and parameters that the policy does not have.
    """
    name, entry, given = entry_of(name)
    kind = entry.kind
    if isinstance(kind, str):
        module, _, attribute = kind.partition(":")
        kind = getattr(import_module(module), attribute)
    assert issubclass(kind, Policy)
    try:
        signature(kind).bind(ratio, **parameters, **given)
    except TypeError as error:
        raise InputError(f"the policy {name} has no parameter {', '.join(parameters)}: leave it out") from error
    return kind(ratio, **parameters, **given)


def parse_ratio(text: str) -> Fraction:
    """Parse a ratio such as '1/8', '0.125' or '1'. Raises InputError."""
    try:
        ratio = Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"'{text}' is no ratio: write it as 1/8 or 0.125") from error
    if not 0 < ratio <= 1:
        raise InputError(f"the ratio {text} is outside (0, 1]: write it as 1/8 or 0.125")
    return ratio

"""Which tokens a decode step attends to, one policy per file: exact by default, the others trade accuracy for bytes."""

from kvdrive.policies.base import Policy
from kvdrive.policies.registry import POLICIES, Entry, entry_of, make_policy, parse_ratio, register

__all__ = ["POLICIES", "Entry", "Policy", "entry_of", "make_policy", "parse_ratio", "register"]

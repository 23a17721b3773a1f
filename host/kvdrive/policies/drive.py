"""Policies that a drive runs: the fields of an attention command say how to attend."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from kvdrive.config.abilities import Ability
from kvdrive.policies.base import Policy
from kvdrive.policies.parameters import Mask, Parameters


class DrivePolicy(Policy):
    """Asked for `parameters` before each ATTN_SUBMIT, in the thread that runs the model.

    `sees_query` False: the parameters are the same for every query over the same tokens. A batch's policy may be
    replaced between two calls as long as its sessions were appended to with the options that the new one needs.
    Where a policy differs between heads, `of_heads` says what each head does, and `parameters` is asked of the result.
    """

    in_drive: ClassVar[bool] = True
    provides: ClassVar[frozenset[Ability]] = frozenset(
        {Ability.SINKS, Ability.FORMATS, Ability.REMOVAL, Ability.KEEPING, Ability.PARTS}
    )
    lacks: ClassVar[Mapping[Ability, str]] = {
        Ability.DRAFTS: "it attends to other tokens when several are computed together"
    }
    sees_query: ClassVar[bool] = True

    @abstractmethod
    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        """How to attend to the first `tokens` tokens on the drive.

        `valid` bool [tokens], None = all of them. `pending` tokens come with the query, are always attended to, and
        count as the most recent ones.
        """

    def of_heads(self, layer: int, kv_heads: int) -> Sequence[DrivePolicy]:
        """How each of the `kv_heads` KV heads of a layer attends; one object stands for all heads that do it alike."""
        return [self] * kv_heads

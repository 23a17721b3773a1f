"""Rows that advance together: in each layer they have equally many tokens."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

import torch

from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.layer import StoredLayer
from kvdrive.kvcache.pending import Scorer
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.transfers import Transfers
from kvdrive.kvcache.unread import UnreadMass
from kvdrive.kvcache.writeback import Writeback
from kvdrive.kvcache.xcache.inputs import Inputs
from kvdrive.nvme.rows import tokens_per_group
from kvdrive.policies.drive import DrivePolicy


@dataclass
class Shared:
    """What all parts of a batch share. `policy` says which tokens are attended to; it may be replaced between calls.

    `append_options`: see nvme.rows.joined. `asks_together`: tokens of one call share reads of K and V where the policy
    lets them; False makes each a decode step of its own. `waited` gets the seconds that a layer waited for the drives,
    where somebody measures that.
    """

    backing: Backing
    policy: DrivePolicy
    append_options: int
    asks_together: bool = True
    waited: Callable[[float], None] | None = None
    scorer: Scorer = field(default_factory=Scorer)
    unread: UnreadMass = field(default_factory=UnreadMass)

    def fork(self) -> Shared:
        """The same for another batch, which counts anew."""
        return Shared(self.backing, self.policy, self.append_options, self.asks_together)

    @property
    def counted_unread(self) -> UnreadMass | None:
        """Where the answers' estimates of what was left unread go; None if the policy reads everything."""
        return self.unread if self.policy.measures_unread else None


class Part:
    """The rows `sequences` in all layers that are on drives. `opens` makes sequences for rows of so many KV heads.

    `removed`: tokens that are gone from behind the first group. `lost`: why the tokens cannot be used any more.
    `unverified`: newest tokens that may be removed again: they are not saved. `in_prompt`: the next call goes on with a
    prompt whose first part is here. Who computes a prompt in parts sets it; attention in the later parts is then on the
    host as well, where the rows can be read.
    """

    def __init__(
        self,
        shared: Shared,
        layers: list[StoredLayer],
        transfers: Transfers,
        opens: Callable[[int, int], list[Sequence]],
        sequences: Several[Sequence] = (),
    ) -> None:
        self.shared = shared
        self.layers = layers
        self.sequences = list(sequences)
        self._opens = opens
        self.writeback = Writeback(shared.backing.spill, self.sequences, transfers, shared.backing.xcache)
        self.removed = 0
        self.lost: str | None = None
        self.unverified = 0
        self.in_prompt = False

    def update(self, layer: StoredLayer, keys: torch.Tensor, values: torch.Tensor, inputs: Inputs | None = None) -> int:
        """Take K and V [batch, heads, tokens, d] of a call; `inputs`: the call's, for X-cache, None: what hooks noted.

        Returns the tokens that the layer had. Raises RangeError, CommandError, TargetError, UnsupportedError.
        """
        self.begin_call(layer, keys)
        first = self.tokens(layer)
        self.writeback.take(layer, keys, values, inputs)
        return first

    def begin_call(self, layer: StoredLayer, keys: torch.Tensor) -> None:
        """Check that a call fits, and wait until the transfers have room for its K and V."""
        if self.lost:
            self.require_usable()
        batch, heads, _, head_dim = keys.shape
        if layer.is_empty:
            self.open(batch, heads)
            layer.begin(0, batch, heads, head_dim)
        if len(self.sequences) != batch:
            raise UnsupportedError(f"the cache holds {len(self.sequences)} sequences, the call {batch}")
        self.writeback.make_room(keys)

    def open(self, rows: int, heads: int) -> None:
        """Sequences for rows of so many KV heads, unless they are open. Raises CommandError, TargetError."""
        if not self.sequences:
            self.sequences += self._opens(rows, heads)

    def require_usable(self) -> None:
        """Raises TargetError after a failure that could not be undone."""
        if self.lost:
            raise TargetError(f"this cache lost its tokens ({self.lost}): reset it")

    def tokens(self, layer: StoredLayer) -> int:
        """Tokens of a layer. Waits for those in transfer from the model's device."""
        self.writeback.land(layer)
        return layer.tokens

    @property
    def group(self) -> int:
        """Tokens of the first group; 1 before the first call."""
        head_dim = self.layers[0].head_dim
        return tokens_per_group(self.shared.backing.stored_as, head_dim) if head_dim else 1

    def prepare_next(self, layer: StoredLayer, new_tokens: int) -> None:
        """Let sequences begin what the next layer needs, unless a call of this length changes it first."""
        place = self.layers.index(layer) + 1
        if place < len(self.layers) and new_tokens < self.shared.backing.spill:
            for sequence in self.sequences:
                sequence.prepare(self.layers[place].index)

    def truncate(self, tokens: int) -> None:
        """Remove all but the first `tokens` tokens, 1 at least, of every row. Raises CommandError, TargetError."""
        stored = any(layer.stored > tokens for layer in self.layers)
        gather([future for one in self.sequences for future in one.truncate(tokens, stored=stored)])
        for layer in self.layers:
            layer.truncate(tokens)

    def split(self, rows: slice) -> Part:
        """Some rows, for one call of the model. Until `join`, this part must not be used."""
        part = Part(
            self.shared, [layer.split(rows) for layer in self.layers], self.writeback.transfers, self._opens,
            self.sequences[rows],
        )  # fmt: skip
        part.removed, part.in_prompt = self.removed, self.in_prompt
        return part

    def join(self, parts: Several[Part]) -> None:
        """Take over what `parts` have done; they have equally many tokens."""
        for own, theirs in zip(self.layers, zip(*(part.layers for part in parts), strict=True), strict=True):
            own.join(theirs)

    def undo(self, parts: Several[Part], tokens: int) -> None:
        """A call of `parts` has failed: go back to the first `tokens` tokens in all of them, and `join`.

        Raises CommandError, TargetError.
        """
        for part in parts:
            part.writeback.drop_arriving()
        self.writeback.transfers.abandon(tokens)
        for part in parts:
            part.truncate(tokens)
        for layers in zip(*(part.layers for part in parts), strict=True):
            most = max(layer.stored for layer in layers)
            for part, layer in zip(parts, layers, strict=True):
                part.writeback.send(layer, most - layer.stored)
        self.join(parts)

"""A transformers cache whose keys and values live on drives.

The model gets an opaque handle instead of tensors; the attention function of `plugins.transformers` understands it.
"""

from __future__ import annotations

import copy
import weakref
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from transformers.cache_utils import CacheLayerMixin, DynamicCache, LinearAttentionCacheLayerMixin

from kvdrive.errors import KvdriveError, TargetError, UnsupportedError
from kvdrive.kvcache import formats, saved
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.base import AttachedCache, LayersInMemory
from kvdrive.kvcache.history import Call, Crop, History, Rearrange
from kvdrive.kvcache.keeper import Keeper
from kvdrive.kvcache.layer import DriveLayer
from kvdrive.kvcache.overflow import Removal
from kvdrive.kvcache.pending import Scorer
from kvdrive.kvcache.sequence import Sequence, gather
from kvdrive.kvcache.transfers import Transfers, TransferStats
from kvdrive.kvcache.unread import UnreadMass
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.commands import flush
from kvdrive.nvme.rows import tokens_per_group
from kvdrive.targets.base import Target

if TYPE_CHECKING:
    from kvdrive.kvcache.loading import LoadStats
    from kvdrive.policies.drive import DrivePolicy


class DriveCache(AttachedCache):
    """The cache of one batch: one sequence per row, opened by the first call, removed by `reset`.

    `in_memory` makes the layers that do not go to the drives, by index. `asks_together`: tokens of one call share reads
    of K and V where the policy lets them; False makes each a decode step of its own. Sequences of a cache that is
    garbage are trimmed, unless `saved_at` names a file that a later process opens them from. `keeper`: what keeps the
    tokens beyond the process, if something does. `saves_behind`: it saves them while the model computes on.
    `while_drives_attend`: called when a call's queries are with the drives.
    """

    saves_behind: ClassVar[bool] = False

    def __init__(self, backing: Backing, layers: int, policy: DrivePolicy, in_memory: LayersInMemory) -> None:
        self.backing = backing
        self.policy = policy
        self.append_options = formats.joined(policy.append_options, backing.stored_as)
        self.asks_together = True
        self.keeper: Keeper | None = None
        self.while_drives_attend: Callable[[], None] | None = None
        self.sequences: list[Sequence] = []
        self.transfers = Transfers()
        self.scorer = Scorer()
        self._unread = UnreadMass()
        self._landing: deque[DriveLayer] = deque()
        self._lost: str | None = None
        self._removed = 0
        self._finalizer = weakref.finalize(self, backing.abandon, self.sequences)
        self._finalizer.atexit = False
        self._in_memory = in_memory
        others = in_memory()
        self.drive_layers = [self.new_layer(index) for index in range(layers) if index not in others]
        on_drives = {layer.index: layer for layer in self.drive_layers}
        super().__init__(layers=[on_drives.get(index) or others[index] for index in range(layers)])

    def new_layer(self, index: int) -> DriveLayer:
        """An empty layer of this cache."""
        return DriveLayer(self, index)

    @property
    def sessions(self) -> list[Sequence]:
        """The sequences, one per row of the batch."""
        return self.sequences

    def open(self, batch: int, heads: int) -> None:
        """Sequences for `batch` rows of `heads` KV heads, unless they are open. Raises CommandError, TargetError."""
        if not self.sequences:
            self.sequences += self.backing.open(batch, heads, self.append_options)

    def land_behind(self, layer: DriveLayer) -> None:
        """`layer` takes its new K and V when the next layer has its own: until then they are on their way to the host.

        Raises RangeError, CommandError, TargetError for the layer before.
        """
        self._landing.append(layer)
        while len(self._landing) > 1:
            self._landing.popleft().land()

    def land(self) -> None:
        """Every layer takes K and V that are on their way. Raises RangeError, CommandError, TargetError."""
        while self._landing:
            self._landing.popleft().land()

    def layer_after(self, layer: DriveLayer) -> DriveLayer | None:
        """The next layer on the drives; None after the last one."""
        place = self.drive_layers.index(layer) + 1
        return self.drive_layers[place] if place < len(self.drive_layers) else None

    def require_usable(self) -> None:
        """Raises TargetError after a failure that could not be undone."""
        if self._lost:
            raise TargetError(f"this cache lost its tokens ({self._lost}): reset it")

    def called(self, arguments: dict[str, Any]) -> None:
        """See AttachedCache."""
        self.land()
        if self.keeper:
            self.keeper.called(arguments)
        super().called(arguments)

    def model_changed(self, reason: str) -> None:
        """See AttachedCache. What was kept before stays; rows stored as layer inputs cannot be used any more."""
        super().model_changed(reason)
        if self.keeper:
            self.keeper.model_changed(reason)
        if any(isinstance(sequence, InputSequence) for sequence in self.sequences):
            self._lost = reason

    @property
    def is_kept(self) -> bool:
        """See AttachedCache."""
        return self.keeper is not None

    def make_room(self) -> bool:
        """See AttachedCache."""
        return self.keeper is not None and self.keeper.make_room()

    def survives(self, error: KvdriveError) -> bool:
        """See AttachedCache."""
        return self.send_again(error)

    def send_again(self, error: KvdriveError) -> bool:
        """A drive refused tokens, maybe of earlier calls. True if it has them now, after sessions were evicted."""
        left: BaseException | None = error
        while isinstance(left, KvdriveError) and super().survives(left):
            left = self.transfers.send_again()
            if left is None:
                try:
                    self._trim_to_stored()
                except KvdriveError:
                    return False
                return True
        return False

    def _trim_to_stored(self) -> None:
        """Remove tokens that were sent again though their call has been undone. Raises CommandError, TargetError."""
        stored = max((layer.stored for layer in self.drive_layers), default=0)
        gather([future for sequence in self.sequences if stored for future in sequence.trim(stored)])

    def __deepcopy__(self, memo: dict[int, Any]) -> DriveCache:
        """A cache that begins with the same tokens and goes its own way: the drives copy nothing.

        It is not kept beyond the process. Raises UnsupportedError, CommandError, TargetError.
        """
        if type(self) is not DriveCache:
            return cast(DriveCache, super().__deepcopy__(memo))
        self.require_usable()
        other = DriveCache(self.backing, len(self.layers), self.policy, self._in_memory)
        other.append_options, other.asks_together, other.in_prompt = (
            self.append_options, self.asks_together, self.in_prompt,
        )  # fmt: skip
        if self.sequences:
            self.write_all()
            other.sequences += [sequence.fork() for sequence in self.sequences]
        for layer, own in zip(self.drive_layers, other.drive_layers, strict=True):
            if layer.is_initialized:
                own.resume(layer.stored, len(self.sequences), layer.describe())
                own.moved = layer.moved
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, DriveLayer):
                other.layers[index] = copy.deepcopy(layer, memo)
        other.history = History()
        other.history.events, other.history.incomplete = list(self.history.events), self.history.incomplete
        other._removed, other.family = self._removed, self.family
        self.family.add(other)
        return other

    def adopt(
        self,
        sequences: list[Sequence],
        ids: torch.Tensor,
        layers: list[dict[str, Any]],
        removals: Several[Removal] = (),
    ) -> None:
        """Fill the empty cache with sequences that hold K and V of ids [batch, tokens]; `describe_layers` made
        `layers`. `removals` were made since the first token; `ids` includes those tokens.
        """
        self.sequences += sequences
        held = ids.shape[1] - sum(removal.tokens for removal in removals)
        for layer, kept in zip(self.drive_layers, layers, strict=True):
            layer.resume(held, len(sequences), kept)
        first = 0
        for removal in removals:
            self.history.events += [Call(ids[:, first : removal.at], None, None, True), removal]
            first = removal.at
        self.history.events.append(Call(ids[:, first:], None, None, True))
        self._removed = ids.shape[1] - held

    def describe_layers(self) -> list[dict[str, Any]]:
        """Shape and scales of each layer on the drives, as plain values."""
        return [layer.describe() for layer in self.drive_layers]

    def load_ended(self) -> LoadStats | None:
        """What a load into memory has read, returned once after its end; None: nothing was loaded since."""
        return None

    def flush(self) -> None:
        """Make what the drives have received durable. Raises CommandError, TargetError."""

        def work(target: Target) -> None:
            target.execute(flush())

        gather([queue.start(work) for queue in self.backing.alive])

    def write_nothing(self) -> None:
        """Mark an empty cache as not to be stored: it need not write its tokens. No effect here: the drives attend."""

    def disown(self) -> None:
        """Leave the sequences on the drives when this cache goes."""
        self._finalizer.detach()

    def let_go(self) -> None:
        """Leave the sequences on the drives, and know nothing of them any more."""
        self.disown()
        self.sequences.clear()

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last `-tokens_to_remove` tokens (transformers passes 0 or a negative number).

        Raises UnsupportedError where a layer cannot take tokens back.
        """
        if tokens_to_remove > 0:
            raise ValueError("crop takes the number of tokens to remove as a negative number")
        if tokens_to_remove < 0:
            self._require_croppable()
        for layer in self.layers:
            if not isinstance(layer, DriveLayer):
                layer.crop(tokens_to_remove)
        if tokens_to_remove < 0 and self.sequences:
            left = max(self._drive_tokens + tokens_to_remove, 0)
            if self._removed and left < self._group and -tokens_to_remove < self.get_seq_length():
                raise UnsupportedError(
                    "the cache cannot go back to a token that was removed when the positions were used up"
                )
            self.truncate(left)
            if left:
                self.history.events.append(Crop(-tokens_to_remove))
            else:
                self.history = History()

    def reset(self) -> None:
        """Forget everything, on the drives as well."""
        self.transfers.abandon()
        self._announce(0)
        self._unsave()
        drop(self.sequences)
        self._clear()
        self.history = History()
        self._lost = None

    def erase(self) -> None:
        """See AttachedCache."""
        self.transfers.abandon()
        self._announce(0)
        self._unsave()
        for sequence in self.sequences:
            sequence.erase()
        self.reset()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i becomes what row beam_idx[i] was: beams share what they have in common. Raises CommandError."""
        self.rearrange(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times, side by side. Raises CommandError."""
        self.rearrange([row for row in range(self._rows) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows `indices`. Raises CommandError."""
        rows = torch.arange(self._rows)[indices.cpu()]
        self.rearrange(rows.tolist())

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was. A sequence that is wanted again is forked, one not wanted trimmed."""
        if not self._rows or rows == list(range(self._rows)):
            return
        if self.keeper:
            self.keeper.released()
        self._unsave()
        if self.sequences:
            self._rearrange_sequences(rows)
        for layer in self.layers:
            if isinstance(layer, DriveLayer):
                layer.rearrange(rows)
            else:
                layer.reorder_cache(torch.tensor(rows))
        self.history.events.append(Rearrange(rows))

    def _rearrange_sequences(self, rows: list[int]) -> None:
        before, taken = list(self.sequences), set()
        after: list[Sequence] = []
        for row in rows:
            after.append(before[row].fork() if row in taken else before[row])
            taken.add(row)
        drop([sequence for row, sequence in enumerate(before) if row not in taken])
        self.sequences[:] = after

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` tokens of every layer that is on the drives. Raises CommandError, TargetError."""
        if tokens == 0:
            self.transfers.abandon()
            self._announce(0)
            drop(self.sequences)
            self._clear()
            return
        self.land()
        self.transfers.finish()
        self.transfers.forget_after(tokens)
        self._announce(tokens)
        if any(layer.stored > tokens for layer in self.drive_layers):
            self._unsave()
            gather([future for sequence in self.sequences for future in sequence.trim(tokens)])
        for sequence in self.sequences:
            sequence.keep(tokens)
        for layer in self.drive_layers:
            layer.truncate(tokens)

    @property
    def removed(self) -> int:
        """See AttachedCache."""
        return self._removed

    def catch_up(self, forward: Callable[..., Any], device: torch.device) -> None:
        """See AttachedCache. Also sends tokens of earlier calls again that a drive has refused."""
        if not self._lost and self.transfers.refused:
            error = self.transfers.send_again()
            if error:
                raise error
            self._trim_to_stored()
        if self._removed and self.drive_layers[0].moved is None:
            self._move_first(forward, device)

    def _move_first(self, forward: Callable[..., Any], device: torch.device) -> None:
        """Compute the first group at the positions next to the other tokens that are left.

        Otherwise each removal would take it further away from the rest than the model has ever seen. The drives keep
        it at its old positions; the new K and V come along with each query.
        """
        ids = self.history.token_ids()[:, : self._group].to(device)
        positions = torch.arange(self._removed, self._removed + ids.shape[1], device=device)
        computed = DynamicCache()
        with torch.no_grad():
            forward(input_ids=ids, position_ids=positions[None], past_key_values=computed, logits_to_keep=1)
        for layer, first in zip(self.drive_layers, computed.layers, strict=True):
            layer.move_first(first.keys, first.values)

    def remove(self, tokens: int, forward: Callable[..., Any], device: torch.device) -> None:
        """See AttachedCache. Raises CommandError, TargetError."""
        self.require_usable()
        self.require_all_on_drives()
        layers, group = self.drive_layers, self._group
        if len({layer.stored for layer in layers} | {-layer.shape()["head_dim"] for layer in layers}) != 2:
            raise UnsupportedError("the layers' heads differ, so they have no groups of the same tokens to remove")
        if group + tokens > layers[0].stored // group * group:
            self.write_all()
        self.transfers.finish()
        if self.keeper:
            self.keeper.removes(tokens)
        self._unsave()
        try:
            for sequence in self.sequences:
                sequence.remove(range(group, group + tokens), layers[0].stored, len(self.layers))
        except Exception as error:
            self._lost = str(error)  # other drives or rows may have removed them
            raise
        self.history.events.append(Removal(self.get_seq_length(), tokens))
        for layer in layers:
            layer.stored -= tokens
        self._removed += tokens
        if self.keeper:
            self.keeper.removed_tokens(tokens)
        self._move_first(forward, device)

    @property
    def _group(self) -> int:
        """Tokens of the first group."""
        return tokens_per_group(self.backing.stored_as, self.drive_layers[0].shape()["head_dim"])

    def undo(self, tokens: int) -> None:
        """Go back to the first `tokens` tokens after a failed call, if the drives still respond."""
        tokens = max(tokens - self._removed, 0)
        while self._landing:
            self._landing.popleft().drop_arriving()
        self.transfers.abandon(tokens)
        try:
            if tokens:
                self._require_croppable()
                for layer in self._others():
                    if isinstance(layer, CacheLayerMixin) and layer.get_seq_length() > tokens:
                        layer.crop(tokens - layer.get_seq_length())
            self.truncate(tokens)
        except Exception as error:
            self._lost = str(error)

    def synchronize(self) -> None:
        """See AttachedCache."""
        self.land()
        self.transfers.finish()

    def write_all(self) -> None:
        """Send all pending tokens, and wait until the drives have them. Raises CommandError, TargetError."""
        for layer in self.drive_layers:
            layer.write_all()
        self.transfers.finish()

    def restart(self) -> None:
        """Empty the cache, so that a replay can fill it. Sequences on failed drives cannot be trimmed and stay."""
        self.transfers.abandon()
        drop(self.sequences)
        self._clear()
        self._lost = None

    def recompute(self, forward: Callable[..., Any], device: torch.device) -> None:
        """See AttachedCache."""
        history, in_prompt = self.history, self.in_prompt
        keeper, self.keeper = self.keeper, None  # it knows what happened already
        if keeper:
            keeper.lost()
        self.restart()
        self.backing.exclude_failed()
        self.history = History()
        try:
            self._replay(history, forward, device)
        finally:
            self.history, self.in_prompt, self.keeper = history, in_prompt, keeper

    def _replay(self, history: History, forward: Callable[..., Any], device: torch.device) -> None:
        """Fill the cache with what `history` says. A replay that fails leaves a cache that has lost its tokens."""
        try:
            history.replay(forward, self, device)
            self.land()
        except BaseException as error:
            self._lost = str(error) or type(error).__name__
            raise

    def leave(self) -> None:
        """See AttachedCache."""
        if self.keeper:
            self.keeper.leave()
        elif self.saved_at is None:
            self.reset()
        else:
            self.transfers.abandon()

    def save(self, path: Path) -> None:
        """See AttachedCache. The sequences stay on the drives when this cache goes."""
        saved.save(self, path)
        self.disown()

    def reopen(self, path: Path) -> None:
        """See AttachedCache."""
        saved.reopen(self, path)
        self.disown()

    def rate_singly(self) -> None:
        """See AttachedCache."""
        self.asks_together = False

    def bytes_read(self) -> int:
        """See AttachedCache."""
        return sum(queue.target.stats().kv_bytes_read for queue in self.backing.queues)

    def writeback(self) -> dict[str, Any] | None:
        """See AttachedCache. Also counts the heads and values that did not fit binary16 unchanged."""
        if not self.drive_layers:
            return None
        self.synchronize()
        layer = self.drive_layers[0]
        transfers = self.transfer_stats()
        return {
            "spill": self.backing.spill,
            "pending_tokens": layer.tokens - layer.stored,
            **asdict(transfers),
            "overlap": transfers.overlap,
            **self.range_stats(),
            "xcache": self.input_stats(),
            "unread": self.unread_mass(),
        }

    @property
    def unread(self) -> UnreadMass | None:
        """Where the answers' estimates of what was left unread are kept; None if the policy reads everything."""
        return self._unread if self.policy.measures_unread else None

    def unread_mass(self) -> dict[str, float] | None:
        """See AttachedCache."""
        return self.unread.summary() if self.unread else None

    def measure_unread_anew(self) -> None:
        """See AttachedCache."""
        self._unread = UnreadMass()

    def count_unread_with(self, other: DriveCache) -> None:
        """Count in one place with `other`, whose steps are this cache's steps."""
        self._unread = other._unread

    def input_stats(self) -> dict[str, Any] | None:
        """The counters of X-cache (InputStats) and `alpha`, the share of the rows that is stored as X; None without."""
        if self.backing.xcache is None:
            return None
        stored = sum(isinstance(sequence, InputSequence) for sequence in self.sequences)
        return {"alpha": stored / max(len(self.sequences), 1), **asdict(self.backing.xcache.stats)}

    def transfer_stats(self) -> TransferStats:
        """Bytes and times of the transfers of K and V to the drives."""
        return self.transfers.stats()

    def range_stats(self) -> dict[str, int]:
        """`heads_scaled`: K and V heads, over layers and rows, that binary16 cannot hold without a power of two;
        `values_lost`: values of K and V that became zero; `values_saturated`: those beyond a scale that the checkpoint
        ships.
        """
        scales = [scale for layer in self.drive_layers for scale in (layer.key_scale, layer.value_scale)]
        return {
            "heads_scaled": sum(scale.heads_scaled for scale in scales),
            "values_lost": sum(scale.lost for scale in scales),
            "values_saturated": sum(scale.saturated for scale in scales),
        }

    def require_all_on_drives(self) -> None:
        """Raises UnsupportedError when some layers stay in memory."""
        if len(self.drive_layers) < len(self.layers):
            raise UnsupportedError("some of the model's layers stay in memory: such a cache cannot be saved on drives")

    def _announce(self, tokens: int) -> None:
        """All but the first `tokens` tokens are about to go."""
        if self.keeper:
            self.keeper.shrinks(tokens)

    def _require_croppable(self) -> None:
        if any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in self._others()):
            raise UnsupportedError("some of the model's layers keep a state that no token can be taken out of again")

    def _others(self) -> list[Any]:
        """The layers whose K and V stay in memory."""
        return [layer for layer in self.layers if not isinstance(layer, DriveLayer)]

    @property
    def _rows(self) -> int:
        """Rows of the batch; 0 before the first call."""
        if self.sequences:
            return len(self.sequences)
        held = [layer.keys.shape[0] for layer in self._others() if getattr(layer, "keys", None) is not None]
        return held[0] if held else 0

    @property
    def _drive_tokens(self) -> int:
        return max((layer.tokens for layer in self.drive_layers), default=0)

    def _clear(self) -> None:
        self._removed = 0
        others = self._in_memory()
        for index, layer in enumerate(self.layers):
            if isinstance(layer, DriveLayer):
                layer.forget()
            else:
                self.layers[index] = others[index]

    def _unsave(self) -> None:
        if self.saved_at:
            self.saved_at.unlink(missing_ok=True)
            self.saved_at = None

"""A cache whose running sequences are in memory, with the drives as their home (AttentionStore's arrangement).

Attention is the model's own, over preallocated tensors. They hold what the drives hold: K and V are rounded to binary16
before they are attended to, so that a sequence that was loaded goes on as one that never stopped. New tokens go to
the drives in the background, by layer, as those of any cache on drives.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch

from kvdrive import abi
from kvdrive.errors import KvdriveError, UnsupportedError
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.base import LayerCall, LayersInMemory
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.cache import DriveCache
from kvdrive.kvcache.history import History
from kvdrive.kvcache.layer import DriveLayer
from kvdrive.kvcache.loading import Loading, LoadPlan, LoadStats
from kvdrive.kvcache.overflow import Removal
from kvdrive.kvcache.rows import Place, Rows
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.transfers import Transfers
from kvdrive.nvme.errors import CommandError

if TYPE_CHECKING:
    from kvdrive.policies.drive import DrivePolicy


class MemoryLayer(DriveLayer):
    """One layer: `count` tokens in memory. The drives may have more: those that a call is about to compute again."""

    rows: Rows | None = None
    count = 0

    @property
    def home(self) -> MemoryCache:
        """The cache of this layer."""
        return cast(MemoryCache, self.cache)

    def forget(self) -> None:
        """See DriveLayer."""
        super().forget()
        self.leave_memory()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take K and V [batch, heads, tokens, d]; returns those of all tokens, as they are stored.

        Waits until the layer's earlier tokens are in memory. Raises RangeError, CommandError, TargetError,
        UnsupportedError, LateLoadError.
        """
        self._begin_call(key_states, value_states)
        self.home.loading.wait(self.index)
        rows = self._memory()
        k, v = self.key_scale.convert(key_states), self.value_scale.convert(value_states)
        end = self.count + k.shape[2]
        rows.grow(max(end, self.home.expected_tokens), self.count)
        rows.put(self.count, k, v, (self.key_scale.factors, self.value_scale.factors))
        known = self.tokens - self.count  # tokens of this call that the drives have already
        if known < k.shape[2]:
            self._take(k[:, :, known:], v[:, :, known:])
            self._write_back()
        self.count = end
        return rows.k[:, :, :end].to(key_states), rows.v[:, :, :end].to(value_states)

    def attend(self, call: LayerCall) -> torch.Tensor:
        """Never called: the model attends to the tensors that `update` returns."""
        raise AssertionError

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """See DriveLayer."""
        return self.count + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens in memory, or being loaded."""
        return self.count

    def truncate(self, tokens: int) -> None:
        """See DriveLayer."""
        super().truncate(tokens)
        self.count = min(self.count, tokens)

    def rearrange(self, rows: list[int]) -> None:
        """See DriveLayer."""
        super().rearrange(rows)
        if self.rows is not None:
            self.rows.rearrange(rows)

    def leave_memory(self) -> None:
        """Forget what is in memory; the drives keep it."""
        if self.rows is not None:
            self.rows.release()
        self.rows, self.count = None, 0

    def begin_load(self, tokens: int) -> Rows:
        """Room for `tokens` tokens that are about to be loaded; they count from now on."""
        rows = self._memory()
        rows.grow(max(tokens, self.home.expected_tokens), self.count)
        self.count = tokens
        return rows

    def _memory(self) -> Rows:
        if self.rows is None:
            assert self.pending is not None
            batch, heads, _, head_dim = self.pending.k.shape
            self.rows = Rows(self.home.place, batch, heads, head_dim)
        return self.rows


class MemoryCache(DriveCache):
    """The cache of one batch in memory at `place`, behind which the drives keep every token.

    `expected_tokens`: how many the sequences will have, where that is known: the tensors are made so large at once.
    `plan`: how tokens that the drives have get into memory; None: by computing them again.
    """

    saves_behind: ClassVar[bool] = True

    def __init__(
        self,
        backing: Backing,
        layers: int,
        policy: DrivePolicy,
        in_memory: LayersInMemory,
        place: Place,
        options: MemoryOptions,
        expected_tokens: int = 0,
    ) -> None:
        self.place = place
        self.options = options
        self.expected_tokens = expected_tokens
        self.plan: LoadPlan | None = LoadPlan(options.read_buffer)
        self.loading = Loading.nothing()
        self._alone = False  # the sequences have no home: the drives are full, or not to be written
        self._ended: LoadStats | None = None
        self._known: torch.Tensor | None = None  # tokens that the drives have and that are computed again
        super().__init__(backing, layers, policy, in_memory)
        self.transfers = Transfers(options.write_buffer)

    def new_layer(self, index: int) -> MemoryLayer:
        """See DriveCache."""
        return MemoryLayer(self, index)

    @property
    def memory_layers(self) -> list[MemoryLayer]:
        """The layers whose home is the drives."""
        return cast(list[MemoryLayer], self.drive_layers)

    def write_nothing(self) -> None:
        """See DriveCache. Nothing is written."""
        self._alone = True

    def open(self, batch: int, heads: int) -> None:
        """See DriveCache."""
        if self._alone and not self.sequences:
            self.sequences += [Sequence([]) for _ in range(batch)]
        super().open(batch, heads)

    def adopt(
        self,
        sequences: list[Sequence],
        ids: torch.Tensor,
        layers: list[dict[str, Any]],
        removals: Several[Removal] = (),
    ) -> None:
        """See DriveCache. Begins to load the tokens by `plan`; without one, they are computed again.

        Then the cache is empty for the model, and the drives keep what they have: tokens that differ replace theirs.
        """
        if removals:
            raise UnsupportedError("a sequence that lost tokens in its middle stays on the drives")
        super().adopt(sequences, ids, layers)
        if self.plan is not None:
            self.loading = Loading(self.memory_layers, self.sequences, ids.shape[1], self.plan)
        else:
            self._known, self.history = ids, History()

    def calling(self, arguments: dict[str, Any]) -> None:
        """See AttachedCache."""
        if self._known is None:
            return
        held = self.get_seq_length()
        if held >= self._known.shape[1]:
            self._known = None
        elif not _repeats(arguments, self._known[:, held:]):
            self._known = None
            self.truncate(held)

    def recompute(self, forward: Callable[..., Any], device: torch.device) -> None:
        """See AttachedCache."""
        self._stop_loading()
        super().recompute(forward, device)

    def compute_instead(self, forward: Callable[..., Any], device: torch.device) -> None:
        """See AttachedCache. The drives keep what they have."""
        self._stop_loading()
        for layer in self.memory_layers:
            layer.leave_memory()
        self._replay(self.history, forward, device)

    def survives(self, error: KvdriveError) -> bool:
        """See AttachedCache. When the drives cannot store any more, the sequences go on in memory alone."""
        if self.send_again(error):
            return True
        if not isinstance(error, CommandError) or error.opcode != abi.Opcode.KV_APPEND or not self.sequences:
            return False
        try:
            self.loading.finish()
        except KvdriveError:
            return False
        self.transfers.abandon()
        rows, self._alone = len(self.sequences), True
        if self.keeper is not None and self.keeper.leave_drives(str(error)):
            self.sequences.clear()
        drop(self.sequences)
        self.sequences += [Sequence([]) for _ in range(rows)]
        return True

    def truncate(self, tokens: int) -> None:
        """See DriveCache."""
        if tokens == 0:
            self._stop_loading()
            self._known = None
        super().truncate(tokens)

    def rearrange(self, rows: list[int]) -> None:
        """See DriveCache."""
        self.loading.finish()
        super().rearrange(rows)

    def restart(self) -> None:
        """See DriveCache."""
        self._stop_loading()
        self._known = None
        super().restart()

    def reset(self) -> None:
        """See AttachedCache."""
        self._stop_loading()
        self._known, self._alone = None, False
        super().reset()

    @property
    def _drive_tokens(self) -> int:
        return max((layer.count for layer in self.memory_layers), default=0)

    def load_ended(self) -> LoadStats | None:
        """See DriveCache."""
        ended, self._ended = self._ended, None
        if self.loading.done:
            ended, self.loading = self.loading.stats(), Loading.nothing()
        return ended

    def _stop_loading(self) -> None:
        if self.loading.tokens:
            self._ended = self.loading.stats()
        self.loading.cancel()
        self.loading = Loading.nothing()


def _repeats(arguments: dict[str, Any], known: torch.Tensor) -> bool:
    """True if a call's tokens [1, tokens] begin with `known`, or the other way round, and all tokens are seen."""
    ids, mask = arguments.get("input_ids"), arguments.get("attention_mask")
    if not isinstance(ids, torch.Tensor) or ids.shape[0] != 1 or (mask is not None and not bool(mask.all())):
        return False
    both = min(ids.shape[1], known.shape[1])
    return bool(torch.equal(ids[:, :both].cpu(), known[:, :both]))

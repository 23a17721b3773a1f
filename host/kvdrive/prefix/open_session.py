"""A running sequence that is saved as a session. It is the one owner of its state.

A save makes what the drives have of the sequence a session: record and tokens on the drives, FLUSH, index.
"""

from __future__ import annotations

import logging
import sqlite3
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

import torch

from kvdrive.errors import KvdriveError, TargetError
from kvdrive.identity.calls import why_not_plain
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix.checkpoints import Checkpoints
from kvdrive.prefix.commit import Committed
from kvdrive.prefix.context import Context
from kvdrive.prefix.layouts import Layouts
from kvdrive.prefix.lookup import Match
from kvdrive.prefix.metadata import Metadata, RecordsFullError
from kvdrive.prefix.record import Record
from kvdrive.prefix.resume import Strategy
from kvdrive.prefix.tokens import Tokens

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch

log = logging.getLogger(__name__)


class OpenSession:
    """The listener of `batch` (see `kvcache.listener.Listener`), open until `batch` has none.

    `layouts`: those of its tenant. `strategy`: how it uses stored tokens; None: none were found. `full`: why
    the drives take no more changes of its session; "": they do.
    """

    def __init__(
        self, context: Context, batch: Batch, layouts: Layouts, name: str, strategy: Strategy | None = None
    ) -> None:
        self.batch: Batch = batch
        self.layouts = layouts
        self.name = name
        self.strategy = strategy
        self.tokens = Tokens(layouts.group, lambda: self.layout.chain.without(self._removals))
        self.metadata = Metadata()
        self.committed = Committed(context)
        self.full = ""
        self._ends = False
        self._checkpoints = Checkpoints(context, batch, layouts.kv.block)
        self._context = context
        self._stats = context.stored.stats
        self._admitted: bool | None = None  # what the governor said; None before it was asked
        self._saving: Future[None] | None = None  # in the background
        batch.listener = self

    def resume(self, match: Match) -> None:
        """Fill the empty batch with stored tokens."""
        entry, record = match.entry, Record.of(match.entry.record)
        goes_on = self.batch.adopt([match.sequence], torch.tensor([match.tokens]), record.layers, record.events)
        if goes_on and match.state:
            self._checkpoints.restore(match.state)
        held, removed = record.split(match.tokens)
        self.tokens.fill([] if self.strategy == "recompute" else held, removed)
        # with X the fork's record may name tokens that the fork does not have: the next save replaces it
        text = None if record.inputs else entry.record
        self.metadata.forked(len(match.sequence.slices), len(held), text)
        self.committed.forked(entry, len(held))

    # ---- state ----

    @property
    def is_open(self) -> bool:
        """True while the sequence is saved."""
        return self.batch.listener is self

    @property
    def number(self) -> int | None:
        """The number of its session; None before the first save."""
        return self.committed.number

    @property
    def saved(self) -> int:
        """How many tokens the index names."""
        return self.committed.tokens

    @property
    def layout(self) -> Record:
        """How it lies on the drives."""
        return self.layouts.of(self.batch.sequences)

    @property
    def record(self) -> Record:
        """What is needed to continue it."""
        return self.layouts.record(self.batch, name=self.name)

    @property
    def _removals(self) -> list[list[int]]:
        return [[removal.at, removal.tokens] for removal in self.batch.removals]

    @property
    def _stored(self) -> int:
        """Tokens that the drives have in every layer, as far as they are known and stay."""
        known = len(self.tokens.held) - self.batch.part.unverified
        return min(known, *(layer.stored for layer in self.batch.drive_layers))

    # ---- what happens to the batch (see Listener) ----

    def called(self, arguments: dict[str, Any]) -> None:
        """See Listener. Saves when enough tokens have come."""
        tokens = self.tokens
        known = len(tokens.held) + len(tokens.removed)
        if reason := why_not_plain(arguments, known):
            return self.stop(reason)
        ids = arguments["input_ids"]
        if self.batch.length != known + ids.shape[1]:
            return self.stop("some of its tokens did not come through the model's own forward")
        self._count_load()
        before = len(tokens.held)
        tokens.held += ids[0].tolist()
        try:
            self._save_if_due()
        except BaseException:
            tokens.truncate(before)  # the call counts as failed
            raise
        return None

    def checkpoints(self, first: int, end: int) -> list[int]:
        return self._checkpoints.within(first, end) if self.layouts.with_state else []

    def shrinks(self, tokens: int) -> None:
        """See Listener. The index forgets the session before the drives do; a later save adds it again."""
        self._wait_quietly()
        self.committed.truncate(tokens)
        self.tokens.truncate(tokens)
        self.metadata.truncate(tokens)
        if tokens == 0:
            self._begin_anew()

    def removes(self, tokens: int) -> None:
        """See Listener. What the index names stays a session of its own; the batch continues with a fork, which no
        rebuilt index takes for whole.
        """
        self._wait_quietly()
        self._fork()
        self.metadata.mark_unusable(self.batch.sequences[0].slices, self.record)

    def removed_tokens(self, tokens: int) -> None:
        self.tokens.remove(tokens)
        self.committed.removed(tokens)

    def reordered(self) -> None:
        self.stop("its rows change places")

    def model_changed(self, reason: str) -> None:
        """See Listener. What was saved stays what it is; the batch continues with a fork of it."""
        if not self.batch.length:
            return self.tokens.rename()
        self._wait_quietly()
        try:
            self._fork()
        except KvdriveError as error:
            log.info("a session does not stay: %s", error)
        return self.stop(reason)

    def lost(self) -> None:
        """See Listener. The session that this one was forked from has lost the same tokens."""
        self._wait_quietly()
        self._stats.lost += 1
        self.committed.lost()
        self._begin_anew()

    def make_room(self) -> bool:
        return self._context.evictor.make_room()

    def runs_in_memory_alone(self, reason: str) -> bool:
        log.warning("a sequence continues in memory, and its later tokens are not saved: %s", reason)
        self._wait_quietly()
        self.committed.close()
        self.batch.listener = None
        return self.number is not None

    def detaching(self) -> None:
        self.finish()

    # ---- saving ----

    def admits(self, ids: list[int]) -> bool:
        """True if a sequence that begins with `ids` is written for later use. The governor is asked once."""
        if self._admitted is None:
            named = bool(self.name) or self.committed.source is not None
            with self._context.stored.index.transaction():
                self._admitted = named or self._context.governor.admits(self._wanted_keys(ids))
        return self._admitted

    def save(self) -> None:
        """Save what the drives have. A failure is logged, and generation continues.

        Raises TargetError, and CommandError when K and V themselves could not be stored.
        """
        self.wait()
        self._context.check_model()
        if tokens := self._to_save():
            self.batch.synchronize()
            self._try_to_save(tokens)
            self._stop_if_full()

    def save_all(self) -> int | None:
        """Save all tokens, pending ones as well. Returns the session's number; None if it is not saved.

        Raises CommandError, TargetError.
        """
        while True:
            try:
                self.batch.write_all()
                break
            except CommandError as error:
                if not self.batch.send_again(error):
                    raise
        self.save()
        return self.number

    def finish(self) -> int | None:
        """Save all tokens, and close; the batch is empty then. Returns as `save_all` does."""
        context, batch = self._context, self.batch
        self._ends = True
        try:
            self.wait()
            if self._admitted is False:
                with context.stored.index.transaction():  # going on with all of it is a second use
                    context.stored.index.accounts.wanted(self._wanted_keys(self.tokens.held))
            elif self.tokens.held and self._stored:
                self.save_all()
        except (CommandError, TargetError, sqlite3.Error) as error:
            self._stats.failed_saves += 1
            log.warning("the last tokens of a session could not be saved: %s", str(error))
        finally:
            batch.listener = None
            batch.transfers.abandon()
            if self.number is not None:
                batch.hand_over()
                self.committed.close()
                self._keep_in_memory(self.number)
            batch.reset()
        context.evictor.enforce(self.layouts.tenant)
        return self.number

    def discard(self) -> None:
        """Close an unused session: nothing is saved, and the batch is empty."""
        self.batch.listener = None
        self.batch.reset()

    def stop(self, reason: str) -> None:
        """Save no more of this sequence, which continues. What was saved of it is forgotten."""
        log.warning("a sequence is not saved: %s", reason)
        self._wait_quietly()
        self.committed.withdraw()
        self.batch.listener = None

    def wait(self) -> None:
        """Wait for the save in the background. Raises its TargetError."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            saving.result()

    # ---- parts ----

    def _wait_quietly(self) -> None:
        """`wait` where an error of the drive does not matter any more."""
        try:
            self.wait()
        except KvdriveError as error:
            log.info("a save in the background failed: %s", error)

    def _save_behind(self) -> None:
        """Save what is in transfer to the drives now, in the background, one save at a time.

        Raises the TargetError of the save before.
        """
        if self._saving is not None and not self._saving.done():
            return
        self.wait()
        self._context.check_model()
        if tokens := self._to_save():
            sent = self.batch.transfers.outstanding()
            self._saving = self._context.saver.submit(self._save_sent, tokens, sent)

    def _save_sent(self, tokens: int, sent: list[Future[None]]) -> None:
        """In the background: save `tokens` tokens once the appends `sent` have ended."""
        wait(sent)
        if not any(one.exception() for one in sent):  # the next call of the model raises such an error
            self._try_to_save(tokens)

    def _to_save(self) -> int:
        """Tokens that should be saved now; 0: there is nothing to do."""
        tokens = self._stored
        if not self.is_open or tokens <= self.saved or self._stop_if_full():
            return 0
        if self.layouts.with_state and tokens != self.batch.length:
            return 0  # the state is that behind all tokens
        if not self.admits(self.tokens.held[:tokens]):
            return 0
        row = self.batch.sequences[0]
        if len(row.slices) != self.layout.parts:
            self.stop("a drive has failed")
            return 0
        if isinstance(row, InputSequence) and not row.in_order:
            self.stop("its positions are not the numbers of its tokens, by which K is rebuilt from stored layer inputs")
            return 0
        return tokens

    def _try_to_save(self, tokens: int) -> None:
        """Save; a failure is counted and logged. Raises TargetError."""
        try:
            self._save(tokens)
        except RecordsFullError as error:
            self.full = str(error)  # the model's thread stops it: to fork, its appends must have ended
            return
        except (CommandError, sqlite3.Error) as error:
            self._stats.failed_saves += 1
            log.warning("a session could not be saved: %s", str(error))
            return
        self._stats.saves += 1

    def _save(self, tokens: int) -> None:
        """Save the first `tokens` tokens, which the drives have.

        Raises CommandError, TargetError, RecordsFullError, sqlite3.Error.
        """
        if self.layouts.with_state:
            return self._save_with_state(tokens)
        self._write(self.record, tokens)
        self.committed.commit(self.record, self.batch.sequences[0], self.tokens, tokens, last=self._ends)

    def _save_with_state(self, tokens: int) -> None:
        """See `_save`. What the index names already stays a session of its own, which has another state."""
        self._fork()
        record = self._checkpoints.put(self.record, tokens)
        self._context.on_step("state")
        try:
            self._write(record, tokens)
            self.committed.commit(record, self.batch.sequences[0], self.tokens, tokens, last=self._ends)
        except BaseException:
            if self.committed.tokens != tokens:
                self._checkpoints.withdraw(record)
            raise

    def _write(self, record: Record, tokens: int) -> None:
        """Make the first `tokens` tokens and their record durable. Raises as `_save` does."""
        slices, ids = self.batch.sequences[0].slices, self.tokens.all(tokens)
        self._context.making_room(lambda: self.metadata.write(slices, record, ids))
        self._context.on_step("explained")
        self.batch.part.shared.backing.flush()
        self._context.on_step("durable")

    def _stop_if_full(self) -> bool:
        """Save no more of a sequence whose session takes no more records; what the index names of it stays.

        In the model's thread. Raises CommandError, TargetError.
        """
        if self.full:
            self.batch.synchronize()
            self._fork()
            self.stop(self.full)
        return bool(self.full)

    def _fork(self) -> None:
        """What the index names stays a session of its own; the batch continues with a fork of it."""
        if self.number is not None:
            self.batch.sequences[:] = [sequence.fork() for sequence in self.batch.sequences]
            self.committed.detach()

    def _keep_in_memory(self, number: int) -> None:
        """The memory tier takes a copy of the session."""
        memory, entry = self._context.memory, self._context.stored.index.get(number)
        if memory is None or entry is None:
            return
        try:
            memory.keep(entry, self.batch)
        except KvdriveError as error:
            log.info("a session is not kept in memory: %s", error)

    def _begin_anew(self) -> None:
        """Its next session on the drives will be an empty one."""
        self.metadata.clear()
        self.full = ""
        self.tokens.rename()

    def _count_load(self) -> None:
        """If a load into memory has ended, the next choices know its rate."""
        if (load := self.batch.placement.load_ended()) is not None:
            self.strategy = "recompute" if load.late else "load"
            self._stats.late_loads += load.late
            self._stats.loaded_bytes += load.bytes
            self._stats.memory_loaded_bytes += load.bytes if load.from_memory else 0
            self._context.costs.loaded(load)

    def _save_if_due(self) -> None:
        """Save behind a call of the model, if enough tokens have come. Raises CommandError, TargetError."""
        every = self._context.every
        if self.layouts.with_state:
            if self._checkpoints.is_due(lambda: self.record.bytes_per_token):
                self.save_all()
        elif self._stored // every > self.saved // every:
            if self.batch.placement.drives_attend:
                self.save()
            else:
                self._save_behind()

    def _wanted_keys(self, ids: list[int]) -> list[int]:
        """The keys under which the governor knows a prompt, in whatever layout it would be stored."""
        return list(self.layouts.kv.chain.keys(ids))

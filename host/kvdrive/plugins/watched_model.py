"""A model that is watched for changes: K and V of what it was are not those of what it is."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

from kvdrive.errors import InputError
from kvdrive.identity.model import ModelIdentity
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.batch import Batch


class WatchedModel:
    """`identity`: the model's, which labels what is stored on the drives of `backing`. `fitted`: the name of an
    attention policy that was measured for the model; "": none was.

    `family`: the batches whose tokens the model has computed. `changed` is called after them.
    """

    def __init__(self, identity: ModelIdentity, backing: Backing, fitted: str) -> None:
        self.identity = identity
        self.family: WeakSet[Batch] = WeakSet()
        self.changed: Callable[[], None] | None = None
        self._backing = backing
        self._fitted = fitted

    def check(self) -> None:
        """Call it with each call of the model. Raises InputError as `look`."""
        if not self.identity.is_current():
            self._renew()

    def look(self) -> None:
        """Look closely, before what is stored is found or added to. Raises InputError where an attention policy was
        measured for what the model was.
        """
        if not self.identity.look():
            self._renew()

    def _renew(self) -> None:
        """The model may be another one now."""
        if not self.identity.renew():
            return
        self._backing.label = self.identity.value
        if self._backing.xcache is not None:
            self._backing.xcache.projections.forget()
        for batch in list(self.family):
            batch.model_changed("the model has changed since the sequence began")
        if self.changed is not None:
            self.changed()
        if self._fitted:
            raise InputError(
                f"the model has changed, and {self._fitted} attention was measured for what it was: detach it, and "
                "attach it again"
            )

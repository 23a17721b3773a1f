"""Who uses what, and when: the columns of an index by which eviction chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvdrive.database import Database
from kvdrive.prefix.accounts import Accounts
from kvdrive.prefix.owner import is_alive

Values = tuple[Any, ...]


class Usage:
    """`table` has the columns `id`, `used` (seconds since 1970), `tick` (the last use, counted over all uses), `uses`
    and `owner` (the process that still writes the item, or "").
    """

    def __init__(self, db: Database, table: str, accounts: Accounts, clock: Callable[[], float]) -> None:
        self._db = db
        self._table = table
        self._accounts = accounts
        self._clock = clock

    def note(self, column: str, values: Sequence[Any], change: str = "uses=uses+1") -> None:
        """Items were used, those whose `column` has one of `values`, the first one last. `change`: SQL for each."""
        now, last = self._clock(), self._accounts.ticks(len(values))
        rows = [(now, last - place, value) for place, value in enumerate(values)]
        self._db.write_many(f"UPDATE {self._table} SET used=?, tick=?, {change} WHERE {column}=?", rows)

    def forget_future(self) -> None:
        """Items used in the future, before the clock was set back, count as used now."""
        now = self._clock()
        self._db.write(f"UPDATE {self._table} SET used=? WHERE used>?", (now, now))

    def first(self, columns: str, order: str, condition: str, values: Values) -> Values | None:
        """`columns` of the first item that no process writes, in the SQL order `order`."""
        found = self._db.rows(
            f"SELECT {columns} FROM {self._table} WHERE owner='' AND {condition} ORDER BY {order} LIMIT 1", values
        )
        return found[0] if found else None

    def dead(self) -> list[str]:
        """Owners of items whose process has ended."""
        rows = self._db.rows(f"SELECT DISTINCT owner FROM {self._table} WHERE owner!=''")
        return [name for (name,) in rows if not is_alive(name)]

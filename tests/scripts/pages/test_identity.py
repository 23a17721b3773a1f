"""docs/design/runtime.md shows all lists of harmless things."""

from kvdrive.identity import harmless
from pages.identity import TABLES


def test_every_list_of_harmless_things_is_shown():
    lists = {name: value for name, value in vars(harmless).items() if name.isupper() and isinstance(value, dict)}
    shown = [table for _, table in TABLES]
    assert [name for name, value in lists.items() if not any(value is table for table in shown)] == []

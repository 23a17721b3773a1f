"""report.json: its content, and a layout that people can read."""

import json

from kvdrive.report.files import to_json


def test_arrays_of_plain_values_are_one_line():
    document = {"ids": [1, 2, 3], "text": ['a "b" [1, 2]', "c"], "rows": [[1, 2], [3]], "steps": [{"ns": [1.5, None]}]}
    text = to_json(document)
    assert json.loads(text) == document
    assert '  "ids": [1, 2, 3],' in text.splitlines()
    assert "    [1, 2]," in text.splitlines()
    assert '      "ns": [1.5, null]' in text.splitlines()

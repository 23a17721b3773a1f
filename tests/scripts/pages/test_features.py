"""The table of what servers do: OpenAI's column against the parameters of its official client, ours against tests."""

import json
import tomllib
from importlib import import_module

import pytest
from tests_that_run import is_run

from pages.features import FACTS, SMALLEST, ours, table

TYPES = {  # of the official client, imported where they are used
    "/v1/completions": "openai.types.completion_create_params:CompletionCreateParamsBase",
    "/v1/chat/completions": "openai.types.chat.completion_create_params:CompletionCreateParamsBase",
    "/v1/responses": "openai.types.responses.response_create_params:ResponseCreateParamsBase",
}
FEATURES = tomllib.loads(FACTS.read_text(encoding="utf-8"))["feature"]


@pytest.mark.parametrize("feature", [one for one in FEATURES if one["path"] in TYPES and "sent" in one])
def test_fields_are_those_of_the_official_client(feature):
    module, _, name = TYPES[feature["path"]].partition(":")
    known = {*getattr(import_module(module), name).__annotations__, "stream"}
    fields = json.loads(feature["sent"]).keys()
    assert (feature["openai"] == "yes") == (fields <= known), fields - known


@pytest.mark.parametrize("feature", FEATURES, ids=[one["name"] for one in FEATURES])
def test_what_this_server_does_is_shown_by_a_test_that_is_run(feature):
    """By `make test`: neither the test nor its file is left out."""
    if ours(feature).startswith("refused"):
        assert "test" not in feature
        return
    assert is_run(feature["test"])


def test_what_is_refused_here_is_named():
    answers = {one["name"]: ours(one) for one in FEATURES}
    assert answers["a field that is unknown"] == "refused: `wishes`"
    assert answers["`background`"] == "refused: `background`"
    assert answers["`n`: several choices"] == "yes"
    assert {one["path"] for one in FEATURES if "sent" in one} <= SMALLEST.keys()
    assert len(table().splitlines()) == len(FEATURES) + 4

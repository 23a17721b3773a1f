"""The table of what servers do: OpenAI's column against the parameters of its official client."""

import json
import tomllib

import pytest
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chats
from openai.types.responses import response_create_params as responses

from pages.features import FACTS, SMALLEST, ours, table

TYPES = {
    "/v1/completions": completions.CompletionCreateParamsBase,
    "/v1/chat/completions": chats.CompletionCreateParamsBase,
    "/v1/responses": responses.ResponseCreateParamsBase,
}
FEATURES = tomllib.loads(FACTS.read_text(encoding="utf-8"))["feature"]


@pytest.mark.parametrize("feature", [one for one in FEATURES if one["path"] in TYPES and "sent" in one])
def test_fields_are_those_of_the_official_client(feature):
    known = {*TYPES[feature["path"]].__annotations__, "stream"}
    fields = json.loads(feature["sent"]).keys()
    assert (feature["openai"] == "yes") == (fields <= known), fields - known


def test_what_is_refused_here_is_named():
    answers = {one["name"]: ours(one) for one in FEATURES}
    assert answers["a field that is unknown"] == "refused: `wishes`"
    assert answers["`background`"] == "refused: `background`"
    assert answers["`n`: several choices"] == "yes"
    assert {one["path"] for one in FEATURES if "sent" in one} <= SMALLEST.keys()
    assert len(table().splitlines()) == len(FEATURES) + 4

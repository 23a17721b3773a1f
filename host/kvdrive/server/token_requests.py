"""Requests about tokens, as llama.cpp's server has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field

from kvdrive.server.fields import Fields, Says

NamedModel = Annotated[
    str | None, Says("the name of a model, as /v1/models has it", "the model; needed where the server has several")
]


class TokenizeRequest(Fields):
    """`POST /tokenize`: the tokens of a text, as llama.cpp's server has it."""

    model: NamedModel = None
    content: Annotated[str, Says("a text", "what is tokenized")]
    add_special: Annotated[
        bool | None, Says("true or false", "true: with the tokens that the model wants first or last; default: false")
    ] = None
    parse_special: Annotated[
        bool | None, Says("true or false", "false: names of special tokens in the text are plain text; default: true")
    ] = None
    with_pieces: Annotated[
        bool | None, Says("true or false", "true: each token comes with its text, or its bytes where these are none")
    ] = None


class DetokenizeRequest(Fields):
    """`POST /detokenize`: the text of tokens, as llama.cpp's server has it."""

    model: NamedModel = None
    tokens: Annotated[
        list[Annotated[int, Field(ge=0)]], FailFast(), Says("a list of token numbers", "what the text is made of")
    ]

"""Fields that requests of several protocols have, with the same meaning and bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvdrive.server.fields import Says

MOST_TOOLS = 128
NAME = r"^[\w.-]{1,128}$"  # of a session
NAMED = "letters, digits, '_', '.' and '-', 128 at most"
Model = Annotated[str, Says("the name of a model, as /v1/models has it", "the model")]
Stream = Annotated[bool | None, Says("true or false", "true: the answer comes piece by piece")]
Temperature = Annotated[
    float | None,
    Field(ge=0, le=2, allow_inf_nan=False),
    Says("a number from 0 to 2", "0: always the most likely token; default: 1"),
]
TopP = Annotated[
    float | None,
    Field(gt=0, le=1, allow_inf_nan=False),
    Says("a number above 0 and up to 1", "samples from this share of the probability"),
]
TopK = Annotated[int | None, Field(ge=0), Says("a whole number, 0 or more", "samples from so many tokens; 0: from all")]
ParallelCalls = Annotated[bool | None, Says("true or false", "false: the answer has one call at most; default: true")]
MinP = Annotated[
    float | None,
    Field(ge=0, le=1, allow_inf_nan=False),
    Says("a number from 0 to 1", "samples from tokens at least so many times as likely as the most likely one"),
]
RepetitionPenalty = Annotated[
    float | None,
    Field(ge=0.01, le=10, allow_inf_nan=False),
    Says("a number from 0.01 to 10", "makes tokens of prompt and answer less likely; 1: not"),
]
Seed = Annotated[
    int | None,
    Field(ge=-(2**63), lt=2**63),
    Says("a whole number of 64 bits", "the same seed samples the same tokens; default: a random one"),
]
Session = Annotated[
    str | None,
    Field(pattern=NAME),
    Says(f"a name of {NAMED}", "keeps the sequence under this name, and goes on with it; see guide/server.md"),
]

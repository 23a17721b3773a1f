"""Fields that requests of several protocols have, with the same meaning and bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvdrive.server.fields import Says

MOST_TOOLS = 128
Model = Annotated[str, Says("the name of this server's model, as /v1/models has it", "the model")]
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

"""An agent of Pydantic AI on each protocol of the server: tools, turns, typed answers, streams."""

import asyncio
from importlib.util import find_spec
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict
from served_here import ServedHere

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("pydantic_ai") is None, reason="pydantic-ai is not installed: make get WHAT=pydantic-ai"
    ),
]
PROTOCOLS = ["chat completions", "responses", "messages"]
LIMITS = {"temperature": 0, "max_tokens": 200, "parallel_tool_calls": False}


class Report(BaseModel):
    """What the agent finds out."""

    model_config = ConfigDict(extra="forbid")  # a model of random weights would invent fields without end

    city: Literal["Oslo", "Rome"]
    rain: bool


def weather(city: Literal["Oslo", "Rome"], days: Literal[1, 2, 3]) -> str:
    """The weather of a city."""
    return f"sunny in {city} for {days} days"


def steps(context):
    """Settings of each step: the weather twice, then the report. A model of random weights has to be told."""
    return LIMITS | {"tool_choice": ["weather" if context.run_step <= 2 else "final_result"]}


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=4096)
    yield server
    server.close()


@pytest.fixture(params=PROTOCOLS)
def model(request, server):
    """The server's model as the framework asks it in one protocol."""
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    url = f"http://127.0.0.1:{server.port}"
    if request.param == "messages":
        provider = AnthropicProvider(base_url=url, api_key="none")
        return AnthropicModel("tiny", provider=provider, profile={"supports_json_schema_output": True})
    kind = OpenAIChatModel if request.param == "chat completions" else OpenAIResponsesModel
    return kind("tiny", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))


def agent_of(model, **options):
    from pydantic_ai import Agent

    return Agent(model, instructions="Be short.", **({"model_settings": LIMITS} | options))


def parts(messages, kind):
    """The parts of a kind in a conversation."""
    return [part for message in messages for part in message.parts if part.part_kind == kind]


def test_an_agent_calls_tools_and_gives_a_typed_answer(model):
    agent = agent_of(model, tools=[weather], output_type=Report, model_settings=steps)

    async def two_turns():
        first = await agent.run("Does it rain?")
        return first, await agent.run("And at night?", message_history=first.all_messages())

    first, second = asyncio.run(two_turns())
    calls, results = parts(first.all_messages(), "tool-call"), parts(first.all_messages(), "tool-return")
    assert [one.tool_name for one in calls] == ["weather", "weather", "final_result"]
    assert [one.content for one in results[:2]] == [weather(**one.args_as_dict()) for one in calls[:2]]
    assert isinstance(first.output, Report)
    assert Report(**calls[2].args_as_dict()) == first.output
    assert (first.usage.requests, first.usage.tool_calls) == (3, 2)
    assert len(parts(second.all_messages(), "tool-call")) == 6
    assert isinstance(second.output, Report)
    assert second.usage.cache_read_tokens >= 0.8 * second.usage.input_tokens


def test_a_streamed_run_gives_what_the_whole_one_gives(model):
    agent = agent_of(model, tools=[weather], output_type=Report, model_settings=steps)

    async def both():
        async with agent.run_stream("Does it rain?") as run:
            pieces = [one async for one in run.stream_output(debounce_by=None)]
        return run, pieces, await agent.run("Does it rain?")

    run, pieces, whole = asyncio.run(both())
    assert pieces[-1] == whole.output
    called = [
        [(one.tool_name, one.args_as_dict()) for one in parts(of.all_messages(), "tool-call")] for of in (run, whole)
    ]
    assert called[0] == called[1]
    assert run.usage.output_tokens == whole.usage.output_tokens


def test_streamed_text_adds_up_to_the_whole_answer(model):
    agent = agent_of(model, model_settings=LIMITS | {"max_tokens": 16})

    async def both():
        async with agent.run_stream("Does it rain?") as run:
            pieces = [one async for one in run.stream_text(delta=True, debounce_by=None)]
        return pieces, await agent.run("Does it rain?")

    pieces, whole = asyncio.run(both())
    assert len(pieces) > 1
    assert "".join(pieces) == whole.output


def test_an_answer_keeps_to_the_schema_of_its_type(model):
    """The framework sends tools and a format in each step: an answer is a call, or JSON."""
    from pydantic_ai import NativeOutput

    def steps(context):
        return LIMITS | {"tool_choice": ["weather"] if context.run_step == 1 else "none"}

    agent = agent_of(model, tools=[weather], output_type=NativeOutput(Report), model_settings=steps)

    async def both():
        async with agent.run_stream("Does it rain?") as run:
            pieces = [one async for one in run.stream_output(debounce_by=None)]
        return pieces[-1], await agent.run("Does it rain?")

    streamed, whole = asyncio.run(both())
    assert [one.tool_name for one in parts(whole.all_messages(), "tool-call")] == ["weather"]
    assert isinstance(whole.output, Report)
    assert streamed == whole.output

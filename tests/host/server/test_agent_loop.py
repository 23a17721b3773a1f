"""A coding agent's loop: what of each prompt is on the drive already. Asked by the official clients of both APIs."""

import json
from itertools import pairwise

import pytest
from served_here import ServedHere

READ = {
    "type": "object",
    "properties": {"file": {"enum": ["a.py", "b.py", "c.py"]}},
    "required": ["file"],
    "additionalProperties": False,
}
TASK = "Make the tests of this project pass. " * 8
LINES = "assert 1 + 1 == 2\n"


@pytest.fixture(scope="module")
def server(tools_checkpoint, tmp_path_factory):
    server = ServedHere(tools_checkpoint, tmp_path_factory.mktemp("drives"), context=4096)
    yield server
    server.close()


class OpenAIAgent:
    """Sends what the client gives back, with arguments spelled anew as many frameworks do."""

    def __init__(self, package, server):
        self.client = package.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        self.messages = [{"role": "user", "content": TASK}]
        self.tools = [{"type": "function", "function": {"name": "read", "parameters": READ}}]

    def turn(self):
        answer = self.client.chat.completions.create(
            model="tiny", messages=self.messages, tools=self.tools, tool_choice="required", parallel_tool_calls=False,
            temperature=0,
        )  # fmt: skip
        (call,) = answer.choices[0].message.tool_calls
        given = json.dumps(json.loads(call.function.arguments), indent=1)
        said = {"id": call.id, "type": "function", "function": {"name": "read", "arguments": given}}
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [said]})
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": LINES})
        return answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens


class AnthropicAgent:
    """The same as Anthropic's clients do it."""

    def __init__(self, package, server):
        self.client = package.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0)
        self.messages = [{"role": "user", "content": f"{TASK}\n"}]
        self.tools = [{"name": "read", "input_schema": READ}]

    def turn(self):
        answer = self.client.messages.create(
            model="tiny", messages=self.messages, tools=self.tools, max_tokens=100,
            tool_choice={"type": "tool", "name": "read"}, extra_body={"temperature": 0},
        )  # fmt: skip
        (call,) = answer.content
        result = {"type": "tool_result", "tool_use_id": call.id, "content": LINES}
        self.messages.append({"role": "assistant", "content": [call.model_dump(exclude_none=True)]})
        self.messages.append({"role": "user", "content": [result]})
        found = answer.usage.cache_read_input_tokens
        return answer.usage.input_tokens + found, found


@pytest.fixture(params=["openai", "anthropic"])
def agent(request, server):
    """An agent with the official client of that name."""
    kind = {"openai": OpenAIAgent, "anthropic": AnthropicAgent}[request.param]
    agent = kind(request.getfixturevalue(request.param), server)
    yield agent
    agent.client.close()


@pytest.mark.parametrize(("count", "wanted"), [(3, 0.8), pytest.param(30, 0.95, marks=pytest.mark.slow)])
def test_nearly_all_of_each_prompt_is_on_the_drive(agent, count, wanted):
    """From the second turn on, only the last call and what the tool has given are computed."""
    turns = [agent.turn() for _ in range(count)]
    share = sum(found for _, found in turns[1:]) / sum(prompt for prompt, _ in turns[1:])
    assert share >= wanted, turns
    assert all(found >= before for (before, _), (_, found) in pairwise(turns)), turns

"""Users, an agent's loop and the layers of a step, on a server of the shipped model: counts, not times."""

import os

import pytest
from served_here import ServedHere

from bench.server import agent, layers
from bench.server.servers import Running
from bench.server.users import Prompts, ask, together
from kvdrive.errors import InputError


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    served = ServedHere("mini", tmp_path_factory.mktemp("drives"), context=1024, slots=4)
    yield Running(served.port, "tiny", os.getpid())
    served.close()


def test_no_two_prompts_begin_alike():
    prompts, same = Prompts(40), Prompts(40)
    found = prompts.take(3) + prompts.take(200)
    assert found == same.take(203)
    assert len({one[:4] for one in found}) == 203


def test_an_answer_comes_piece_by_piece_and_is_counted(server):
    seen = ask(server, "/v1/completions", prompt="The drive keeps", max_tokens=8)
    assert seen.usage["completion_tokens"] <= 8
    assert seen.text
    assert seen.cached < seen.usage["prompt_tokens"]
    with pytest.raises(InputError, match="400"):
        ask(server, "/v1/completions", prompt="x", wishes=1)


def test_all_users_get_their_tokens(server):
    found = together(server, Prompts(60).take(4), 6, ignore_eos=True)
    assert found["tokens"] == 24
    assert found["second_per_token"] == pytest.approx(found["seconds"] / 24)


def test_a_loop_computes_little_of_what_it_sends(server):
    found = agent.loop(server, Prompts(150), agent.Work(5, 150, 4, 1))
    assert found["last_new"] < found["last"] / 2
    assert found["computed"] < found["prompt"] / 2


def test_steps_are_counted_with_a_schema_and_without(server):
    rounds = layers.measure(server, 2, layers.Work((2,), 6, 1)).rounds
    assert {name: one["tokens"] for name, one in rounds[0].items()} == {layers.PLAIN: 12, layers.SCHEMA: 12}
    assert all(one["seconds"] > 0 for one in rounds[0].values())

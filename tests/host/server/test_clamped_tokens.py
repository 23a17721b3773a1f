"""A request for more tokens than there is room for is refused, or gets as many as there is, as the owner says."""

from contextlib import closing

from served_here import CONTEXT, ServedHere


def test_more_tokens_than_fit_are_refused_or_fewer(checkpoint, tmp_path):
    wish = {"prompt": [5] * 10, "max_tokens": 1_000_000, "ignore_eos": True}
    with closing(ServedHere(checkpoint, tmp_path / "a", keep=False)) as server:
        refused = server.complete(**wish)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_tokens")
    with closing(ServedHere(checkpoint, tmp_path / "b", keep=False, clamps=True)) as server:
        answer = server.complete(**wish).json()
        assert answer["usage"]["completion_tokens"] == CONTEXT - 10
        assert answer["choices"][0]["finish_reason"] == "length"
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5000, "min_tokens": 4000}
        refused = server.client.post("/v1/chat/completions", json={"model": "tiny", **chat})
        assert refused.json()["error"]["param"] == "max_tokens"
        long = server.complete(prompt=[5] * CONTEXT, max_tokens=1)
        assert long.json()["error"]["param"] == "prompt"

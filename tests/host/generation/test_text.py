"""Streamed text is the decoded text, in pieces that are whole characters."""

import pytest
from transformers import AutoTokenizer

from kvdrive.generation.text import TextStream

SAMPLES = ["größere Zwölf 🙂🙂 日本語 の 文字 end", "a", "", "  two  spaces\n\nnew\tlines ", "🙂"]


@pytest.mark.parametrize("text", SAMPLES)
def test_pieces_join_to_the_text(checkpoint, text):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    stream = TextStream(tokenizer)
    pieces = [stream.put(token) for token in tokenizer(text)["input_ids"]]
    assert "".join(pieces) + stream.end() == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_special_tokens_are_silent_and_a_broken_end_is_shown(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    stream = TextStream(tokenizer)
    emoji = tokenizer("🙂")["input_ids"]
    assert len(emoji) > 1
    assert stream.put(0) == ""  # <end>
    assert stream.put(emoji[0]) == ""
    assert stream.end() == "\ufffd"

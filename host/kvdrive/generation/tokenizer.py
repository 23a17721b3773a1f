"""What text and tokens of a model are asked, whichever library translates them. transformers' tokenizers fulfil it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


class Tokenizer(Protocol):
    """Names and meanings are those of transformers' PreTrainedTokenizerBase. Any thread may call.

    `chat_template`: Jinja; None: messages have no form of their own. `all_special_ids`: tokens that stand for no text.
    """

    chat_template: Any
    bos_token: str | None
    eos_token: str | None

    @property
    def all_special_ids(self) -> Sequence[int]: ...

    @property
    def all_special_tokens(self) -> Sequence[str]: ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...

    def __len__(self) -> int: ...

    def __call__(
        self, text: str, *, add_special_tokens: bool = True, split_special_tokens: bool = False, verbose: bool = True
    ) -> Mapping[str, Any]:
        """`input_ids`: the tokens of a text. Names of special tokens in it stand for these, unless they are split."""

    def decode(
        self, tokens: Sequence[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """The text of tokens. Bytes that are no character are written as U+FFFD."""

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """What the vocabulary calls a token, or each of several."""

    def get_vocab(self) -> dict[str, int]:
        """All tokens by these names."""

    def get_added_vocab(self) -> dict[str, int]:
        """Of these, the tokens that a name in a text stands for."""

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: bool, add_generation_prompt: bool, **more: Any
    ) -> str:
        """Messages as one text. Raises any error for what the template does not support."""


class Pieces(Protocol):
    """The bytes of all tokens, as llguidance takes them. `tokens`: by number. `special_token_ids`: have no text."""

    tokens: Sequence[bytes]
    special_token_ids: Sequence[int]
    bos_token_id: int | None
    eos_token_id: int

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text, without special ones."""


@runtime_checkable
class Spelled(Protocol):
    """A tokenizer that is none of transformers', and says itself which bytes its tokens are."""

    def pieces(self) -> Pieces:
        """See Pieces."""

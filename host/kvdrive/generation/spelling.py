"""Different tokens of the same text: a model may sample other tokens than the tokenizer makes of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from kvdrive.prefix.chain import common_length

if TYPE_CHECKING:
    from kvdrive.generation.tokenizer import Tokenizer

Pieces = Callable[[Sequence[int]], list[str]]  # what each token adds to the text; of special ones: what no other adds


def as_held(tokenizer: Tokenizer, ids: list[int], held: Sequence[int]) -> list[int]:
    """The text of `ids`, whose beginning is spelled with the tokens `held` as far as these spell the same text.

    So a prompt begins with the tokens that a session holds, though the client has sent their text. Special tokens are
    equal to themselves only, never to their name in the text.
    """
    return respelled(partial(_pieces, tokenizer), ids, held)


def respelled(pieces_of: Pieces, ids: list[int], held: Sequence[int]) -> list[int]:
    """`as_held` for any tokenizer."""
    same = common_length(ids, held)
    pieces, others = pieces_of(held[same:]), pieces_of(ids[same:])
    common = common_length("".join(pieces), "".join(others))
    ends = {end: place for place, end in enumerate(accumulate(map(len, others)), 1) if end <= common}
    for count, end in reversed(list(enumerate(accumulate(map(len, pieces)), 1))):
        if end in ends:
            return [*held[: same + count], *ids[same + ends[end] :]]
    return ids


def _pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """What each token contributes to the text, in the letters of the vocabulary."""
    special = set(tokenizer.all_special_ids)
    names: list[str | None] = tokenizer.convert_ids_to_tokens(list(ids))
    return [f"\0{one}\0" if one in special or name is None else name for one, name in zip(ids, names, strict=True)]

"""Generation one token at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several

from kvdrive.generation.sampling import Chooser, Sampling
from kvdrive.llama.context import Sequence


def steps(
    sequence: Sequence,
    ids: Several[int],
    new_tokens: int,
    sampling: Sampling,
    *,
    ignore_stop: bool = False,
    on_tokens: Callable[[int], None] = lambda count: None,
) -> Iterator[int]:
    """Compute `ids` behind the tokens of `sequence`, and continue them: each new token as it is chosen.

    Ends behind a token that ends the text, unless `ignore_stop`, or when the iterator is closed. The last token is not
    computed. Raises as `Sequence.extend` does.
    """
    choose = Chooser(sampling)
    computed = list(ids)
    for _ in range(new_tokens):
        token = choose(sequence.extend(computed, on_tokens))
        yield token
        if not ignore_stop and sequence.model.vocabulary.ends(token):
            return
        computed = [token]

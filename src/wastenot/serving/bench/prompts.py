"""Prompts of a wanted length, without the server's tokenizer: how many tokens a word has is asked of the server.

Words are drawn at random and no two prompts begin alike, so that a server's prefix cache saves nothing.
"""

from __future__ import annotations

import numpy as np

_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea body information back parent face others
level office door health person art war history party result change morning reason research girl guy moment air teacher
force education foot boy age policy music market sense nation plan college interest death course someone experience
behind effect use class control care field development role effort rate heart drug show leader light voice wife police
mind price report decision son view relationship town road arm difference value building action model season society tax
director position player record paper space ground form event official matter center couple site project activity star
table need court oil situation cost industry figure street image phone data picture
""".split()  # noqa: SIM905
_POOL = 1 << 16


class Prompts:
    """Texts of random words.

    Args:
        tokens_per_word: of the server's tokenizer, on average.
        tokens_beside: of each prompt that are not of its words, such as a chat's template.
        seed: of the words.
    """

    def __init__(self, tokens_per_word: float = 1.0, tokens_beside: float = 0.0, *, seed: int = 0) -> None:
        self.tokens_per_word = tokens_per_word
        self.tokens_beside = tokens_beside
        self._rng = np.random.default_rng([seed, 0x70726F])
        self._pool = [_WORDS[index] for index in self._rng.integers(0, len(_WORDS), _POOL)]

    def of_words(self, words: int) -> str:
        """A text of so many words."""
        start = int(self._rng.integers(0, _POOL))
        turned = self._pool[start : start + words]
        while len(turned) < words:
            turned = turned + self._pool[: words - len(turned)]
        # Two prompts may start at the same place of the pool: their first words are drawn anew.
        first = [_WORDS[index] for index in self._rng.integers(0, len(_WORDS), min(4, words))]
        return " ".join([*first, *turned[len(first) :]])

    def of_length(self, tokens: int) -> str:
        """A text of about so many tokens."""
        return self.of_words(max(round((tokens - self.tokens_beside) / self.tokens_per_word), 1))

"""Published sizes of the GPT-3 and Llama families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["gpt3", "llama"]


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder-only transformer.

    Attributes:
        name: such as ``gpt3-xl``.
        family: which kernels it is made of.
        layers: transformer layers.
        width: of a token's representation (d_model).
        heads: query heads.
        groups: key and value heads (grouped-query attention where fewer than ``heads``).
        hidden: width of the feed-forward layer.
        vocabulary: rows of the token table, padded as implementations pad it.
        positions: rows of the learned position table; 0 where positions are not learned.
        tied: whether the output layer is the token table.
        source: where the sizes are published.
    """

    name: str
    family: Family
    layers: int
    width: int
    heads: int
    groups: int
    hidden: int
    vocabulary: int
    positions: int
    tied: bool
    source: str

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    def layer_parameters(self, degree: int = 1) -> int:
        """Parameters of one layer that each of ``degree`` tensor-parallel GPUs holds.

        Matrices are split, and biases of split columns with them; other biases and norms are whole on each.
        """
        qkv = (self.heads + 2 * self.groups) * self.head_width
        attention = self.width * qkv + self.width**2
        if self.family == "gpt3":
            split = attention + 2 * self.width * self.hidden + qkv + self.hidden
            return split // degree + 2 * self.width + 4 * self.width
        return (attention + 3 * self.width * self.hidden) // degree + 2 * self.width

    def outer_parameters(self, sequence: int = 0) -> int:
        """Parameters outside the layers: the tables, the last norm and an output layer of its own.

        Args:
            sequence: tokens that a learned position table must have room for.
        """
        tables = self.vocabulary * (1 if self.tied else 2)
        if self.family == "gpt3":
            return (tables + max(self.positions, sequence) + 2) * self.width
        return (tables + 1) * self.width

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return self.layers * self.layer_parameters() + self.outer_parameters()


_GPT3 = "Brown et al. 2020 (arXiv 2005.14165), Table 2.1"
_LLAMA2 = "Touvron et al. 2023 (arXiv 2302.13971 and 2307.09288)"
_LLAMA3 = "Llama 3 herd of models 2024 (arXiv 2407.21783) and the model cards of 3.1 and 3.2"
_GPT3_VOCABULARY = 50_304  # 50,257 padded to a multiple of 128, as llm.c does
_GPT3_POSITIONS = 2048
_LLAMA2_VOCABULARY, _LLAMA3_VOCABULARY = 32_000, 128_256


def _gpt3(name: str, layers: int, width: int, heads: int, source: str = _GPT3) -> Model:
    vocabulary, positions = _GPT3_VOCABULARY, _GPT3_POSITIONS
    return Model(f"gpt3-{name}", "gpt3", layers, width, heads, heads, 4 * width, vocabulary, positions, True, source)


def _llama(
    name: str, layers: int, width: int, heads: int, groups: int, hidden: int, vocabulary: int, *, tied: bool = False
) -> Model:
    source = _LLAMA2 if vocabulary == _LLAMA2_VOCABULARY else _LLAMA3
    return Model(f"llama-{name}", "llama", layers, width, heads, groups, hidden, vocabulary, 0, tied, source)


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        _gpt3("small", 12, 768, 12),
        _gpt3("medium", 24, 1024, 16),
        _gpt3("large", 24, 1536, 16),
        # The published 24 heads of 128 do not make a width of 2,048; llm.c, which the DVFS paper ran, takes 16.
        _gpt3("xl", 24, 2048, 16, _GPT3 + "; heads as in llm.c"),
        _gpt3("2.7b", 32, 2560, 32),
        _gpt3("6.7b", 32, 4096, 32),
        _gpt3("13b", 40, 5120, 40, _GPT3 + "; width 5,120 = 40 heads of 128, where the table prints 5,140"),
        _gpt3("175b", 96, 12288, 96),
        _llama("1b", 16, 2048, 32, 8, 8192, _LLAMA3_VOCABULARY, tied=True),
        _llama("3b", 28, 3072, 24, 8, 8192, _LLAMA3_VOCABULARY, tied=True),
        _llama("7b", 32, 4096, 32, 32, 11_008, _LLAMA2_VOCABULARY),
        _llama("8b", 32, 4096, 32, 8, 14_336, _LLAMA3_VOCABULARY),
        _llama("13b", 40, 5120, 40, 40, 13_824, _LLAMA2_VOCABULARY),
        _llama("70b", 80, 8192, 64, 8, 28_672, _LLAMA3_VOCABULARY),
    )
}

"""Counts have the right number, no words run together where a text is written in parts, and pages use the field's words."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from wastenot.core.suggest import nearest, suggestion
from wastenot.core.wording import counted

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "wastenot"
# What README, pages and the program do not say, and what they say instead; docs/glossary.md has the field's words.
_INSTEAD = {
    r"\b(?:keep|keeps|kept|keeping) the slowdown": "stays within the slowdown limit",
    r"\b9\d(?:\.\d+)? % (?:of the requests )?in time\b": "99.7 % of requests met their deadlines",
    r"\bleast energy in time\b": "lowest energy that meets the deadlines",
    r"\b(?:jobs?|training) that comes? back\b": "recurring jobs",
    r"\bgreatest clock": "maximum clock",
    r"\bcomposed of (?:\w+ )?kernels\b": "estimated from kernel measurements",
    r"\bas slow as (?:they|the device's) ": "at today's switching speed",
    r"\bwhat the rest needs\b": "what faster switching would add",
    r"\bwere switching free\b": "if switching were free",
    r"\b(?:row|line|file|box) a (?:rank|kernel|stage)\b": "one row per rank",
    r"\bknown well enough\b": "search finished",
    r"\bmend(?:s|ed)?\b": "fix",
    r"\bdrawn requests\b": "random requests",
    r"\bso many\b": "X or N",
    r"\b[Aa] plan at work\b|\b[Pp]uts? (?:a|the) plan to work\b": "applying a plan",
    r"\b(?:goes|go) on\b": "continues",
    r"\bthe whole way\b": "the whole loop",
    r"\bseconds a kernel\b|\brequests a second\b|\bJ a token\b": "per",
    r"\bput to work\b": "applied",
    r"\banew\b(?!:)": "again",
    r"\bas they stand\b": "as measured",
    r"\bbroken off\b": "interrupted or abandoned",
    r"\bh[ua]ng up\b": "disconnected",
    r"\bnext to nothing\b": "almost nothing",
    r"\b(?:is|are) there (?:already|twice)\b": "exists already, or appears twice",
    r"\bmust be \S+ at (?:least|most)\b": "must be at least N",
    r"\bcome upon\b": "unsafe when a prompt arrives",
    r"\boracle is none\b": "excludes the oracle, which cannot be built",
    r"\breaders'? (?:pay|expense|time)\b": "saved at users' expense",
}
# Where a text is over, or the next part begins with its own space.
_GOES_ON = {("forecast.py", "only the default clocks (auto)")}


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "kernel", "1 kernel"), (0, "kernel", "0 kernels"), (2, "pass", "2 passes"),
     (1234, "measured row", "1,234 measured rows"), (1, "pass", "1 pass"), (3, "switch", "3 switches")],
)  # fmt: skip
def test_counts(number, noun, text):
    assert counted(number, noun) == text


# What two literals that meet without a space look like; only where there are any, all tokens are read.
_MAY_MEET = re.compile(r"""[\w}).,;:]["'](?:\s|\\\n|\#[^\n]*\n)*[rbfu]*["']+[\w{(]""", re.IGNORECASE)


def run_together(source):
    """Adjacent string literals whose parts meet without a space between two words."""
    if not _MAY_MEET.search(source):
        return
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in (tokenize.NL, tokenize.COMMENT)
    ]
    for one, other in pairwise(tokens):
        if one.type == other.type == tokenize.STRING:
            ends = re.sub(r"(\"\"\"|\"|')$", "", one.string)
            begins = re.sub(r"^[rbfu]*(\"\"\"|\"|')", "", other.string, flags=re.IGNORECASE)
            if re.search(r"[\w}).,;:]$", ends) and re.search(r"^[\w{(]", begins):
                yield one.start[0], ends


def test_no_words_run_together():
    assert list(run_together('x = ("the memory clock" "not now")')) == [(1, '"the memory clock')]
    found = {(path.name, text) for path in SRC.rglob("*.py") for _, text in run_together(path.read_text())}
    assert [text for name, text in found if not any(name == f and text.endswith(end) for f, end in _GOES_ON)] == []


def test_the_nearest_name_counts_whatever_its_hyphens():
    assert nearest("All_Reduce", ("gemm", "all-reduce")) == "all-reduce"
    assert nearest("xyz", ("gemm", "all-reduce")) is None
    assert suggestion("gemmm", ("gemm", "gelu")) == "did you mean 'gemm'? There are: gemm, gelu"
    assert suggestion("xyz", ("gemm", "gemv")) == "there are: gemm, gemv"


def prose(page: str) -> str:
    """A page without what programs print and people type: blocks of code, indented or fenced."""
    return re.sub(r"^```.*?^```|^    .*?$", "", page, flags=re.MULTILINE | re.DOTALL)


def worse_words(name: str, text: str) -> list[str]:
    """What a text says that has a better word, each with where it stands and that word."""
    words = " ".join(text.split())
    return [f"{name}: '{match[0]}': {better}" for worse, better in _INSTEAD.items() for match in re.finditer(worse, words)]


def test_pages_use_the_words_of_the_field():
    assert prose("one\n```\ntwo\n```\n    three\nfour") == "one\n\n\nfour"
    assert worse_words("page.md", "it goes\non") == ["page.md: 'goes on': continues"]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert [each for page in pages for each in worse_words(page.name, prose(page.read_text()))] == []


def literals(source: str) -> Iterator[str]:
    """What a module says: docstrings and string literals, adjacent ones as one; for what is formatted in stands ``{}``."""
    nodes = list(ast.walk(ast.parse(source)))
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for node in formatted:
        yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def test_the_program_uses_the_words_of_the_field():
    source = 'def f(x):\n    """It goes\n    on."""\n    return f"so " f"many: {x}"  # not anew'
    assert sorted(literals(source)) == ["It goes\n    on.", "so many: {}"]
    texts = ((path, " | ".join(literals(path.read_text()))) for path in sorted(SRC.rglob("*.py")))
    assert [each for path, text in texts for each in worse_words(str(path.relative_to(SRC)), text)] == []

"""What a shell completes beside commands, options and choices: names of models, devices and kernels. Imports nothing heavy.

Typer talks to bash, zsh and fish. Two things are added: the shell may be named, and ``sim:h200``, three words to bash, is
completed as one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from pathlib import Path

from typer import _completion_classes

from wastenot.core.errors import BadInputError
from wastenot.core.vendors import with_drivers
from wastenot.workloads.kernel import DTYPE_BYTES
from wastenot.workloads.models import MODELS

_FLAGS = ("--install-completion", "--show-completion")
_SHELLS = ("bash", "zsh", "fish")
_ASKED = "_WASTENOT_COMPLETE"
_WORDS, _INDEX = "COMP_WORDS", "COMP_CWORD"
_SHELL_IS_NAMED = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"  # lets Typer's flags take the shell's name
_BREAKS = {":", "="}

Names = Callable[[str], list[str]]


def one_of(*names: str) -> Names:
    """Completes names of a list."""

    def starting(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return starting


dtypes = one_of(*DTYPE_BYTES)
phases = one_of("training", "prefill", "decode")
attentions = one_of("unfused", "flash", "cudnn", "efficient")
optimizers = one_of("none", "adamw")


def workloads(incomplete: str) -> list[str]:
    """Models, and files here that hold a captured workload or a study."""
    return [*one_of(*MODELS)(incomplete), *files_here(incomplete, (".json", ".db"))]


def kernels(incomplete: str) -> list[str]:
    """What ``profile`` takes: kernels by themselves, with a size to change, and models to name a kernel of."""
    sizes = ("gemm:4096", "gemm:8192", "gemv:4096", "gemv:8192", "all-reduce:512MB", "all-gather:512MB")
    return one_of(*sizes, *(f"{model}:" for model in MODELS))(incomplete)


def simulated(incomplete: str) -> list[str]:
    """Simulated GPUs."""
    from wastenot.devices.simulated.basis import preset_names

    return one_of(*(f"sim:{name}" for name in preset_names()))(incomplete)


def devices(incomplete: str) -> list[str]:
    """Simulated GPUs and those here, recordings and the first GPU of each vendor."""
    if incomplete.startswith("recorded:"):
        return [f"recorded:{name}" for name in files_here(incomplete.removeprefix("recorded:"), (".db",))]
    own = (
        [f"sim:{name}" for name in files_here(incomplete.removeprefix("sim:"), (".toml",))]
        if incomplete[:4] == "sim:"
        else []
    )
    return [
        *one_of(*(f"{vendor.name}:0" for vendor in with_drivers()), "recorded:")(incomplete),
        *simulated(incomplete),
        *own,
    ]


def files_here(incomplete: str, endings: Iterable[str]) -> list[str]:
    """Folders, and files of these endings."""
    folder, _, begins = incomplete.rpartition("/")
    try:
        found = sorted(path.name for path in Path(folder or ("/" if incomplete[:1] == "/" else ".")).iterdir())
    except OSError:
        return []
    prefix = incomplete[: len(incomplete) - len(begins)]
    return [prefix + name for name in found if name.startswith(begins) and name.endswith(tuple(endings))]


def _unchanged(text: str) -> str:
    return text


def complete(app: Callable[[], object]) -> str | None:
    """The answer to bash where it asks about a word that it has taken apart, else ``None``.

    Args:
        app: answers on stdout, according to the environment.
    """
    if _ASKED in os.environ:
        # Typer has rich remove markup from descriptions, which takes 0.1 s at each key; ours have none.
        _completion_classes._sanitize_help_text = _unchanged
    if os.environ.get(_ASKED) != "complete_bash":
        return None
    typed = os.environ.get(_WORDS, "").split("\n")
    words, index, before = _joined(typed, int(os.environ.get(_INDEX, "0")))
    if len(words) == len(typed):
        return None
    os.environ |= {_WORDS: "\n".join(words), _INDEX: str(index)}
    answer = io.StringIO()
    with redirect_stdout(answer), suppress(SystemExit):  # Typer ends the process once it has answered
        app()
    return "\n".join(line.removeprefix(before) for line in answer.getvalue().splitlines())


def _joined(words: list[str], index: int) -> tuple[list[str], int, str]:
    """Words as the user typed them, the index of the current one, and what bash already has of its value."""
    joined: list[str] = []
    current, stays = 0, ""
    glued = False
    for number, word in enumerate(words):
        is_break = word in _BREAKS and bool(joined)
        if is_break or glued:
            joined[-1] += word
        else:
            joined.append(word)
        if number == index:
            current = len(joined) - 1
            stays = joined[-1] if is_break else joined[-1].removesuffix(word)
        glued = is_break
    if stays.startswith("-"):
        stays = stays.partition("=")[2]
    return joined, current, stays


def name_the_shell(arguments: list[str]) -> list[str]:
    """Arguments in which the flags about completion name the shell: as given, else the one that runs this.

    Raises:
        BadInputError: it is not known which shell that is, or it is none of those that are known.
    """
    flag = next((argument for argument in arguments[:1] if argument in _FLAGS), None)
    if flag is None:
        return arguments
    import shellingham  # type: ignore[import-untyped]  # comes with Typer, for the same purpose

    shell = arguments[1] if len(arguments) > 1 else ""
    if not shell:
        try:
            shell = shellingham.detect_shell()[0]
        except shellingham.ShellDetectionFailure:
            raise BadInputError(f"{flag}: cannot tell which shell this is; give it: {flag} bash, zsh or fish") from None
    if shell not in _SHELLS:
        raise BadInputError(f"{flag} {shell}: completion is available for bash, zsh and fish; give one: {flag} bash")
    os.environ[_SHELL_IS_NAMED] = "1"
    return [flag, shell]

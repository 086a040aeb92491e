"""The command that installs what is missing, in the words that work where wastenot was installed."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path


def install_line(*extras: str) -> str:
    """The command that adds extras to this installation, such as ``pip install 'wastenot[report]'``.

    Pip adds the extras of a package that is already installed without asking an index for the package itself, so the same
    line serves a clone, a wheel and an index. A source tree that is not installed is installed from its folder.

    Args:
        extras: their names, such as ``report``.
    """
    wanted = f"[{','.join(extras)}]"
    try:
        distribution("wastenot")
    except PackageNotFoundError:
        return f"{installer()} {shlex.quote(f'{Path(__file__).parents[3]}{wanted}')}"
    return f"{installer()} 'wastenot{wanted}'"


def installer() -> str:
    """The command that installs packages beside wastenot: of pip, or of uv where there is no pip."""
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(sys.executable)}"
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{shlex.quote(sys.executable)} -m pip install"

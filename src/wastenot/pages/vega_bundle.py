"""The scripts that draw figures on a page, kept between runs since putting them together takes seconds."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from wastenot.core.errors import BadInputError
from wastenot.core.files import write_text
from wastenot.pages.figure import vega_lite_version
from wastenot.pages.optional_imports import load


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    converter, version = load("vl_convert"), vega_lite_version()
    kept = None
    with suppress(OSError, RuntimeError, UnicodeDecodeError):  # what was not kept, or cannot be, is made again
        kept = _cache_folder() / f"vega-lite-{version}-by-vl-convert-{converter.__version__}.js"
        return kept.read_text(encoding="utf-8")
    bundle: str = converter.javascript_bundle(vl_version=version)
    bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if kept is not None:
        with suppress(OSError, BadInputError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, bundle)
    return bundle


def _cache_folder() -> Path:
    """Wastenot's folder in the user's XDG cache directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "wastenot"

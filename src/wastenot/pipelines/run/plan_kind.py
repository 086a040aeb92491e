"""Whether a plan is a pipeline's, and of how many ranks: a look at its file, before anything is opened."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from wastenot.core.errors import BadInputError

_SCHEMA = "wastenot.pipeline/"


def is_pipeline_plan(plan: object) -> bool:
    """Whether something is a pipeline's plan, or the file of one; a file that cannot be read is none."""
    return _document(plan) is not None or str(getattr(plan, "schema_", "")).startswith(_SCHEMA)


def ranks_of(plan: object) -> int:
    """How many ranks a pipeline's plan has.

    Raises:
        BadInputError: it has none.
    """
    document = _document(plan)
    ranks = getattr(plan, "ranks", ()) if document is None else document.get("ranks")
    if not isinstance(ranks, list | tuple) or not ranks:
        raise BadInputError(f"{plan}: a pipeline's plan without ranks; make it again with 'wastenot pipeline plan'")
    return len(ranks)


def _document(plan: object) -> dict[str, Any] | None:
    if not isinstance(plan, str | os.PathLike):
        return None
    with suppress(OSError, ValueError):
        content = json.loads(Path(plan).read_text(encoding="utf-8"))
        if isinstance(content, dict) and str(content.get("schema", "")).startswith(_SCHEMA):
            return content
    return None

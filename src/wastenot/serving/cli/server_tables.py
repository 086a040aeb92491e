"""``wastenot study import`` of a table of servers: operating points as other benchmarks write them."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLUMNS = ("model_id", "energy_per_token_joules", "median_itl_ms")  # that no sweep has
_LOOKED_AT = 8192  # bytes; a header is shorter


def is_server_table(file: Path) -> bool:
    """Whether a file is a table of servers, and no sweep: by the names of its columns, or because it is JSON."""
    try:
        with file.open("rb") as opened:
            start = opened.read(_LOOKED_AT).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False  # whoever reads it says why
    header = start.partition(b"\n")[0].decode("utf-8", errors="replace")
    return start[:1] in (b"{", b"[") or any(column in header for column in _COLUMNS)


def import_servers(file: Path, study: str, given: Mapping[str, object], *, as_json: bool) -> None:
    """Import a table of servers into a study.

    Args:
        file: of the table.
        study: to import it into; made where it is missing.
        given: options that were given and are of sweeps, by flag; they have no effect here, and are refused.
        as_json: print one document.

    Raises:
        BadInputError: an option has no effect, the file breaks a rule, or the study holds this very content already.
    """
    from wastenot.serving.model.benchmark_files import read_server_table
    from wastenot.serving.tables.store import ServingStore
    from wastenot.study.store import open_study
    from wastenot.terminal.output import print_json, say

    for flag, value in given.items():
        if value not in (None, False):
            raise BadInputError(f"{flag}: has no effect on a table of servers; leave it out")
    points = read_server_table(file)
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    ServingStore(open_study(study, create=True)).add(points, source=str(file), sha256=content)
    models, kinds = len({point.model for point in points}), sorted({point.gpu for point in points})
    if as_json:
        print_json("import", {"study": study, "servers": len(points), "models": models, "gpus": kinds, "warnings": []})
        return
    say(f"{study}: {counted(len(points), 'operating point')} of servers of {counted(models, 'model')} on {', '.join(kinds)}")
    tasks = Counter(point.task for point in points)
    task = f" --task {shlex.quote(tasks.most_common(1)[0][0])}" if len(tasks) > 1 else ""
    say(f"next: wastenot serve recommend {study} --itl 50ms{task}")

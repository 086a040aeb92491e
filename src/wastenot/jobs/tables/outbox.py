"""Ends of runs that could not be stored since the study's server did not answer: kept on this machine until it does.

A file for each run, in a folder that only this user may enter; it holds no address, only the hash of one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from wastenot.core.files import user_state_folder, write_text
from wastenot.core.setting import Setting
from wastenot.jobs.tables.records import JobRun, Speed

SCHEMA: Final = "wastenot.outbox/1"
_MOST_BYTES: Final = 1 << 20


def keep(study: str, job_id: int, token: str, run: JobRun, speeds: Sequence[Speed]) -> Path:
    """Keep the end of a run; returns its file.

    Args:
        study: that it belongs to, by its label.
        job_id: of its job there.
        token: that it began with.
        run: as it ended.
        speeds: to store with it.

    Raises:
        BadInputError: the file cannot be written.
    """
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{_name(study)}-{token}.json"
    content = {
        "schema": SCHEMA,
        "job_id": job_id,
        "token": token,
        "run": asdict(run),
        "speeds": [asdict(each) for each in speeds],
    }
    write_text(path, json.dumps(content) + "\n")
    return path


@dataclass(frozen=True, slots=True)
class Kept:
    """The end of a run that waits to be stored.

    Attributes:
        path: of its file.
        job_id: of its job in the study.
        token: that it began with.
        run: as it ended.
        speeds: to store with it.
    """

    path: Path
    job_id: int
    token: str
    run: JobRun
    speeds: tuple[Speed, ...]


def kept(study: str) -> Iterator[Kept]:
    """What is kept for a study, by its label. A file that makes no sense is put aside."""
    for path in sorted(_folder().glob(f"{_name(study)}-*.json")):
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError("too long")
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                raise ValueError("of another version")
            run = JobRun(**content["run"] | {"setting": Setting(**content["run"]["setting"])})
            speeds = tuple(Speed(**each | {"setting": Setting(**each["setting"])}) for each in content["speeds"])
            found = Kept(path, int(content["job_id"]), str(content["token"]), run, speeds)
        except FileNotFoundError:  # another process was faster
            continue
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            put_aside(path)
            continue
        yield found


def put_aside(path: Path) -> None:
    """Keep a file that cannot be stored, where it is not tried again."""
    with suppress(OSError):
        path.rename(path.with_suffix(".bad"))


def _folder() -> Path:
    return user_state_folder() / "outbox"


def _name(study: str) -> str:
    return hashlib.sha256(study.encode()).hexdigest()[:16]

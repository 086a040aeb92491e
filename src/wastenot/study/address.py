"""Where a study lies, and how messages name it without passwords.

SQLAlchemy is loaded only for URLs, as commands that open no study name files, too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from wastenot.core.errors import StudyError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a study lies: on a server, which has a ``url``, or in a file, which has a ``path``.

    Attributes:
        label: how messages name it, without any password.
        file_uri: the file as SQLite is to open it, which never makes a file.
        secrets: texts that no message may show.
    """

    label: str
    url: URL | None = None
    path: Path | None = None
    file_uri: str | None = None
    secrets: tuple[str, ...] = ()


def parse_address(where: str | os.PathLike[str]) -> Address:
    """The address of a study.

    Args:
        where: a path (without ``://``) or any SQLAlchemy URL. A bare ``postgresql://`` uses psycopg 3 if it is there.

    Raises:
        StudyError: it is not a URL, or not one of a study.
    """
    name = os.fspath(where)
    if "://" not in name:
        return _file(name, name, {})
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(name)
    except (ArgumentError, ValueError) as error:
        shown = re.sub(r"(?<=://).*@", f"{HIDDEN}@", name)
        raise StudyError(
            f"{shown}: is not a database URL; write a file name or DIALECT://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from error
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise StudyError(f"{name}: a study in memory would be lost at once; name a file")
        query = {key: str(value) for key, value in url.query.items() if key != "uri"}
        return _file(url.database.removeprefix("file:"), name, query)
    secret_query = {key: value for key, value in url.query.items() if _SECRET.search(key)}
    secrets = [url.password] if url.password else []
    secrets += [secret for value in secret_query.values() for secret in ([value] if isinstance(value, str) else value)]
    hidden = url.update_query_dict(dict.fromkeys(secret_query, HIDDEN))
    public = hidden.render_as_string(hide_password=True).replace(quote(HIDDEN, safe=""), HIDDEN)
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg" if find_spec("psycopg") else "postgresql")
    return Address(public, url=url, secrets=tuple(filter(None, secrets)))


def _file(path: str, label: str, query: dict[str, str]) -> Address:
    if not path or "\0" in path:
        raise StudyError(f"{path!r}: is not a file name; name the file of the study")
    # mode=rw: SQLite's own default would make a missing file.
    uri = f"file:{quote(os.path.abspath(path))}?{urlencode({'mode': 'rw', **query})}"
    return Address(label, path=Path(path), file_uri=uri)

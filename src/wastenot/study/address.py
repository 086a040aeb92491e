"""Where a study lies: a file of SQLite or a database on a server, told apart by the text that names it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlencode

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from wastenot.errors import StudyError

_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a study lies.

    Attributes:
        label: how messages name it, without any password.
        url: of the server; ``None`` for a file.
        path: of the file; ``None`` on a server.
        file_uri: the file as SQLite is to open it, which never makes a file.
        secrets: texts that no message may show.
    """

    label: str
    url: URL | None = None
    path: Path | None = None
    file_uri: str | None = None
    secrets: tuple[str, ...] = ()


def parse_address(where: str | os.PathLike[str]) -> Address:
    """Tell where a study lies.

    Args:
        where: a path (without ``://``) or any SQLAlchemy URL. A bare ``postgresql://`` uses psycopg 3 if it is there.

    Raises:
        StudyError: it is no URL.
    """
    text = os.fspath(where)
    if "://" not in text:
        return _file(text, text, {})
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        shown = re.sub(r"(?<=://).*@", f"{_HIDDEN}@", text)
        raise StudyError(
            f"{shown}: is not a database URL; write a file name or DIALECT://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from error
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise StudyError(f"{text}: a study in memory would be lost at once; name a file")
        query = {key: str(value) for key, value in url.query.items() if key != "uri"}
        return _file(url.database.removeprefix("file:"), text, query)
    secret_query = {key: value for key, value in url.query.items() if _SECRET.search(key)}
    secrets = [url.password] if url.password else []
    secrets += [text for value in secret_query.values() for text in ([value] if isinstance(value, str) else value)]
    hidden = url.update_query_dict(dict.fromkeys(secret_query, _HIDDEN))
    public = hidden.render_as_string(hide_password=True).replace(quote(_HIDDEN, safe=""), _HIDDEN)
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg" if find_spec("psycopg") else "postgresql")
    return Address(public, url=url, secrets=tuple(filter(None, secrets)))


def _file(path: str, label: str, query: dict[str, str]) -> Address:
    if not path or "\0" in path:
        raise StudyError(f"{path!r}: is not a file name; name the file of the study")
    # mode=rw: SQLite's own default would make a missing file.
    uri = f"file:{quote(os.path.abspath(path))}?{urlencode({'mode': 'rw', **query})}"
    return Address(label, path=Path(path), file_uri=uri)

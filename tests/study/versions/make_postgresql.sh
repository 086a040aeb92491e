#!/bin/sh
# The same study on a PostgreSQL server:   tests/study/versions/make_postgresql.sh VERSION COMMIT URL
#
# Tables are made by the code of the commit (see make.sh), the rows are those of vN.db.xz without the long timelines. URL is of
# an empty database. The dump is for psycopg: plain statements.
set -eu
version=$1 commit=$2 url=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$(git -C "$here" rev-parse --show-toplevel)" archive --format=tar "$commit:src" | tar x -C "$work"
xz -dc "$here/v$version.db.xz" > "$work/s.db"
PYTHONPATH=$work python - "$work/s.db" "$url" <<'COPY'
import sys
from sqlalchemy import create_engine, insert, select, text
from wastenot.study.address import parse_address
from wastenot.study.schema import metadata

source, target = create_engine(f"sqlite:///{sys.argv[1]}"), create_engine(parse_address(sys.argv[2]).url)
with source.connect() as old, target.begin() as new:
    metadata.create_all(new)
    for table in metadata.sorted_tables:
        rows = [dict(row) for row in old.execute(select(table)).mappings()]
        if rows and table.name != "wastenot_timelines":
            new.execute(insert(table), rows)
            if table.name != "wastenot_study" and "id" in table.c:
                new.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"))
COPY
pg_dump --inserts --no-owner --no-privileges --no-comments "$url" | grep -v '^\\' | grep -v '^--' | grep -v '^SET\|search_path' \
    | grep -v '^$' | xz -9e > "$here/v$version.sql.xz"

"""Passwords in the address of a study are in nothing that is printed or written."""

import pytest

from wastenot.study.address import parse_address
from wastenot.terminal.output import without_passwords

PASSWORD = "s3cr3t-pw"

BRIEF = ("--granularity", "iteration", "--device", "sim:h200", "--core", "1500")
COMMANDS = (
    ("study", "import", "sweep.csv", "--device-name", "sim:h200", "--study", "{}"),
    ("study", "import", "sweep.csv", "--device-name", "sim:h200", "--study", "{}"),  # refused: it holds this already
    ("study", "import", "sweep.csv", "--device-name", "sim:h200", "--workload", "again", "--study", "{}", "--json"),
    ("show", "{}"),
    ("show", "{}", "--json"),
    ("kernel", "plan", "--study", "{}", "--workload", "again", "--out", "plan.json"),
    ("kernel", "plan", "--study", "{}", "--workload", "again", "--json"),
    ("kernel", "plan", "--study", "{}", "--workload", "none"),
    ("report", "{}", "--workload", "again", "--page", "page.html"),
    ("study", "export", "out.csv", "--study", "{}", "--workload", "again"),
    ("kernel", "sweep", "gpt3-small", *BRIEF, "--study", "{}"),
    ("kernel", "sweep", "gpt3-small", *BRIEF, "--study", "{}", "--json"),
    ("kernel", "sweep", "gpt3-small", "--device", "sim:h200", "--study", "{}", "--dry-run"),
    ("kernel", "validate", "--study", "{}", "--plan", "plan.json"),
    ("kernel", "natural", "--study", "{}"),
    ("job", "list", "--study", "{}"),
    ("job", "list", "--study", "{}", "--json"),
    ("serve", "recommend", "--study", "{}", "--itl", "50ms"),
)  # fmt: skip


def test_no_output_holds_the_password(wastenot, postgresql, tmp_path):
    url = parse_address(postgresql).url.set(password=PASSWORD).render_as_string(hide_password=False)
    gone = url.replace(f":{parse_address(postgresql).url.port}/", ":1/")
    assert PASSWORD in url and gone != url
    worked = 0
    for address in (url, gone, f"nonsense://me:{PASSWORD}@host/x"):
        for command in COMMANDS:
            ran = wastenot(*(part.replace("{}", address) for part in command))
            assert PASSWORD not in ran.out + ran.err, command
            worked += ran.code == 0
    assert worked >= 9, "of those on a server that answers"
    written = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert {"plan.json", "page.html"} <= {each.name for each in written}
    assert not [each.name for each in written if PASSWORD.encode() in each.read_bytes()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:pw@host:5432/x is busy", "postgresql://me:***@host:5432/x is busy"),
        ("http://host:8000/metrics, me@example.org", "http://host:8000/metrics, me@example.org"),
        ("postgresql://me:p@ss@host/x", "postgresql://me:***@host/x"),
        (
            "postgresql://host/x?user=me&password=pw&sslmode=require",
            "postgresql://host/x?user=me&password=***&sslmode=require",
        ),
        ("postgresql+psycopg://:pw@host", "postgresql+psycopg://:***@host"),
    ],
)
def test_an_address_is_shown_without_it(text, shown):
    assert without_passwords(text) == shown

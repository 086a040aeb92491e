"""In a narrow terminal words and numbers stay whole and different names stay different; no line ends in blanks."""

import io

import pytest
from rich.console import Console

from wastenot.terminal.fitted_table import FittedTable, shortened
from wastenot.terminal.output import wrapped


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        (
            "kernel",
            "workloads",
        ),
        ("kernel", "workloads", "llama-8b"),
        ("kernel", "workloads", "gpt3-xl", "--device", "h200"),
    ],
)
def test_no_line_is_too_long_or_cut(wastenot, arguments, width):
    text = wastenot(*arguments, COLUMNS=str(width)).out
    lines = text.splitlines()
    assert all(len(line) <= max(width, 80) and line == line.rstrip() for line in lines)
    if width == 80 and arguments[0] == "workload":
        whole = wastenot(*arguments, COLUMNS="200").out
        names = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
        assert len(set(names)) == len({line.split()[0] for line in whole.splitlines() if line.startswith("  ")})


def test_what_is_too_wide_folds_then_shortens_then_leaves_out():
    def shown(width):
        table = FittedTable(("less",))
        for heading, justify in (("name", "left"), ("two words", "left"), ("less", "left"), ("number", "right")):
            table.add_column(heading, justify=justify)
        table.add_row("projection_dweight_gemm", "some text", "abcdefgh", "1,234.5")
        table.add_row("projection_dinput_gemm", "more", "ijklmnop", "2.5")
        out = io.StringIO()
        Console(file=out, width=width, color_system=None).print(table)
        return out.getvalue()

    assert "projection_dweight_gemm" in shown(53) and "some text" in shown(53)
    assert "projection_dweight_gemm" in shown(49) and "some text" not in shown(49) and "abcdefgh" in shown(49)
    assert "abcdefgh" not in shown(40) and "left out at this width: less" in shown(40)
    assert all("1,234.5" in shown(width) for width in (40, 49, 53))
    assert shortened("  projection_dweight_gemm", 18) == "  project…ght_gemm"


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_messages_wrap_at_words_in_a_terminal_and_commands_stay_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    message = "study.db: measurements are kept; resume: wastenot kernel sweep gpt3-xl --device sim:h200 --study study.db"
    assert wrapped(message, io.StringIO()) == message
    *text, command = wrapped(message, _Terminal()).splitlines()
    assert all(len(line) <= 50 for line in text)
    assert command == "  wastenot kernel sweep gpt3-xl --device sim:h200 --study study.db"

"""The bar of long work: the count and the time left are there at every width, and what is cut first is the description."""

import io
import itertools

import pytest
from rich.console import Console

from wastenot.terminal import progress
from wastenot.terminal.progress import Bar, bar_line

WHAT = "scores_dquery_gemm at 1410 MHz core, 9501 MHz memory"


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 200])
def test_count_and_time_left_are_kept(width):
    line = bar_line(width, "sweep of gpt3-xl", 1234, 12345, 4000.0, 36000.0, WHAT).plain
    assert len(line) <= width and "1,234/12,345" in line and "10:00:00 left" in line
    assert WHAT in line or width < 200
    assert ("━" in line) == (width >= 60)


def test_what_is_cut_goes_in_order():
    lines = [bar_line(width, "validation", 3, 92, 5.0, None, WHAT).plain for width in range(20, 160)]
    shown = [[part in line for part in ("3/92 -:-- left", "validation", "━" * 10, "0:05 elapsed", WHAT)] for line in lines]
    assert shown[0] == [True, False, False, False, False] and all(shown[-1])
    assert all(later <= earlier for parts in shown for earlier, later in itertools.pairwise(parts))


@pytest.mark.parametrize("width", [40, 60])
def test_a_terminal_of_that_width_shows_one_line(width):
    file = io.StringIO()
    bar = Bar("sweep of gpt3-xl by iteration", Console(file=file, width=width, force_terminal=True, color_system=None))
    bar.begin(920, 20)
    bar.step(WHAT)
    bar.say("drift: energy of 'x' at auto changed")
    bar.end()
    shown = file.getvalue()
    lines = [line for line in shown.replace("\x1b", "\n").splitlines() if "21/920" in line]
    assert lines and all("left" in line for line in lines), shown
    assert "drift: energy of 'x' at auto changed" in shown


def test_the_time_left_counts_what_this_run_has_done(monkeypatch):
    now = iter([0.0, 100.0, 110.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    count = progress._Count()
    count.begin(920, 900)
    assert count.left_s is None
    count.done += 5
    assert count.left_s == pytest.approx(10.0 / 5 * 15)

"""What every page has: the parts of its head, and none that have nothing in them."""

from dataclasses import replace

import pytest

from wastenot.pages.figure import Figure
from wastenot.pages.page import Folded, Page
from wastenot.pages.panel import Next

ABOUT = "a model on a GPU · 64 layers · measured numbers"


def shown(figures=(), **parts):
    page = Page("plan", "plan", ("a model", "on a GPU"), "measured", "Saves 1 %", "measured", (), figures, (), **parts)
    return page.html()


def test_the_next_step_is_a_sentence_and_commands_to_copy():
    html = shown(next_step=Next("Train with these clocks", ("wastenot apply plan.json", "wastenot monitor")))
    step = html.split('<section class="next"')[1].split("</section>")[0]
    assert "Train with these clocks:" in step
    assert "<code>wastenot apply plan.json\nwastenot monitor</code>" in step


def test_a_page_without_a_next_step_has_no_box_for_it():
    assert 'class="next"' not in shown()


@pytest.mark.parametrize(
    ("made", "command", "filled"),
    [
        ("wastenot tune --out tuned.json --summary s.json", "wastenot apply PLAN.json", "wastenot apply tuned.json"),
        ("wastenot report 'my plan.json'", "wastenot apply PLAN.json", "wastenot apply 'my plan.json'"),
        ("wastenot profile run gemm --out a.parquet", "x ONE.parquet OTHER.parquet", "x a.parquet OTHER.parquet"),
        ("wastenot pipeline plan profile.json --page p.html", "apply PLAN.json", "apply PLAN.json"),
        ("wn.report('my.db', 'r.html')", "apply PLAN.json", "apply PLAN.json"),
    ],
)
def test_what_to_do_next_names_the_files_that_the_pages_command_wrote(made, command, filled):
    assert Next("Do", (command,)).filled(made).commands == (filled,)


def test_what_a_page_is_of_is_said_once_and_which_numbers_it_shows_in_the_badge_and_at_the_first_figure():
    own, other = (Figure(name, name, about, "How to read it.", None) for name, about in (("a", ABOUT), ("b", "a forecast")))
    html = shown(about=ABOUT, folded=Folded("More", "the rest", [own, other]))
    body = html[html.index("<main>") : html.index("<footer>")]
    cards = body[body.index("<figure") :]
    assert body.count("64 layers") == 1 and "64 layers" not in cards
    assert cards.count('<p class="origin"></p>') == 1 and cards.count('<p class="origin">a forecast</p>') == 1
    first = shown([own, replace(own, name="c")], about=ABOUT)
    assert first.count('<p class="origin">measured numbers</p>') == 1 and first.count('<p class="origin"></p>') == 1

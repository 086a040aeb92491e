"""What every page has: the parts of its head, and none that have nothing in them."""

from wastenot.pages.page import Page
from wastenot.pages.panel import Next


def shown(**parts):
    page = Page("plan", "plan", ("a model", "on a GPU"), "measured", "Saves 1 %", "measured", (), (), (), **parts)
    return page.html()


def test_the_next_step_is_a_sentence_and_commands_to_copy():
    html = shown(next_step=Next("Train with these clocks", ("wastenot apply plan.json", "wastenot monitor")))
    step = html.split('<section class="next"')[1].split("</section>")[0]
    assert "Train with these clocks:" in step
    assert "<code>wastenot apply plan.json\nwastenot monitor</code>" in step


def test_a_page_without_a_next_step_has_no_box_for_it():
    assert 'class="next"' not in shown()

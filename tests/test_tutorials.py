"""The tutorials do what they say: every command is run, in order, and prints what the page shows."""

from __future__ import annotations

import pytest

from docs.make.tutorials import PAGES, blocks_not_marked, differences, run_page

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_page_shows(page, tmp_path):
    assert blocks_not_marked(page.path) == 0
    ran = 0
    for command, code, printed in run_page(page.path, tmp_path):
        ran += 1
        assert code == command.exit_code, "\n".join([f"$ {command.typed}", *printed])
        assert differences(command, printed) == [], f"renew it: python -m docs.make {page.name}"
    assert ran > 0

"""The page, opened in a browser: it draws every figure, raises nothing, and asks for nothing."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from testbed.drawn_sweeps import make_sweep
from wastenot.core.errors import BadInputError
from wastenot.kernels.page.page import plan_page, report_figures
from wastenot.kernels.plan.overview import make_overview
from wastenot.pages.formatting import ORIGIN_TEXT
from wastenot.pages.page import script_json
from wastenot.pages.price import Price
from wastenot.planning.planner import plan
from wastenot.study.sweep import Kernel
from wastenot.study.sweep_file import read_sweep

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def check_in_browser(data, path, browse, *, picture=False):
    plan_page(data, price=Price(0.3, "EUR")).write(path, made_at=NOON)
    opened = browse(path, picture=picture)
    assert opened.errors == ""
    assert opened.charts == {figure.name: 1 for figure in report_figures(data) if figure.specification}
    assert [address for address in opened.addresses if re.match(r"(?i)(https?:)?//", address)] == []
    return opened


@pytest.mark.system
def test_the_demo_opens_without_an_error(demo, tmp_path, browse):
    opened = check_in_browser(demo, tmp_path / "demo.html", browse, picture=True)
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert len(opened.charts) == 8
    text = " ".join(opened.text)
    assert "10.29\xa0%" in text
    assert "best of those given" in text
    assert 1 <= text.count("synthetic numbers") <= 3  # in the verdict and at the first figure, not at each
    assert ORIGIN_TEXT["synthetic"] in text


@pytest.mark.system
def test_a_narrow_page_draws_one_panel_in_a_row(demo, tmp_path, browse):
    path = tmp_path / "demo.html"
    plan_page(demo).write(path, made_at=NOON)
    wide, narrow = browse(path), browse(path, width=420)
    assert narrow.errors == wide.errors == ""
    assert wide.narrow == []
    assert sorted(narrow.narrow) == sorted(narrow.charts) == sorted(wide.charts)


@pytest.mark.parametrize("case", ["only auto", "one setting", "nasty names", "extreme", "pass plan", "many"])
@pytest.mark.system
def test_hard_cases_open_without_an_error(case, cases, tmp_path, browse):
    # More kernels than its tables have rows.
    many = [Kernel(f"k{index}", 2) for index in range(260)]
    data = make_overview(make_sweep(many, 9)) if case == "many" else cases[case]()
    path = tmp_path / "page.html"
    opened = check_in_browser(data, path, browse)
    assert path.stat().st_size < 15e6
    text = " ".join(opened.text)
    if case == "only auto":
        assert "only the default clocks were measured" in text
        assert not any(name.startswith("settings") for name in opened.charts)
    if case == "many":
        assert "60 more kernels" in text
        assert "adds up the other 240 kernels" in text


@pytest.mark.system
def test_the_measured_sweep_opens_without_an_error(shared_data, tmp_path, browse):
    sweep = read_sweep(shared_data / "rtx3080ti-polybench" / "sweep-share.csv", device="RTX 3080 Ti")
    data = make_overview(sweep, plan(sweep, clock_tolerance_mhz=30.0))
    opened = check_in_browser(data, tmp_path / "share.html", browse)
    assert "25.24\xa0%" in " ".join(opened.text)


@pytest.mark.parametrize("case", [None, pytest.param("nasty names", marks=pytest.mark.slow)])
@pytest.mark.system
def test_nothing_is_cut_or_scrolls_sideways_on_a_narrow_screen(case, demo, cases, tmp_path, too_wide):
    path = tmp_path / "page.html"
    data = demo if case is None else cases[case]()
    call = f"wastenot report --study {'x' * 200}.db --out report.html"
    plan_page(data, price=Price(0.3, "EUR"), made_from=[("Study", "y" * 200)]).write(path, made_at=NOON, command=call)
    assert too_wide(path, 420) == "420 px wide: all fits"


@pytest.mark.slow
@pytest.mark.system
def test_the_check_itself_notices_what_is_too_wide(demo, tmp_path, too_wide):
    path = tmp_path / "wide.html"
    plan_page(demo).write(path)
    page = path.read_text(encoding="utf-8")
    path.write_text(page.replace("(max-width: 640px)", "(max-width: 64px)"), encoding="utf-8")
    assert re.search(r"scrolls|ends at", too_wide(path, 420))


@pytest.mark.system
def test_the_check_itself_notices_a_broken_figure(demo, tmp_path, browse):
    path = tmp_path / "broken.html"
    plan_page(demo).write(path)
    path.write_text(path.read_text(encoding="utf-8").replace('"type":"bar"', '"type":"nonsense"'), encoding="utf-8")
    opened = browse(path)
    assert opened.errors
    assert opened.charts["kernels"] == 0


@pytest.mark.system
def test_the_check_itself_notices_a_request(demo, tmp_path, browse):
    path = tmp_path / "asking.html"
    plan_page(demo).write(path)
    page = path.read_text(encoding="utf-8").replace("<main>", '<main><img src="https://example.invalid/x.png">')
    path.write_text(page, encoding="utf-8")
    opened = browse(path)
    assert "blocked: https://example.invalid/x.png" in opened.errors
    assert "https://example.invalid/x.png" in opened.addresses


def test_names_are_escaped(cases):
    page = plan_page(cases["nasty names"]()).html(made_at=NOON)
    assert "<b onload" not in page
    assert "<i>" not in page
    # One end for each script that the template opens: no name closed one early.
    assert page.count("</script>") == len(re.findall(r"<script[> ]", page)) == 4


def test_json_for_a_script_keeps_its_meaning_and_cannot_end_it():
    value = {"</script>": "<!-- &\u2028\u2029 'x' \"y\""}
    text = script_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")
    with pytest.raises(ValueError, match="JSON compliant"):
        script_json(float("nan"))


def test_every_origin_has_its_badge(cases):
    for case, origin in (("only auto", "measured"), ("one setting", "forecast"), ("pass plan", "simulated")):
        page = plan_page(cases[case]()).html(made_at=NOON)
        assert f'<div class="badge {origin}"' in page
        assert f"{origin} numbers" in page


@pytest.mark.parametrize("price", [-0.1, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(BadInputError, match="price_per_kwh"):
        Price(price, "USD")

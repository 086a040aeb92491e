"""A headless browser as fixtures: what a page does when it is opened, and whether it fits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

# Records whatever goes wrong where the dumped document shows it; must run before all other scripts.
_HOOK = """<script>(() => {
  const record = (what) => { document.documentElement.dataset.errors =
    (document.documentElement.dataset.errors || "") + what + "\\n"; };
  addEventListener("error", (event) => record("error: " + (event.message || event.target.outerHTML)), true);
  addEventListener("unhandledrejection", (event) => record("rejection: " + event.reason));
  addEventListener("securitypolicyviolation", (event) => record("blocked: " + event.blockedURI));
  for (const level of ["error", "warn"]) {
    const old = console[level];
    console[level] = (...words) => { record(level + ": " + words.join(" ")); old.apply(console, words); };
  }
})();</script>"""

# Opens a page in a frame of a given width, and hands on what the page says of itself.
_FRAME = """<!DOCTYPE html><iframe src="{address}" style="border:0;width:{width}px;height:900px"></iframe>
<script>addEventListener("message", (event) => {{ document.documentElement.dataset.errors = event.data; }});</script>"""

# Runs in the page once the figures are drawn: unfolds all, and finds what is wider than the page or than its own box.
_MEASURE = """<script>addEventListener("load", () => setTimeout(() => {
  document.querySelectorAll("main details:not(.chart *)").forEach((each) => { each.open = true; });
  const page = document.documentElement, found = [];
  const name = (each) => each.tagName + (each.className ? "." + each.className : "") + (each.id ? "#" + each.id : "");
  for (const each of document.querySelectorAll("body *:not(svg *, script, style, .chart details *)")) {
    const box = each.getBoundingClientRect(), scrolls = getComputedStyle(each).overflowX !== "visible";
    if (box.width && box.right > innerWidth + 1) found.push(name(each) + " ends at " + Math.round(box.right));
    if (scrolls && each.scrollWidth > each.clientWidth + 1) found.push(name(each) + " scrolls " + each.scrollWidth);
  }
  if (page.scrollWidth > innerWidth) found.push("the page scrolls " + page.scrollWidth);
  parent.postMessage(innerWidth + " px wide: " + (found.join("; ") || "all fits"), "*");
}, 4000));</script>"""

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=15000",
)


@dataclass
class Opened:
    """A page as the browser has it after its scripts have run."""

    errors: str = ""
    charts: dict[str, int] = field(default_factory=dict)
    narrow: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened = Opened()
        self._chart: str | None = None
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "html":
            self.opened.errors = given.get("data-errors") or ""
        if name := given.get("data-figure"):
            self._chart = name
            self.opened.charts[name] = 0
            if "narrow" in (given.get("class") or "").split():
                self.opened.narrow.append(name)
        if tag == "svg" and self._chart and "marks" in (given.get("class") or ""):
            self.opened.charts[self._chart] += 1
        if tag in ("figcaption", "section"):
            self._chart = None
        self.opened.addresses += [given[name] or "" for name in ("src", "href", "xlink:href", "action") if name in given]
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.opened.text.append(data)


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., Opened]:
    """Open a page in a headless browser; with ``picture`` a screenshot is left in ``tmp_path``."""
    run = _runner(tmp_path)

    def open_page(page: Path, *, picture: bool = False, width: int = 1280) -> Opened:
        hooked = tmp_path / "hooked.html"
        hooked.write_text(page.read_text(encoding="utf-8").replace("<head>", "<head>" + _HOOK, 1), encoding="utf-8")
        reader = _Reader()
        reader.feed(run(hooked, "--dump-dom", f"--window-size={width},900"))
        if picture:
            run(page, f"--screenshot={tmp_path / 'page.png'}", "--window-size=1280,5200")
        return reader.opened

    return open_page


@pytest.fixture
def too_wide(tmp_path: Path) -> Callable[[Path, int], str]:
    """What of a page does not fit into so many pixels, unfolded: ``420 px wide: all fits`` where everything does.

    The page is opened in a frame, since no browser makes a window narrower than about 500 pixels.
    """
    run = _runner(tmp_path)

    def measure(page: Path, width: int) -> str:
        inner, outer = tmp_path / "inner.html", tmp_path / "outer.html"
        inner.write_text(page.read_text(encoding="utf-8").replace("<head>", "<head>" + _MEASURE, 1), encoding="utf-8")
        outer.write_text(_FRAME.format(address=inner.as_uri(), width=width), encoding="utf-8")
        reader = _Reader()
        reader.feed(run(outer, "--dump-dom"))
        return reader.opened.errors

    return measure


def _runner(tmp_path: Path) -> Callable[..., str]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium to open the page with")

    def run(page: Path, *what: str) -> str:
        command = [browser, *_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *what, page.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout

    return run

"""The demo as a newcomer runs it, and when it opens a browser."""

import os
import sys
from unittest import mock

import pytest

from testbed.few_kernels import write_few_kernels
from wastenot.cli.demo import has_display
from wastenot.control.status import read_summary

QUIET = {"CI": "", "SSH_CONNECTION": "", "SSH_CLIENT": "", "SSH_TTY": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}


@pytest.mark.slow
def test_the_demo_needs_nothing_and_writes_a_page(wastenot, monkeypatch):
    """With few kernels; with those of GPT-3 XL the tutorial without a GPU runs it (test_blocks.py)."""
    write_few_kernels(wastenot.folder / "few.json", "gpt3-xl")
    monkeypatch.setattr("wastenot.cli.demo._WORKLOAD", "few.json")
    ran = wastenot("demo", DISPLAY=":0")
    assert ran.code == 0, ran.err
    page = wastenot.folder / "wastenot-demo" / "report.html"
    assert page.stat().st_size > 100_000 and page.resolve().as_uri() in ran.out
    assert "simulated" in ran.out.splitlines()[0]
    assert ": limit kept (simulated)" in ran.out and "wastenot apply" in ran.out
    assert "Applied   saved" in ran.out and ran.out.count("simulated") > 3
    job = wastenot.folder / "wastenot-demo" / "run.html"
    assert "<b>few</b> on sim:rtx-3080-ti" in job.read_text() and f"{job.resolve().as_uri()}: the job" in ran.out
    assert read_summary(job.with_suffix(".json")).status.proof.saved_j.low > 0.0
    assert "opened in your browser" not in ran.out  # what the tests print goes to no terminal


@pytest.mark.parametrize(
    ("terminal", "environment", "opens"),
    [
        (True, {"DISPLAY": ":0"}, True),
        (True, {"WAYLAND_DISPLAY": "wayland-0"}, True),
        (True, {}, False),
        (False, {"DISPLAY": ":0"}, False),
        (True, {"DISPLAY": ":0", "CI": "true"}, False),
        (True, {"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}, False),
    ],
)
def test_a_browser_opens_only_before_somebodys_eyes(terminal, environment, opens, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "stderr", mock.Mock(isatty=lambda: terminal))
    with mock.patch.dict(os.environ, QUIET | environment):
        assert has_display() is opens

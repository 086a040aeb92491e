"""Takes the README's picture of the report: python docs/make_images.py REPORT.html, with Chromium installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = ("--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=8000").split()  # fmt: skip


def main(report: str) -> None:
    """Write docs/images/report.png: the head of the page."""
    picture = Path(__file__).parent / "images" / "report.png"
    with tempfile.TemporaryDirectory() as profile:
        size = "--window-size=1280,1900"
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}", f"--screenshot={picture}", size]
        subprocess.run([*command, Path(report).resolve().as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

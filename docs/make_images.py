"""Makes the README's figures.

python docs/make_images.py REPORT.html            the report; Chromium must be installed
python docs/make_images.py --profile              a power profile on the simulated MI300X
python docs/make_images.py --applied RUN.json     what 'wastenot apply --out' wrote on docs/apply.md
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = ("--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=8000").split()  # fmt: skip


def main(report: str) -> None:
    """Write docs/images/report.png: the top of the page."""
    picture = Path(__file__).parent / "images" / "report.png"
    with tempfile.TemporaryDirectory() as profile:
        size = "--window-size=1280,1900"
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}", f"--screenshot={picture}", size]
        subprocess.run([*command, Path(report).resolve().as_uri()], check=True, capture_output=True)


def profile() -> None:
    """Write docs/images/profile.png: power over a run of FinGraV's largest GEMM."""
    import wastenot as wn
    from wastenot.pages.figure import export_figures
    from wastenot.profiles.page.run_figure import run_figure

    found = wn.profile("gemm:8192", "sim:mi300x")
    with tempfile.TemporaryDirectory() as folder:
        picture = next(path for path in export_figures([run_figure(found)], found.origin, folder) if path.suffix == ".png")
        (Path(__file__).parent / "images" / "profile.png").write_bytes(picture.read_bytes())


def applied(run: str) -> None:
    """Write docs/images/apply-close-up.png: two iterations of a run under a plan."""
    from wastenot.control.page.page import write_applied_figures
    from wastenot.control.status import read_summary

    with tempfile.TemporaryDirectory() as folder:
        picture = next(
            path for path in write_applied_figures(read_summary(run), folder) if path.name == "applied-close-up.png"
        )
        (Path(__file__).parent / "images" / "apply-close-up.png").write_bytes(picture.read_bytes())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--applied"]:
        applied(*sys.argv[2:])
    elif sys.argv[1:] == ["--profile"]:
        profile()
    else:
        main(*sys.argv[1:])

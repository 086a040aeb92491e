"""What docs/pipelines.md shows is what its commands print; numbers may move by what a solver finds in its time."""

import re
import shlex
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
NUMBER = re.compile(r"[−+]?\d[\d,]*\.?\d*")


@pytest.mark.slow
def test_the_run_on_the_page_is_what_the_command_prints(wastenot):
    command = re.search(r"^wastenot (pipeline plan gpt3-175b .+)$", PAGE, re.M)[1]
    shown = re.search(r"^```text\n(gpt3-175b on .+?)^```", PAGE, re.M | re.S)[1]
    ran = wastenot(*shlex.split(command.replace(" --page pipeline.html", "")))
    assert ran.code == 0, ran.err
    page, printed = (" ".join(text.replace("\N{NO-BREAK SPACE}", " ").split()) for text in (shown, ran.out))
    printed = printed[: printed.index(" Assumed")]
    assert NUMBER.sub("#", page) == NUMBER.sub("#", printed)
    for on_page, now in zip(NUMBER.findall(page), NUMBER.findall(printed), strict=True):
        one, other = (float(text.replace(",", "").replace("−", "-")) for text in (on_page, now))
        # Percentages within half a point, all else within 1 %, counts on the critical path within a fifth.
        assert abs(one - other) <= max(0.5, 0.2 * abs(one) if one == int(one) else 0.01 * abs(one)), (on_page, now)

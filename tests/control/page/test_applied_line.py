"""A plan applied in one line."""

from datetime import datetime

import pytest

from testbed.applied import NO_PROOF, PROOF, status
from wastenot.control.page.line import live_text
from wastenot.control.status import Estimate, Event, Rehearsal

BEGUN = datetime(2026, 3, 4, 9, 14).timestamp()
MANY = PROOF.model_copy(update={"saved_j": Estimate(value=1.152e7, low=1.1e7, high=1.2e7)})


def line(**changed):
    return live_text(status(**({"origin": "measured", "started_unix_s": BEGUN} | changed))).replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_what_is_saved_with_its_error_how_much_and_since_when():
    assert line(proof=MANY) == "saved 8.1 ± 0.5 %, time +0.1 ± 0.2 %, 3.20 kWh saved since 09:14"


def test_a_rehearsal_tells_what_is_seen_and_no_saving():
    seen = Rehearsal(
        iterations=(40,), iteration_s=0.02, passes={"forward": 40}, layers=12, missing=(), requests=1234, refusal=None
    )  # fmt: skip
    said = line(origin="simulated", rehearsal=seen, proof=MANY)
    assert said == "rehearsal: 40 iterations seen, clocks requested 1,234 times in 3.0 min, nothing is measured"


def test_a_simulated_job_says_so_and_how_long_it_has_run():
    assert line(origin="simulated", proof=MANY).endswith("3.20 kWh saved in 3.0 min, simulated")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rung": 1}, "1 step faster"),
        ({"rung": 3}, "at the default clocks, to stay within the slowdown limit"),
        ({"proof": NO_PROOF, "iteration": 12}, "no estimate yet, 12 iterations"),
        ({"proof": NO_PROOF, "iteration": None}, "waiting for the first"),
        ({"dry_run": True}, "dry run, nothing is set: 8.30 % predicted saving"),
        ({"events": (Event(at_s=1.0, kind="refused", text="other"),)}, "not the plan's workload"),
    ],
)
def test_where_it_stands(changed, said):
    assert said in line(**changed)

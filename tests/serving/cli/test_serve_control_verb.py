"""What ``wastenot serve control`` refuses before it begins."""

from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ([], 2, "no server is given"),
        (["--instance", "localhost:8000=nvidia:0"], 2, "not an address of a server"),
        (["--instance", "http://a=nvidia:0", "--instance", "http://b=nvidia:0"], 2, "given to two servers"),
        (["--instance", "http://a", "--instance", "http://a"], 2, "given twice"),
        (["--instance", "http://a="], 2, "gives no GPU"),
        (["--instance", "http://a=sim:h200,sim:h200"], 2, "no such parallel degree"),
        (["--instance", "http://a", "--period", "9s"], 2, "at most 4 s"),
        (["--instances", "none.toml"], 2, "cannot be read"),
    ],
)
def test_what_cannot_be(wastenot, more, code, says):
    ran = wastenot("serve", "control", str(ENGINE), *more)
    assert ran.code == code and says in ran.err


def test_a_profile_that_is_not_there_comes_before_its_servers(wastenot):
    ran = wastenot("serve", "control", "none.json")
    assert ran.code == 2 and "none.json: cannot be read" in ran.err
